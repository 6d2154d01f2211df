"""Frozen dataclasses ↔ TOML, one to one: the machinery only; each stage keeps its own settings beside its code.

What a key may hold follows from the field's type: `bool`, `int`, `float`, `str`, `Path`, `Literal`, tuples (TOML
arrays), `Mapping[str, T]` and nested dataclasses (tables), unions of these. `X | None` is the absent key, or the word
`"none"` where absence means another default. A base class with the ClassVar `config_tag` and the classmethod
`config_variants()` is resolved by that key (`method = "pep"`). A class with the classmethod `from_config_text(text)` is
written as one string, `str(value)`.

What is not said stays as the default has it, also inside a table. Unknown keys are errors, never ignored.
"""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from thresher._internal.config_errors import KeyProblemError
from thresher._internal.config_values import OverrideText, build
from thresher._internal.files import write_text
from thresher._internal.plain_data import config_to_mapping
from thresher._internal.toml_text import format_document, line_of
from thresher.errors import ConfigError

T = TypeVar("T")


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
        return cast(T, build(cls, mapping, "", None))
    except KeyProblemError as problem:
        raise ConfigError(f"{where}: {problem}") from None


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
        return cast(T, build(cls, mapping, "", None))
    except KeyProblemError as problem:
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
            form = "key=value, e.g. training.optimizer.learning_rate=0.01"
            raise ConfigError(f"{where}: {assignment!r} is not of the form {form}")
        table = changes
        for name in path[:-1]:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{where}: {key.strip()!r} is set both as a value and as a table")
        if isinstance(table.get(path[-1]), dict):
            raise ConfigError(f"{where}: {key.strip()!r} is set both as a value and as a table")
        table[path[-1]] = OverrideText(value.strip())
    try:
        return cast(T, build(type(config), changes, "", config))
    except KeyProblemError as problem:
        raise ConfigError(f"{where}: {problem}") from None
