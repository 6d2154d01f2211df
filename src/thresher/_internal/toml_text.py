"""TOML as text: the exact writer that the standard library lacks, and where in a text a key is set.

Knows plain dicts, lists, strings and numbers only; what they mean is `thresher._internal.settings`'s affair.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any


def format_document(table: Mapping[str, Any]) -> str:
    """A TOML document that `tomllib` reads back as an equal dict.

    >>> print(format_document({"seed": 0, "model": {"name": "fm"}, "budgets": ["30k", "2%"]}), end="")
    seed = 0
    budgets = ["30k", "2%"]
    <BLANKLINE>
    [model]
    name = "fm"
    """
    lines: list[str] = []
    _write_table(table, (), lines)
    return "\n".join(lines).strip("\n") + "\n"


def format_value(value: Any) -> str:
    """One value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):  # JSON's escapes are TOML's, but for DEL, which TOML wants escaped
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(format_value, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{format_key(name)} = {format_value(item)}" for name, item in value.items()) + "}"
    return repr(value)  # int and float: repr is exact, and inf, nan and 1e-05 are TOML as they stand


def format_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else format_value(name)


def read_value(text: str) -> Any:
    """`text` as a TOML value, or the text itself where it is none.

    >>> read_value("1e-3"), read_value("[1, 2]"), read_value("30k")
    (0.001, [1, 2], '30k')
    """
    try:
        document = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return str(text)
    return document["value"] if len(document) == 1 else str(text)


def line_of(text: str, key: str) -> int | None:
    """The line that sets the dotted `key` or opens its table; None where it is not plainly written."""
    wanted = re.sub(r"\[\d+\]", "", key).split(".")
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            table = _names(header[1])
            if table == wanted:
                return number
        elif (assigned := re.match(r"\s*([^=#\[]+?)\s*=", line)) and table + _names(assigned[1]) == wanted:
            return number
    return None


def _names(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    """Plain values first, then tables, then arrays of tables: the only order TOML reads back the same."""
    subtables = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    arrays = {name: value for name, value in table.items() if _is_array_of_tables(value)}
    for name, value in table.items():
        if name not in subtables and name not in arrays:
            lines.append(f"{format_key(name)} = {format_value(value)}")
    for name, value in subtables.items():
        lines += ["", f"[{'.'.join(map(format_key, (*path, name)))}]"]
        _write_table(value, (*path, name), lines)
    for name, items in arrays.items():
        for item in items:
            lines += ["", f"[[{'.'.join(map(format_key, (*path, name)))}]]"]
            _write_table(item, (*path, name), lines)


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)
