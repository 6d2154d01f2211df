"""Settings: frozen dataclasses ↔ plain mappings ↔ TOML, one to one.

The type of a field decides which values its key may hold: `bool`, `int`, `float`, `str`, `Path`, `Literal`, tuples
(TOML arrays), `Mapping[str, T]` and nested dataclasses (tables), and unions of these. None is written as an absent key,
or as the word `"none"` if it is not the default. A base class with the ClassVar `config_tag` and the classmethod
`config_variants()` is resolved by that key (`method = "pep"`). A class with the classmethod `from_config_text(text)` is
written as one string, `str(value)`.

An absent key keeps its default, also inside a table. An unknown key is an error.
"""

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from thresher._internal.config_builder import KeyProblemError, OverrideText, build_config, field_default, variants_of
from thresher._internal.files import write_text
from thresher._internal.toml_text import find_line, format_document
from thresher.errors import ConfigError

T = TypeVar("T")


def config_from_mapping(cls: type[T], mapping: Mapping[str, Any], *, where: str = "config") -> T:
    """Build a config from plain nested dicts, as `tomllib` returns them.

    Args:
        cls: the dataclass, or the tagged base class of several.
        mapping: keys to values; absent keys keep their defaults.
        where: the source of the mapping for error messages, e.g. the file.
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{where}: expected a table of settings, found {type(mapping).__name__}")
    try:
        return cast(T, build_config(cls, mapping))
    except KeyProblemError as problem:
        raise ConfigError(f"{where}: {problem}") from None


def config_to_mapping(config: Any) -> dict[str, Any]:
    """The inverse of `config_from_mapping`: all settings, including defaults and the tag of each tagged class."""
    mapping: dict[str, Any] = {}
    variants = variants_of(type(config))
    if variants is not None:
        names = [name for name, variant in variants.items() if variant is type(config)]
        if not names:
            raise ConfigError(f"{type(config).__qualname__} is not registered. Return it from config_variants().")
        mapping[type(config).config_tag] = names[0]
    for field in dataclasses.fields(config):
        value, default = getattr(config, field.name), field_default(field)
        if isinstance(value, str) and value.lower() == "none" and default is None:
            raise ConfigError(f"{field.name} is {value!r}, which means None in settings. Use another name.")
        if value is not None:
            mapping[field.name] = _to_plain(value)
        elif default is not None:
            mapping[field.name] = "none"
    return mapping


def validate_config(config: T) -> T:
    """The config after a round trip through plain values: types are checked, numpy numbers and sets are converted."""
    return config_from_mapping(type(config), config_to_mapping(config), where=type(config).__name__)


def load_toml(cls: type[T], path: str | Path) -> T:
    """Read a config from a TOML file. Errors name the file, and the line if it is known."""
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
        return cast(T, build_config(cls, mapping))
    except KeyProblemError as problem:
        line = find_line(text, problem.key)
        raise ConfigError(f"{path}:{line}: {problem}" if line else f"{path}: {problem}") from None


def save_toml(config: Any, path: str | Path) -> None:
    """Write `to_toml(config)` to a file atomically."""
    write_text(Path(path), to_toml(config))


def to_toml(config: Any) -> str:
    """The config as TOML text. `config_from_mapping(cls, tomllib.loads(text))` returns an equal config."""
    return format_document(config_to_mapping(config))


def override(config: T, assignments: Iterable[str], *, where: str = "override") -> T:
    """Change settings by `"dotted.key=value"`, as given on a command line.

    Values are TOML, but strings need no quotes and arrays no brackets: `search.budgets=30k,2%`. If a tag changes
    (`model.name=deepfm`), settings that both variants have and that differ from their default are kept. The order of
    assignments matters only for repeated keys, where the last one is used.
    """
    changes: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        *tables, name = key.strip().split(".")
        if not equals or not name or not all(tables):
            form = "key=value, e.g. training.optimizer.learning_rate=0.01"
            raise ConfigError(f"{where}: {assignment!r} is not of the form {form}")
        table: Any = changes
        for outer in tables:
            table = table.setdefault(outer, {}) if isinstance(table, dict) else None
        if not isinstance(table, dict) or isinstance(table.get(name), dict):
            raise ConfigError(f"{where}: {key.strip()!r} is set both as a value and as a table")
        table[name] = OverrideText(value.strip())
    try:
        return cast(T, build_config(type(config), changes, default=config))
    except KeyProblemError as problem:
        raise ConfigError(f"{where}: {problem}") from None


def _to_plain(value: Any) -> Any:
    if hasattr(value, "from_config_text") or isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value):
        return config_to_mapping(value)
    if isinstance(value, Mapping):
        return {str(name): _to_plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_to_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(_to_plain, value))
    # numpy is not imported here, to keep loading light
    return value.item() if type(value).__module__ == "numpy" and value.ndim == 0 else value
