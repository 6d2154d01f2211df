"""Settings: frozen dataclasses ↔ plain mappings ↔ TOML, one to one.

Fields may be `bool`, `int`, `float`, `str`, `Path`, `Literal`, tuples (TOML arrays), `Mapping[str, T]` and nested
dataclasses (tables), and unions of these. None is an absent key, or `"none"` if it is not the default. A base class
with the ClassVar `config_tag` and the classmethod `config_variants()` is resolved by that key (`method = "pep"`). A
class with the classmethod `from_config_text(text)` is one string. The ClassVar `config_imports` names the field whose
modules are imported before the other fields are read. Absent keys keep their defaults; unknown ones raise.
"""

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from thresher._internal.config_builder import (
    KeyProblemError,
    OverrideText,
    build_config,
    field_default,
    format_key,
    format_value,
    variant_name,
)
from thresher._internal.storage.documents import parse_toml, read_bytes
from thresher._internal.storage.files import write_text
from thresher.errors import ConfigError, FormatError

T = TypeVar("T")


def config_from_mapping(cls: type[T], mapping: Mapping[str, Any], *, where: str = "config") -> T:
    """Build a config from plain nested dicts; `where` names their source in errors."""
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{where}: expected a table of settings, found {type(mapping).__name__}")
    try:
        return cast(T, build_config(cls, mapping))
    except KeyProblemError as problem:
        raise problem.kind(f"{where}: {problem}") from None


def config_to_mapping(config: Any) -> dict[str, Any]:
    """The inverse of `config_from_mapping`: all settings, including defaults and the tag of each tagged class."""
    mapping: dict[str, Any] = {}
    if hasattr(config, "config_variants"):
        mapping[type(config).config_tag] = variant_name(config)
    for field in dataclasses.fields(config):
        value, default = getattr(config, field.name), field_default(field)
        if isinstance(value, str) and value.lower() == "none" and default is None:
            raise ConfigError(f"{field.name} is {value!r}, which means None in settings. Use another name.")
        if value is not None:
            mapping[field.name] = to_plain(value)
        elif default is not None:
            mapping[field.name] = "none"
    return mapping


def validate_config(config: T) -> T:
    """The config after a round trip through plain values: types are checked, numpy numbers and sets are converted."""
    return config_from_mapping(type(config), config_to_mapping(config), where=type(config).__name__)


def load_toml(cls: type[T], path: str | Path) -> T:
    """Read a config from a TOML file. Errors name the file, and the line if it is known."""
    path = Path(path)
    if not path.exists():
        raise ConfigError(f"{path}: no such config file")
    try:
        content = read_bytes(path)
        mapping = parse_toml(content, path)
    except FormatError as error:
        raise ConfigError(str(error)) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    try:
        return cast(T, build_config(cls, mapping))
    except KeyProblemError as problem:
        line = _find_line(content.decode(), problem.key)
        raise problem.kind(f"{path}:{line}: {problem}" if line else f"{path}: {problem}") from None


def save_toml(config: Any, path: str | Path) -> None:
    write_text(Path(path), to_toml(config))


def to_toml(config: Any) -> str:
    return format_document(config_to_mapping(config))


def override(config: T, assignments: Iterable[str], *, where: str = "override") -> T:
    """Change settings by `"dotted.key=value"`, as given on a command line.

    Values are TOML, but strings need no quotes and arrays no brackets: `search.budgets=30k,2%`. If a tag changes
    (`model.name=deepfm`), settings that both variants have and that differ from their default are kept. Of repeated
    keys the last is used.
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
        raise problem.kind(f"{where}: {problem}") from None


def to_plain(value: Any) -> Any:
    if hasattr(value, "from_config_text") or isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value):
        return config_to_mapping(value)
    if isinstance(value, Mapping):
        return {str(name): to_plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(to_plain, value))
    # numpy is not imported here, to keep loading light
    return value.item() if type(value).__module__ == "numpy" and value.ndim == 0 else value


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


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    """Append plain values, then tables, then arrays of tables: TOML reads any other order differently."""
    subtables = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    lists = {name: value for name, value in table.items() if isinstance(value, list) and value}
    arrays = {name: items for name, items in lists.items() if all(isinstance(item, Mapping) for item in items)}
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


def _split_key(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]


def _find_line(text: str, key: str) -> int | None:
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
