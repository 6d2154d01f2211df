"""The settings of the server, and their passage to worker processes."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from thresher.errors import ConfigError

VARIABLE = "THRESHER_SERVER"  # environment variable with the settings of the worker processes, as JSON
Engine = Literal["auto", "numpy", "torch"]


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Settings of the HTTP server."""

    bundles: Mapping[str, str]
    """Bundle folders by the name that requests use."""
    default: str = ""
    """The bundle of requests that name none. Empty: the first one."""
    host: str = "127.0.0.1"
    """Address to listen on. The server has no authentication: put a proxy in front before you open it."""
    port: int = 8000
    """Port to listen on."""
    socket: str = ""
    """Unix socket to listen on instead of host and port."""
    workers: int = 1
    """Processes. Each loads every bundle. They share its memory only if `reload_seconds` is 0."""
    engine: Engine = "auto"
    """`numpy` needs no torch; `torch` supports every model; `auto` uses numpy where it supports the model."""
    max_rows: int = 10_000
    """Most rows of one request; more is refused with status 413."""
    max_body_bytes: int = 16 * 2**20
    """Largest body of one request; a larger one is refused with status 413."""
    max_concurrent: int = 64
    """Predictions in progress or waiting in one process; more are refused with status 503."""
    body_seconds: float = 30.0
    """Seconds a client may take to send its body; then status 408."""
    reload_seconds: float = 2.0
    """Seconds between two looks for changed bundles; 0 never reloads, and maps the files themselves, not a copy."""
    shutdown_seconds: float = 30.0
    """Seconds that requests in progress get to finish when the server stops."""
    access_log: bool = True
    """Write one JSON line for each request to stdout."""

    def __post_init__(self) -> None:
        if not self.bundles:
            raise ConfigError("the server has no bundle. Name at least one folder.")
        if self.default and self.default not in self.bundles:
            raise ConfigError(f"default is {self.default!r}; the bundles are {', '.join(self.bundles)}")
        if self.engine not in ("auto", "numpy", "torch"):
            raise ConfigError(f"engine is {self.engine!r}; use auto, numpy or torch")
        if not 0 <= self.port < 65536:
            raise ConfigError(f"port must be 0 to 65535, got {self.port}")
        for name in ("workers", "max_rows", "max_body_bytes", "max_concurrent"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("body_seconds", "shutdown_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)}")
        if not self.reload_seconds >= 0:
            raise ConfigError(f"reload_seconds must be at least 0, got {self.reload_seconds}")

    @property
    def default_bundle(self) -> str:
        return self.default or next(iter(self.bundles))

    def to_environment(self) -> None:
        """Set the variable from which the workers read these settings."""
        os.environ[VARIABLE] = json.dumps(asdict(self) | {"bundles": dict(self.bundles)})

    @classmethod
    def from_environment(cls) -> "ServerConfig":
        if VARIABLE not in os.environ:
            raise ConfigError(f"the environment variable {VARIABLE} is not set. Start the server by `run_server`.")
        return cls(**json.loads(os.environ[VARIABLE]))


def parse_bundles(words: list[str]) -> dict[str, str]:
    """`FOLDER` or `NAME=FOLDER` → absolute folders by name; the name of a folder is its last part."""
    bundles: dict[str, str] = {}
    for word in words:
        name, separator, folder = word.partition("=")
        if not separator or "/" in name:  # a path may contain the character =
            name, folder = "", word
        path = Path(folder).absolute()  # not resolved: a symbolic link may be pointed at another bundle
        name = name or path.name
        if name in bundles:
            raise ConfigError(f"two bundles are called {name!r}. Write name=folder to give them different names.")
        bundles[name] = str(path)
    return bundles
