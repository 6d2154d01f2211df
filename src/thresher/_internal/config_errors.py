"""The words for a setting that does not fit: which key, what was expected, what was found, what may have been meant."""

import json
import types
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from thresher._internal.plain_data import to_plain
from thresher._internal.toml_text import format_value


class KeyProblemError(Exception):
    """What is wrong with one key; becomes a `ConfigError` once file and line are known."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def join_keys(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def unknown_key(key: str, name: str, known: Iterable[str]) -> str:
    nearest = get_close_matches(name, list(known), n=1)
    hint = (
        f"did you mean {join_keys(key, nearest[0])!r}?" if nearest else f"known here: {', '.join(known) or 'nothing'}"
    )
    return f"unknown key {join_keys(key, name)!r}; {hint}"


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    nearest = get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def one_of(names: Iterable[Any]) -> str:
    return f"one of {', '.join(json.dumps(name) for name in names)}"


def wrong_type(hint: Any, value: Any, key: str) -> KeyProblemError:
    return KeyProblemError(key, f"{key}: expected {describe(hint)}, got {show(value)}")


def show(value: Any) -> str:
    kinds = {
        bool: "a boolean",
        int: "an integer",
        float: "a number",
        str: "a string",
        list: "an array",
        dict: "a table",
    }
    kind = next((name for base, name in kinds.items() if isinstance(value, base)), type(value).__name__)
    return f"{format_value(to_plain(value))} ({kind})" if kind in kinds.values() else f"{value} ({kind})"


def describe(hint: Any) -> str:
    names = {bool: "true or false", int: "an integer", float: "a number", str: "a string", Path: "a path (a string)"}
    if hint in names:
        return names[hint]
    origin, members = get_origin(hint), get_args(hint)
    if origin is Literal:
        return one_of(members)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(member) for member in members if member is not types.NoneType)
    if origin is tuple:
        return f"an array whose items are {' / '.join(describe(m) for m in members if m is not Ellipsis)}"
    if hasattr(hint, "from_config_text"):
        return f"a string that reads as a {hint.__name__}"
    return "a table"
