"""A file whose columns were not told apart, since something else stands between them: how to notice, what to say."""

from collections.abc import Sequence


def other_delimiter(columns: Sequence[str]) -> str:
    """The sign that seems to separate the column names of a file taken to have one column; empty if there is none."""
    if len(columns) != 1:
        return ""
    sign = max(";\t|,", key=columns[0].count)
    return sign if sign in columns[0] else ""


def delimiter_advice(columns: Sequence[str]) -> str:
    """How to read a file whose column names are separated otherwise; empty where they are not."""
    sign = other_delimiter(columns)
    text = '"\\t"' if sign == "\t" else f'"{sign}"'
    return f"; set data.delimiter = {text}" if sign else ""


def taken_for_one(columns: Sequence[str]) -> str:
    """What is wrong with a file taken to have one column; empty where nothing is."""
    sign = other_delimiter(columns)
    if not sign:
        return ""
    return f"there is one column, {columns[0]!r}; it looks separated by {sign!r}{delimiter_advice(columns)}"
