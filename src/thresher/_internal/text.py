"""Text for messages."""

from collections.abc import Iterable


def list_first(items: Iterable[object], limit: int = 5, *, separator: str = ", ") -> str:
    """The first `limit` items, and how many more there are.

    >>> list_first("abcdefg"), list_first("abc", 2, separator="; ")
    ('a, b, c, d, e and 2 more', 'a; b; and 1 more')
    """
    texts = [str(item) for item in items]
    shown = separator.join(texts[:limit])
    if len(texts) <= limit:
        return shown
    return f"{shown}{' ' if separator == ', ' else separator}and {len(texts) - limit:,} more"
