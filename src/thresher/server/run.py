"""Start the server: one process, or several workers on one socket."""

import os
import stat
from importlib import import_module
from pathlib import Path

from thresher._internal.extras import missing_extra
from thresher.errors import ConfigError
from thresher.server.config import ServerConfig
from thresher.server.metrics import remove_shared, share_metrics

KEEP_ALIVE_SECONDS = 65  # longer than the idle time of common proxies, so that they close connections, not the server


def run_server(config: ServerConfig) -> None:
    """Serve until a signal ends the process. Bundles are checked first, so that errors appear before workers start."""
    try:
        for package in ("starlette", "msgspec", "uvicorn"):
            import_module(package)
    except ImportError as error:
        raise missing_extra("the server", error.name, "serve") from error
    from thresher.serving.manifest import read_manifest

    for folder in config.bundles.values():
        read_manifest(Path(folder), verify=config.workers > 1)  # a single process verifies when it loads
    _remove_stale_socket(config.socket)
    config.to_environment()
    metrics = share_metrics() if config.workers > 1 else None
    try:
        _run(config)
    finally:
        if metrics is not None:
            remove_shared(metrics)


def _run(config: ServerConfig) -> None:
    import uvicorn

    uvicorn.run(
        "thresher.server.app:make_app",
        factory=True,
        host=config.host,
        port=config.port,
        uds=config.socket or None,
        workers=config.workers,
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(config.shutdown_seconds)),
    )


def _remove_stale_socket(path: str) -> None:
    """Remove the socket that an earlier server left behind. Anything else at this path is an error."""
    if not path or not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise ConfigError(f"{path} exists and is not a socket. Choose another path.")
    Path(path).unlink()
