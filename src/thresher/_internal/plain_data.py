"""Config dataclasses → plain values, as TOML and JSON hold them."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from thresher.errors import ConfigError

NONE_WORD = "none"
"""A setting that is absent where absence is not its default."""


def config_to_mapping(config: Any) -> dict[str, Any]:
    """The inverse of `config_from_mapping`: every setting, defaults included, and the tag of each tagged class."""
    mapping: dict[str, Any] = {}
    variants = variants_of(type(config))
    if variants is not None:
        names = [name for name, variant in variants.items() if variant is type(config)]
        if not names:
            raise ConfigError(f"{type(config).__qualname__} is not registered; config_variants() must name it")
        mapping[type(config).config_tag] = names[0]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, str) and value.lower() == NONE_WORD and default_of(field) is None:
            raise ConfigError(
                f"{field.name} is {value!r}, which in settings says that there is none; give it another name"
            )
        if value is not None:
            mapping[field.name] = to_plain(value)
        elif default_of(field) is not None:
            mapping[field.name] = NONE_WORD
    return mapping


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
    # a number of numpy, which is not imported for this
    return value.item() if type(value).__module__ == "numpy" and value.ndim == 0 else value


def variants_of(cls: Any) -> Mapping[str, type] | None:
    return cast("Mapping[str, type]", cls.config_variants()) if hasattr(cls, "config_variants") else None


def default_of(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default
