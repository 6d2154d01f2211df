"""Plain values → config dataclasses, converted and checked by the types of the fields (see `settings`)."""

import dataclasses
import json
import re
import tomllib
import types
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from thresher._internal.registry import did_you_mean, import_modules, why_missing
from thresher.errors import ConfigError, NotRegisteredError

_TYPES = {bool: "true or false", int: "an integer", float: "a number", str: "a string", Path: "a path (a string)"}
_KINDS = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "an array", dict: "a table"}


class KeyProblemError(Exception):
    """What is wrong with one key. Callers turn it into a `ConfigError` (`kind`) that names the file and line."""

    def __init__(self, key: str, message: str, kind: type[ConfigError] = ConfigError) -> None:
        super().__init__(message)
        self.key, self.kind = key, kind


class OverrideText(str):
    """A value as typed on a command line, converted by the type of the field it is meant for."""


def build_config(cls: Any, mapping: Mapping[str, Any], *, key: str = "", default: Any = None) -> Any:
    """Build a `cls` (or the variant that the tag names) from `mapping`; absent keys keep the values of `default`."""
    cls, mapping = _choose_variant(cls, mapping, key, default)
    hints = _type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    values = _values_to_keep(default, cls)
    _import_first(cls, hints, mapping)
    for name, value in mapping.items():
        inner = _join_keys(key, name)
        if name not in fields:
            hint = did_you_mean(name, fields, _join_keys(key, "")) or f"; known here: {', '.join(fields) or 'nothing'}"
            raise KeyProblemError(inner, f"unknown key {inner!r}{hint}")
        values[name] = _convert(hints[name], value, inner, values.get(name, field_default(fields[name])))
    for name, field in fields.items():
        if name not in values and field.default is field.default_factory is dataclasses.MISSING:
            expected = describe_type(hints[name])
            raise KeyProblemError(key, f"missing key {_join_keys(key, name)!r}, expected {expected}")
    try:
        return cls(**{name: value for name, value in values.items() if name in fields})
    except ConfigError as error:  # raised by __post_init__
        message = str(error)
        names_key = not key or message.startswith(f"{key}.")
        raise KeyProblemError(key, message if names_key else f"[{key}] {message}", type(error)) from error


def variant_name(config: Any) -> str:
    """The name under which the class of a tagged config is registered."""
    for name, variant in type(config).config_variants().items():
        if variant is type(config):
            return cast(str, name)
    raise ConfigError(f"{type(config).__qualname__} is not registered. Use register_embedding or register_model.")


def field_default(field: "dataclasses.Field[Any]") -> Any:
    """The default value of a dataclass field; None if it has none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _choose_variant(cls: Any, mapping: Mapping[str, Any], key: str, default: Any) -> tuple[Any, Mapping[str, Any]]:
    """The class that the tag names, and the mapping without the tag."""
    if not hasattr(cls, "config_variants"):
        return cls, mapping
    tag: str = cls.config_tag
    tag_key = _join_keys(key, tag)
    allowed = {name: variant for name, variant in cls.config_variants().items() if issubclass(variant, cls)}
    if tag not in mapping:
        chosen = type(default) if default is not None else cls
        if chosen not in allowed.values():
            raise KeyProblemError(key, f"missing key {tag_key!r}, expected {_list_choices(allowed)}")
        return chosen, mapping
    name = parse_value(mapping[tag]) if isinstance(mapping[tag], OverrideText) else mapping[tag]
    if not isinstance(name, str) or name not in allowed:
        hint = why_missing(name) or did_you_mean(name, allowed)
        found = f"expected {_list_choices(allowed)}, got {_describe_value(name)}"
        raise KeyProblemError(tag_key, f"{tag_key}: {found}{hint}", NotRegisteredError)
    return allowed[name], {other: value for other, value in mapping.items() if other != tag}


def _import_first(cls: Any, hints: Mapping[str, Any], mapping: Mapping[str, Any]) -> None:
    """Import the modules under the key that `config_imports` names: they may register what other keys name."""
    name: str | None = getattr(cls, "config_imports", None)
    if name is not None and name in mapping:
        try:
            import_modules(_convert(hints[name], mapping[name], name, None))
        except ConfigError as error:
            raise KeyProblemError(name, f"{name}: {error}", type(error)) from error


def _values_to_keep(default: Any, cls: Any) -> dict[str, Any]:
    """The values of `default` for a new `cls`; of another variant, only those changed from its defaults."""
    if default is None:
        return {}
    values = {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
    if type(default) is cls:
        return values
    defaults = {field.name: field_default(field) for field in dataclasses.fields(default)}
    return {name: value for name, value in values.items() if value != defaults[name]}


def _convert(hint: Any, value: Any, key: str, default: Any) -> Any:
    """Convert `value` to the type `hint`, or raise a `KeyProblemError`."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(hint, value, key, default)
    if origin is tuple:
        return _convert_tuple(hint, value, key)
    is_config = dataclasses.is_dataclass(hint) and not hasattr(hint, "from_config_text")
    if not is_config and not (isinstance(origin, type) and issubclass(origin, Mapping)):
        return _convert_scalar(hint, value, key)
    if isinstance(value, OverrideText):
        value = parse_value(value)
    if not isinstance(value, Mapping):
        raise _wrong_type(hint, value, key)
    if is_config:
        return build_config(hint, value, key=key, default=default if isinstance(default, cast(type, hint)) else None)
    item = get_args(hint)[1]
    overriding = any(isinstance(each, OverrideText) for each in value.values())
    kept = dict(default) if overriding and isinstance(default, Mapping) else {}
    return kept | {name: _convert(item, each, _join_keys(key, name), kept.get(name)) for name, each in value.items()}


