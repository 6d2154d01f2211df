"""Numbers, lists and tables as text."""

from collections.abc import Iterable, Sequence

_BYTE_UNITS = (("GB", 10**9), ("MB", 10**6), ("KB", 10**3))


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


def align_columns(rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    """Rows of cells as text, two spaces between columns; numeric columns are aligned right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, numeric, strict=True)
        lines.append("  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells))
    return "\n".join(line.rstrip() for line in lines)


def byte_unit(num_bytes: float) -> tuple[str, int]:
    """The unit in which an amount is written, and the bytes of one unit."""
    return next(((unit, size) for unit, size in _BYTE_UNITS if num_bytes >= size), ("B", 1))


def format_bytes(num_bytes: int) -> str:
    """Bytes with three significant digits, in the units of budgets.

    >>> format_bytes(999), format_bytes(228_400), format_bytes(1_050_000_000)
    ('999 B', '228 KB', '1.05 GB')
    """
    unit, size = byte_unit(num_bytes)
    amount = num_bytes / size
    digits = 0 if size == 1 or amount >= 99.95 else 1 if amount >= 9.995 else 2
    return f"{amount:.{digits}f} {unit}"


def format_share(share: float) -> str:
    """A share 0…1 in percent; shares below 10 % have two significant digits.

    >>> format_share(1), format_share(0.0246), format_share(0.00098)
    ('100 %', '2.5 %', '0.098 %')
    """
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def printable(text: str) -> str:
    """Text without control characters but line ends: names and values from data must not control the terminal."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else f"\\x{ord(sign):02x}" for sign in text)


def shorten(text: str, width: int) -> str:
    """Text cut to a width, marked with `…`; control characters become spaces."""
    text = "".join(sign if sign.isprintable() else " " for sign in text)
    return text if len(text) <= width else f"{text[: width - 1]}…"
