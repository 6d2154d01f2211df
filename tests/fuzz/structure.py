"""Mutations of structured files that still parse: values of JSON, of the headers of safetensors, and of TOML."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

HOSTILE: list[Any] = [
    None, True, False, -1, 0, 1, 255, 2**31, 2**63, 10**30, 0.5, -1e308, float("nan"), "", "nul\x00", "../../x",
    "\ud800", "/dev/zero", "x" * 300, "x" * 100_000, [], {}, [[]], {"": 1}, [0] * 1000, "\x1b[2J",
]  # fmt: skip
TOML_VALUES = ["-1", "0", "1e999", "9" * 60, '""', "[]", "{}", "true", "nan", '"x\\u001b[2J"', "[" * 80, "1979-05-27"]


def change_structure(content: bytes, chance: random.Random) -> bytes | None:
    """The file with one value changed, removed, repeated or nested; None if it is neither JSON nor safetensors."""
    if content[:1] == b"{":
        changed = _change_json(content, chance)
        return changed and changed + b"\n"
    length = int.from_bytes(content[:8], "little")
    if 2 <= length <= len(content) - 8 and content[8:9] == b"{":
        header = _change_json(content[8 : 8 + length], chance)
        return header and len(header).to_bytes(8, "little") + header + content[8 + length :]
    return None


def change_toml(content: bytes, chance: random.Random) -> bytes:
    """One setting with another value, a line twice or in another order, or a setting nested deeply."""
    lines = content.decode().splitlines()
    at = chance.randrange(len(lines))
    match chance.randrange(4):
        case 0:
            lines[at : at + 1] = [lines[at], lines[at]]
        case 1:
            other = chance.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case 2:
            lines[at] = "deep = " + "[" * 3000 + "]" * 3000
        case _:
            key, equals, _ = lines[at].partition("=")
            lines[at] = f"{key}{equals} {chance.choice(TOML_VALUES)}"
    return "\n".join(lines).encode()


def _change_json(content: bytes, chance: random.Random) -> bytes | None:
    try:
        document = json.loads(content)
    except ValueError:
        return None
    places = list(_places(document))
    if not places:
        return None
    parent, key = chance.choice(places)
    match chance.randrange(6):
        case 0 if isinstance(parent, dict):
            del parent[key]
        case 1:
            other_parent, other_key = chance.choice(places)
            parent[key] = copy.deepcopy(other_parent[other_key])
        case 2 if isinstance(parent[key], int | float):
            parent[key] += chance.choice([-1, 1, 7, 2**40])
        case 3 if isinstance(parent, list):
            parent[:] = parent * chance.choice([0, 2, 1000])
        case 4:
            nested: Any = 0
            for _ in range(chance.choice([5, 200, 900])):
                nested = [nested]
            parent[key] = nested
        case _:
            parent[key] = chance.choice(HOSTILE)
    try:
        return json.dumps(document).encode()
    except (RecursionError, ValueError):
        return None


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value of a document, as its container and its key there."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])
