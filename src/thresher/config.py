"""Frozen dataclasses ↔ TOML, one to one: the machinery only; each stage keeps its own settings beside its code.

What a key may hold follows from the field's type: `bool`, `int`, `float`, `str`, `Path`, `Literal`, tuples (TOML
arrays), `Mapping[str, T]` and nested dataclasses (tables), unions of these. `X | None` is the absent key, or the word
`"none"` where absence means another default. A base class with the ClassVar `config_tag` and the classmethod
`config_variants()` is resolved by that key (`method = "pep"`). A class with the classmethod `from_config_text(text)` is
written as one string, `str(value)`.

What is not said stays as the default has it, also inside a table. Unknown keys are errors, never ignored.
"""

import dataclasses
import json
import tomllib
import types
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from thresher.errors import ConfigError
from thresher.files import write_text
from thresher.toml_text import format_document, format_value, line_of, read_value

T = TypeVar("T")
NONE_WORD = "none"


class _KeyProblemError(Exception):
    """What is wrong with one key; becomes a `ConfigError` once file and line are known."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class _OverrideText(str):
    """A value as typed on a command line: read in the light of the type it is meant for."""


def config_from_mapping(cls: type[T], mapping: Mapping[str, Any], *, where: str = "config") -> T:
    """Build a config from plain nested dicts, as `tomllib` gives them.

    Args:
        cls: the dataclass, or the tagged base class of several.
        mapping: keys to values; what is absent keeps its default.
        where: what the error message calls the place, e.g. the file.
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{where}: expected a table of settings, found {type(mapping).__name__}")
    try:
        return cast(T, _build(cls, mapping, "", None))
    except _KeyProblemError as problem:
        raise ConfigError(f"{where}: {problem}") from None


def config_to_mapping(config: Any) -> dict[str, Any]:
    """The inverse of `config_from_mapping`: every setting, defaults included, and the tag of each tagged class."""
    mapping: dict[str, Any] = {}
    variants = _variants(type(config))
    if variants is not None:
        names = [name for name, variant in variants.items() if variant is type(config)]
        if not names:
            raise ConfigError(f"{type(config).__qualname__} is not registered; config_variants() must name it")
        mapping[type(config).config_tag] = names[0]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value is not None:
            mapping[field.name] = _to_plain(value)
        elif _default(field) is not None:
            mapping[field.name] = NONE_WORD
    return mapping


def load_toml(cls: type[T], path: str | Path) -> T:
    """Read a config from a TOML file; errors name the file, and the line where it is known."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        mapping = tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such config file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as a UTF-8 text file ({error})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    try:
        return cast(T, _build(cls, mapping, "", None))
    except _KeyProblemError as problem:
        line = line_of(text, problem.key)
        raise ConfigError(f"{path}:{line}: {problem}" if line else f"{path}: {problem}") from None


def save_toml(config: Any, path: str | Path) -> None:
    """Write `to_toml(config)` to a file, whole or not at all."""
    write_text(Path(path), to_toml(config))


def to_toml(config: Any) -> str:
    """The config as TOML text; `tomllib` and `config_from_mapping` give the equal config back."""
    return format_document(config_to_mapping(config))


def override(config: T, assignments: Iterable[str], *, where: str = "--set") -> T:
    """Change settings by `"dotted.key=value"`, as from a command line.

    Values are written as in TOML, but strings need no quotes and arrays no brackets: `search.budgets=30k,2%`.
    Changing a tag (`model.name=deepfm`) keeps what both variants have and the old one had changed from its default.
    The order of assignments does not matter, but for repeated keys: there the last one counts.
    """
    changes: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        path = key.strip().split(".")
        if not equals or not all(path):
            raise ConfigError(f"{where}: {assignment!r} is not of the form key=value, e.g. training.learning_rate=0.01")
        table = changes
        for name in path[:-1]:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{where}: {key.strip()!r} is set both as a value and as a table")
        if isinstance(table.get(path[-1]), dict):
            raise ConfigError(f"{where}: {key.strip()!r} is set both as a value and as a table")
        table[path[-1]] = _OverrideText(value.strip())
    try:
        return cast(T, _build(type(config), changes, "", config))
    except _KeyProblemError as problem:
        raise ConfigError(f"{where}: {problem}") from None


# --- mapping → dataclass ---


def _build(cls: Any, mapping: Mapping[str, Any], key: str, default: Any) -> Any:
    """A `cls` (or the variant the tag names) with `mapping`'s values over those of `default`."""
    cls, mapping = _choose_variant(cls, mapping, key, default)
    hints = _hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    kept = _stated(default) if default is not None and type(default) is not cls else _all_values(default)
    values: dict[str, Any] = {}
    for name, value in mapping.items():
        if name not in fields:
            raise _KeyProblemError(_join(key, name), _unknown(key, name, fields))
        values[name] = _convert(hints[name], value, _join(key, name), kept.get(name, _default(fields[name])))
    for name, field in fields.items():
        if name in values:
            continue
        if name in kept:
            values[name] = kept[name]
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _KeyProblemError(key, f"missing key {_join(key, name)!r}, expected {_describe(hints[name])}")
    try:
        return cls(**values)
    except ConfigError as error:  # from __post_init__: say which table it speaks of
        raise _KeyProblemError(key, f"[{key}] {error}" if key else str(error)) from error


