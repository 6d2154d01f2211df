"""TOML text: a writer (the standard library has only a reader), single values, and the line that sets a key."""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any


def format_document(table: Mapping[str, Any]) -> str:
    """Write nested plain dicts as a TOML document that `tomllib` reads back as an equal dict.

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
    """Write one value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):  # JSON escapes are valid in TOML, but TOML also requires DEL to be escaped
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(format_value, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_format_key(name)} = {format_value(item)}" for name, item in value.items()) + "}"
    return repr(value)  # exact for int and float; inf, nan and 1e-05 are valid TOML


def parse_value(text: str) -> Any:
    """Read `text` as a TOML value; return the text itself if it is not valid TOML.

    >>> parse_value("1e-3"), parse_value("[1, 2]"), parse_value("30k")
    (0.001, [1, 2], '30k')
    """
    try:
        document = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return str(text)
    return document["value"] if len(document) == 1 else str(text)


def find_line(text: str, key: str) -> int | None:
    """Number of the line that sets the dotted `key` or opens its table; None if no such line is found."""
    wanted = re.sub(r"\[\d+\]", "", key).split(".")
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            table = _split_key(header[1])
            if table == wanted:
                return number
        elif (assigned := re.match(r"\s*([^=#\[]+?)\s*=", line)) and table + _split_key(assigned[1]) == wanted:
            return number
    return None


def _split_key(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]


def _format_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else format_value(name)


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    """Append plain values, then tables, then arrays of tables: TOML reads any other order differently."""
    subtables = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    arrays = {name: value for name, value in table.items() if _is_array_of_tables(value)}
    for name, value in table.items():
        if name not in subtables and name not in arrays:
            lines.append(f"{_format_key(name)} = {format_value(value)}")
    for name, value in subtables.items():
        lines += ["", f"[{'.'.join(map(_format_key, (*path, name)))}]"]
        _write_table(value, (*path, name), lines)
    for name, items in arrays.items():
        for item in items:
            lines += ["", f"[[{'.'.join(map(_format_key, (*path, name)))}]]"]
            _write_table(item, (*path, name), lines)


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)