def _convert_scalar(hint: Any, value: Any, key: str) -> Any:
    is_text = hint in (str, Path) or hasattr(hint, "from_config_text")
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    if isinstance(value, OverrideText):
        parsed = parse_value(value)
        value = str(value) if (is_text and not isinstance(parsed, str)) or str(value) in choices else parsed
    if is_text and isinstance(value, str):
        if hint is str:
            return value
        try:
            return Path(value) if hint is Path else hint.from_config_text(value)
        except Exception as error:
            raise KeyProblemError(key, f"{key}: {error}") from error
    if choices:
        for choice in choices:
            if type(choice) is type(value) and choice == value:
                return choice
        raise _wrong_type(hint, value, key, did_you_mean(value, map(str, choices)))
    if hint is float and type(value) is int:
        return float(value)
    if hint in (bool, int, float) and type(value) is hint:
        return value
    if hint not in (bool, int, float) and not is_text:
        raise TypeError(f"{key}: config fields of type {hint!r} are not supported")
    raise _wrong_type(hint, value, key)


def _convert_union(hint: Any, value: Any, key: str, default: Any) -> Any:
    members = get_args(hint)
    if types.NoneType in members and isinstance(value, str) and value.lower() == "none":
        return None
    members = tuple(member for member in members if member is not types.NoneType)
    problems = []
    for member in members:
        try:
            return _convert(member, value, key, default)
        except KeyProblemError as problem:
            problems.append(problem)
    raise problems[0] if len(members) == 1 else _wrong_type(hint, value, key)


def _convert_tuple(hint: Any, value: Any, key: str) -> tuple[Any, ...]:
    members = get_args(hint)
    if isinstance(value, OverrideText):
        parts = [OverrideText(part.strip()) for part in value.split(",")] if value else []
        value = parse_value(value) if value.startswith("[") else parts
    if not isinstance(value, list | tuple):
        raise _wrong_type(hint, value, key)
    if len(members) == 2 and members[1] is Ellipsis:
        members = (members[0],) * len(value)
    if len(members) != len(value):
        raise KeyProblemError(key, f"{key}: expected an array of {len(members)}, got {len(value)} values")
    return tuple(
        _convert(member, item, f"{key}[{i}]", None) for i, (member, item) in enumerate(zip(members, value, strict=True))
    )


_type_hints = cache(get_type_hints)


def _join_keys(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _wrong_type(hint: Any, value: Any, key: str, suggestion: str = "") -> KeyProblemError:
    return KeyProblemError(key, f"{key}: expected {describe_type(hint)}, got {_describe_value(value)}{suggestion}")


def _list_choices(names: Iterable[Any]) -> str:
    return f"one of {', '.join(map(json.dumps, names))}"


def _describe_value(value: Any) -> str:
    kind = next((name for base, name in _KINDS.items() if isinstance(value, base)), None)
    return f"{value} ({type(value).__name__})" if kind is None else f"{format_value(value)} ({kind})"


def describe_type(hint: Any) -> str:
    if hint in _TYPES:
        return _TYPES[hint]
    origin, members = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _list_choices(members)
    if origin in (Union, types.UnionType):
        wider = {types.NoneType, int} if float in members else {types.NoneType}  # an integer is a number
        return " or ".join(describe_type(member) for member in members if member not in wider)
    if origin is tuple:
        return f"an array whose items are {' / '.join(describe_type(m) for m in members if m is not Ellipsis)}"
    if hasattr(hint, "from_config_text"):
        return f"a string that reads as a {hint.__name__}"
    return "a table"


def format_value(value: Any) -> str:
    """Write one value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):  # JSON escapes are valid in TOML, but TOML also requires DEL to be escaped
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(format_value, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{format_key(name)} = {format_value(item)}" for name, item in value.items()) + "}"
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


def format_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else format_value(name)
