"""Plain values → the typed fields of config dataclasses.

What each type may hold is told in `thresher._internal.toml_files`. Not here: files, command lines, TOML text.
"""

import dataclasses
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from thresher._internal.config_errors import (
    KeyProblemError,
    describe,
    did_you_mean,
    join_keys,
    one_of,
    show,
    unknown_key,
    wrong_type,
)
from thresher._internal.plain_data import NONE_WORD, default_of, variants_of
from thresher._internal.registry import why_missing
from thresher._internal.toml_text import read_value
from thresher.errors import ConfigError


class OverrideText(str):
    """A value as typed on a command line: read in the light of the type it is meant for."""


def build(cls: Any, mapping: Mapping[str, Any], key: str, default: Any) -> Any:
    """A `cls` (or the variant the tag names) with `mapping`'s values over those of `default`."""
    cls, mapping = _choose_variant(cls, mapping, key, default)
    hints = _hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    kept = _stated(default) if default is not None and type(default) is not cls else _all_values(default)
    values: dict[str, Any] = {}
    for name, value in mapping.items():
        if name not in fields:
            raise KeyProblemError(join_keys(key, name), unknown_key(key, name, fields))
        values[name] = _convert(hints[name], value, join_keys(key, name), kept.get(name, default_of(fields[name])))
    for name, field in fields.items():
        if name in values:
            continue
        if name in kept:
            values[name] = kept[name]
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise KeyProblemError(key, f"missing key {join_keys(key, name)!r}, expected {describe(hints[name])}")
    try:
        return cls(**values)
    except ConfigError as error:  # from __post_init__: say which table it speaks of
        told = str(error)
        named = not key or told.startswith(f"{key}.")  # the message says already where
        raise KeyProblemError(key, told if named else f"[{key}] {told}") from error


def _choose_variant(cls: Any, mapping: Mapping[str, Any], key: str, default: Any) -> tuple[Any, Mapping[str, Any]]:
    """Which class the tag names, and the mapping without the tag."""
    variants = variants_of(cls)
    if variants is None:
        return cls, mapping
    tag: str = cls.config_tag
    allowed = {name: variant for name, variant in variants.items() if issubclass(variant, cls)}
    if tag not in mapping:
        chosen = type(default) if default is not None else cls
        if chosen not in allowed.values():
            raise KeyProblemError(key, f"missing key {join_keys(key, tag)!r}, expected {one_of(allowed)}")
        return chosen, mapping
    name = mapping[tag]
    if not isinstance(name, str) or name not in allowed:
        hint = why_missing(name) or did_you_mean(name, allowed)
        raise KeyProblemError(
            join_keys(key, tag), f"{join_keys(key, tag)}: expected {one_of(allowed)}, got {show(name)}{hint}"
        )
    return allowed[name], {other: value for other, value in mapping.items() if other != tag}


def _convert(hint: Any, value: Any, key: str, default: Any) -> Any:
    """`value` as the type `hint`, or a `KeyProblemError` that says what was expected."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(hint, value, key, default)
    if dataclasses.is_dataclass(hint) and not hasattr(hint, "from_config_text"):
        if isinstance(value, OverrideText):
            value = read_value(value)
        if not isinstance(value, Mapping):
            raise wrong_type(hint, value, key)
        return build(hint, value, key, default if isinstance(default, cast(type, hint)) else None)
    if origin is tuple:
        return _convert_tuple(hint, value, key)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if isinstance(value, OverrideText):
            value = read_value(value)
        if not isinstance(value, Mapping):
            raise wrong_type(hint, value, key)
        item = get_args(hint)[1]
        overriding = any(isinstance(each, OverrideText) for each in value.values())
        kept = dict(default) if overriding and isinstance(default, Mapping) else {}
        return kept | {name: _convert(item, each, join_keys(key, name), kept.get(name)) for name, each in value.items()}
    return _convert_scalar(hint, value, key)


def _convert_scalar(hint: Any, value: Any, key: str) -> Any:
    wants_text = hint in (str, Path) or hasattr(hint, "from_config_text")
    if isinstance(value, OverrideText):
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        read = read_value(value)
        value = str(value) if (wants_text and not isinstance(read, str)) or str(value) in choices else read
    if wants_text and isinstance(value, str):
        if hint is str:
            return value
        try:
            return Path(value) if hint is Path else hint.from_config_text(value)
        except Exception as error:
            raise KeyProblemError(key, f"{key}: {error}") from error
    if get_origin(hint) is Literal:
        for choice in get_args(hint):
            if type(choice) is type(value) and choice == value:
                return choice
        meant = did_you_mean(value, map(str, get_args(hint)))
        raise KeyProblemError(key, f"{key}: expected {describe(hint)}, got {show(value)}{meant}")
    if hint is float and type(value) is int:
        return float(value)
    if hint in (bool, int, float) and type(value) is hint:
        return value
    if hint not in (bool, int, float, str, Path) and not wants_text:
        raise TypeError(f"{key}: config fields of type {hint!r} are not supported")
    raise wrong_type(hint, value, key)


def _convert_union(hint: Any, value: Any, key: str, default: Any) -> Any:
    members = get_args(hint)
    if types.NoneType in members and isinstance(value, str) and value.lower() == NONE_WORD:
        return None
    members = tuple(member for member in members if member is not types.NoneType)
    problems = []
    for member in members:
        try:
            return _convert(member, value, key, default)
        except KeyProblemError as problem:
            problems.append(problem)
    raise problems[0] if len(members) == 1 else wrong_type(hint, value, key)


def _convert_tuple(hint: Any, value: Any, key: str) -> tuple[Any, ...]:
    members = get_args(hint)
    if isinstance(value, OverrideText):
        bracketed = value.startswith("[")
        parts = [OverrideText(part.strip()) for part in value.split(",")] if value else []
        value = read_value(value) if bracketed else parts
    if not isinstance(value, list | tuple):
        raise wrong_type(hint, value, key)
    if len(members) == 2 and members[1] is Ellipsis:
        members = (members[0],) * len(value)
    if len(members) != len(value):
        raise KeyProblemError(key, f"{key}: expected an array of {len(members)}, got {len(value)} values")
    return tuple(
        _convert(member, item, f"{key}[{i}]", None) for i, (member, item) in enumerate(zip(members, value, strict=True))
    )


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _all_values(config: Any) -> dict[str, Any]:
    return {} if config is None else {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def _stated(config: Any) -> dict[str, Any]:
    """The values of another variant worth keeping when the tag changes: those that are not merely its defaults."""
    defaults = {field.name: default_of(field) for field in dataclasses.fields(config)}
    return {name: value for name, value in _all_values(config).items() if value != defaults[name]}
