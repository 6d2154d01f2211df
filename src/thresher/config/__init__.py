"""Settings: frozen dataclasses ↔ TOML, one to one. The machinery only; each stage keeps its own beside its code."""

from thresher.config.plain import config_to_mapping
from thresher.config.toml_files import config_from_mapping, load_toml, override, save_toml, to_toml

__all__ = ["config_from_mapping", "config_to_mapping", "load_toml", "override", "save_toml", "to_toml"]
