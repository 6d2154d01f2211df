"""Start the server: one process, or several workers on one socket.

`serve_instead` replaces the process of the command line, whose libraries take 10 MB that a server does not need.
"""

import os
import stat
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from thresher._internal.extras import missing_extra
from thresher._internal.text import printable
from thresher.errors import ConfigError, ThresherError
from thresher.server.config import ServerConfig
from thresher.server.metrics import remove_shared, share_metrics

KEEP_ALIVE_SECONDS = 65  # longer than the idle time of common proxies, so that they close connections, not the server


PACKAGES = ("starlette", "msgspec", "uvicorn")
PROGRAM = "import sys; sys.path[:] = {paths!r}; from thresher.server.run import main; sys.exit(main())"


def run_server(config: ServerConfig) -> None:
    """Serve until a signal ends the process. Bundles are checked first, so that errors appear before workers start."""
    try:
        for package in PACKAGES:
            import_module(package)
    except ImportError as error:  # also of a package that one of them needs
        raise missing_extra("the server", error.name, "serve") from error
    _check(config, verify=config.workers > 1)  # a single process verifies when it loads
    config.to_environment()
    metrics = share_metrics() if config.workers > 1 else None
    try:
        _run(config)
    finally:
        if metrics is not None:
            remove_shared(metrics)


def serve_instead(config: ServerConfig) -> None:
    """Check the bundles, and replace this process by a server. Windows cannot: there the server runs inside."""
    if os.name != "posix":
        run_server(config)
        return
    _check(config, verify=True)
    config.to_environment()
    program = PROGRAM.format(paths=sys.path)
    os.execv(sys.executable, [sys.executable, *_interpreter_options(), "-c", program])


def main() -> int:
    """The replaced process: serve what the environment says; returns the exit code."""
    try:
        run_server(ServerConfig.from_environment())
    except ThresherError as error:
        sys.stderr.write(f"error: {printable(str(error))}\n")
        return 2
    except KeyboardInterrupt:  # uvicorn has ended the requests in progress
        return 130
    return 0


def _interpreter_options() -> list[str]:
    return [f"-W{option}" for option in sys.warnoptions]


def _check(config: ServerConfig, *, verify: bool) -> None:
    """Raise if a package is missing, if a bundle is damaged, or if the path of the socket is taken."""
    for package in PACKAGES:  # not imported here: this process may be replaced
        if find_spec(package) is None:
            raise missing_extra("the server", package, "serve")
    from thresher.serving.manifest import read_manifest

    for folder in config.bundles.values():
        read_manifest(Path(folder), verify=verify)
    _remove_stale_socket(config.socket)


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