def _choose_variant(cls: Any, mapping: Mapping[str, Any], key: str, default: Any) -> tuple[Any, Mapping[str, Any]]:
    """Which class the tag names, and the mapping without the tag."""
    variants = _variants(cls)
    if variants is None:
        return cls, mapping
    tag: str = cls.config_tag
    allowed = {name: variant for name, variant in variants.items() if issubclass(variant, cls)}
    if tag not in mapping:
        chosen = type(default) if default is not None else cls
        if chosen not in allowed.values():
            raise _KeyProblemError(key, f"missing key {_join(key, tag)!r}, expected {_one_of(allowed)}")
        return chosen, mapping
    name = mapping[tag]
    if not isinstance(name, str) or name not in allowed:
        raise _KeyProblemError(
            _join(key, tag),
            f"{_join(key, tag)}: expected {_one_of(allowed)}, got {_show(name)}{_nearest(name, allowed)}",
        )
    return allowed[name], {other: value for other, value in mapping.items() if other != tag}


def _convert(hint: Any, value: Any, key: str, default: Any) -> Any:
    """`value` as the type `hint`, or a `_KeyProblemError` that says what was expected."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(hint, value, key, default)
    if dataclasses.is_dataclass(hint) and not hasattr(hint, "from_config_text"):
        if isinstance(value, _OverrideText):
            value = read_value(value)
        if not isinstance(value, Mapping):
            raise _wrong_type(hint, value, key)
        return _build(hint, value, key, default if isinstance(default, cast(type, hint)) else None)
    if origin is tuple:
        return _convert_tuple(hint, value, key)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if isinstance(value, _OverrideText):
            value = read_value(value)
        if not isinstance(value, Mapping):
            raise _wrong_type(hint, value, key)
        item = get_args(hint)[1]
        overriding = any(isinstance(each, _OverrideText) for each in value.values())
        kept = dict(default) if overriding and isinstance(default, Mapping) else {}
        return kept | {name: _convert(item, each, _join(key, name), kept.get(name)) for name, each in value.items()}
    return _convert_scalar(hint, value, key)


def _convert_scalar(hint: Any, value: Any, key: str) -> Any:
    wants_text = hint in (str, Path) or hasattr(hint, "from_config_text")
    if isinstance(value, _OverrideText):
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        read = read_value(value)
        value = str(value) if (wants_text and not isinstance(read, str)) or str(value) in choices else read
    if wants_text and isinstance(value, str):
        if hint is str:
            return value
        try:
            return Path(value) if hint is Path else hint.from_config_text(value)
        except Exception as error:
            raise _KeyProblemError(key, f"{key}: {error}") from error
    if get_origin(hint) is Literal:
        for choice in get_args(hint):
            if type(choice) is type(value) and choice == value:
                return choice
        nearest = _nearest(value, map(str, get_args(hint)))
        raise _KeyProblemError(key, f"{key}: expected {_describe(hint)}, got {_show(value)}{nearest}")
    if hint is float and type(value) is int:
        return float(value)
    if hint in (bool, int, float) and type(value) is hint:
        return value
    if hint not in (bool, int, float, str, Path) and not wants_text:
        raise TypeError(f"{key}: config fields of type {hint!r} are not supported")
    raise _wrong_type(hint, value, key)


def _convert_union(hint: Any, value: Any, key: str, default: Any) -> Any:
    members = get_args(hint)
    if types.NoneType in members and isinstance(value, str) and value.lower() == NONE_WORD:
        return None
    members = tuple(member for member in members if member is not types.NoneType)
    problems = []
    for member in members:
        try:
            return _convert(member, value, key, default)
        except _KeyProblemError as problem:
            problems.append(problem)
    raise problems[0] if len(members) == 1 else _wrong_type(hint, value, key)


def _convert_tuple(hint: Any, value: Any, key: str) -> tuple[Any, ...]:
    members = get_args(hint)
    if isinstance(value, _OverrideText):
        bracketed = value.startswith("[")
        parts = [_OverrideText(part.strip()) for part in value.split(",")] if value else []
        value = read_value(value) if bracketed else parts
    if not isinstance(value, list | tuple):
        raise _wrong_type(hint, value, key)
    if len(members) == 2 and members[1] is Ellipsis:
        members = (members[0],) * len(value)
    if len(members) != len(value):
        raise _KeyProblemError(key, f"{key}: expected an array of {len(members)}, got {len(value)} values")
    return tuple(
        _convert(member, item, f"{key}[{i}]", None) for i, (member, item) in enumerate(zip(members, value, strict=True))
    )


# --- dataclass → mapping ---


def _to_plain(value: Any) -> Any:
    if hasattr(value, "from_config_text") or isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value):
        return config_to_mapping(value)
    if isinstance(value, Mapping):
        return {str(name): _to_plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_to_plain(item) for item in value]
    return value


# --- small helpers ---


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _variants(cls: Any) -> Mapping[str, type] | None:
    return cast("Mapping[str, type]", cls.config_variants()) if hasattr(cls, "config_variants") else None


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _all_values(config: Any) -> dict[str, Any]:
    return {} if config is None else {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def _stated(config: Any) -> dict[str, Any]:
    """The values of another variant worth keeping when the tag changes: those that are not merely its defaults."""
    defaults = {field.name: _default(field) for field in dataclasses.fields(config)}
    return {name: value for name, value in _all_values(config).items() if value != defaults[name]}


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _unknown(key: str, name: str, known: Iterable[str]) -> str:
    nearest = get_close_matches(name, list(known), n=1)
    hint = f"did you mean {_join(key, nearest[0])!r}?" if nearest else f"known here: {', '.join(known) or 'nothing'}"
    return f"unknown key {_join(key, name)!r}; {hint}"


def _nearest(name: Any, known: Iterable[str]) -> str:
    nearest = get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def _one_of(names: Iterable[Any]) -> str:
    return f"one of {', '.join(json.dumps(name) for name in names)}"


def _wrong_type(hint: Any, value: Any, key: str) -> _KeyProblemError:
    return _KeyProblemError(key, f"{key}: expected {_describe(hint)}, got {_show(value)}")


def _show(value: Any) -> str:
    kinds = {
        bool: "a boolean",
        int: "an integer",
        float: "a number",
        str: "a string",
        list: "an array",
        dict: "a table",
    }
    kind = next((name for base, name in kinds.items() if isinstance(value, base)), type(value).__name__)
    return f"{format_value(_to_plain(value))} ({kind})" if kind in kinds.values() else f"{value} ({kind})"


def _describe(hint: Any) -> str:
    names = {bool: "true or false", int: "an integer", float: "a number", str: "a string", Path: "a path (a string)"}
    if hint in names:
        return names[hint]
    origin, members = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _one_of(members)
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(member) for member in members if member is not types.NoneType)
    if origin is tuple:
        return f"an array whose items are {' / '.join(_describe(m) for m in members if m is not Ellipsis)}"
    if hasattr(hint, "from_config_text"):
        return f"a string that reads as a {hint.__name__}"
    return "a table"
