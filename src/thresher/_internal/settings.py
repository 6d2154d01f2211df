"""Settings: frozen dataclasses ↔ TOML, one to one. The machinery only; each stage keeps its own beside its code."""

from typing import TypeVar

from thresher._internal.plain_data import config_to_mapping
from thresher._internal.toml_files import config_from_mapping, load_toml, override, save_toml, to_toml

__all__ = [
    "config_from_mapping",
    "config_to_mapping",
    "load_toml",
    "override",
    "save_toml",
    "to_toml",
    "validate_config",
]

ConfigT = TypeVar("ConfigT")


def validate_config(config: ConfigT) -> ConfigT:
    """The same settings as a TOML file would give them: values of the wrong kind are told, paths are texts."""
    return config_from_mapping(type(config), config_to_mapping(config), where=type(config).__name__)
