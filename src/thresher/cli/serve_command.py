"""serve: bundles over HTTP."""

from typing import Annotated

import typer

from thresher._internal.registry import import_modules
from thresher._internal.text import printable
from thresher.cli.console import handle_errors
from thresher.cli.options import Imports, Quiet, option
from thresher.errors import ConfigError
from thresher.server.config import Engine, ServerConfig, parse_bundles

LIMITS = "Limits"
BUNDLES_HELP = "Folders of bundles, each FOLDER or NAME=FOLDER. Requests choose one by ?bundle=NAME."
WORKERS_HELP = "Processes. Each loads every bundle; they share memory if --reload-seconds is 0."
ENGINE_HELP = "numpy (needs no torch), torch (every model), or auto: numpy where it supports the model."
RELOAD_HELP = "Look for changed bundles every N seconds; 0 never reloads."


@handle_errors()
def serve(
    bundles: Annotated[list[str], typer.Argument(metavar="BUNDLE...", help=BUNDLES_HELP)],
    default: Annotated[str, option("NAME", "The bundle of requests that name none; default: the first.")] = "",
    host: Annotated[str, option("HOST", "Address to listen on.", show_default=True)] = "127.0.0.1",
    port: Annotated[int, option("PORT", "Port to listen on.", show_default=True)] = 8000,
    socket: Annotated[str, option("PATH", "Unix socket to listen on instead.")] = "",
    workers: Annotated[int, option("N", WORKERS_HELP, show_default=True)] = 1,
    engine: Annotated[str, option("ENGINE", ENGINE_HELP, show_default=True)] = "auto",
    reload_seconds: Annotated[float, option("N", RELOAD_HELP, show_default=True)] = 2.0,
    max_rows: Annotated[int, option("N", "Rows of a request.", panel=LIMITS, show_default=True)] = 10_000,
    max_body_mb: Annotated[float, option("MB", "Size of a body.", panel=LIMITS, show_default=True)] = 16,
    max_concurrent: Annotated[
        int, option("N", "Predictions at once in a process.", panel=LIMITS, show_default=True)
    ] = 64,
    shutdown_seconds: Annotated[
        float, option("N", "Time to finish requests at the end.", panel=LIMITS, show_default=True)
    ] = 30.0,
    access_log: Annotated[bool, typer.Option(help="One JSON line for each request on stdout.")] = True,
    imports: Imports = None,
    quiet: Quiet = False,
) -> None:
    """Serve bundles over HTTP: POST /predict and /rank, a form at /, the API at /docs, metrics at /metrics.

    Changed bundles are reloaded while requests are answered. There is no authentication: only this machine is served
    unless --host is set.
    """
    if imports and workers > 1:
        raise ConfigError("modules of yours are imported in one process only. Use --workers 1 with --import.")
    import_modules(imports or ())
    engines: dict[str, Engine] = {"auto": "auto", "numpy": "numpy", "torch": "torch"}
    if engine not in engines:
        raise ConfigError(f"--engine {engine}: use auto, numpy or torch.")
    config = ServerConfig(
        bundles=parse_bundles(bundles),
        default=default,
        host=host,
        port=port,
        socket=socket,
        workers=workers,
        engine=engines[engine],
        reload_seconds=reload_seconds,
        max_rows=max_rows,
        max_body_bytes=int(max_body_mb * 2**20),
        max_concurrent=max_concurrent,
        shutdown_seconds=shutdown_seconds,
        access_log=access_log and not quiet,
    )
    from thresher.server.run import run_server, serve_instead

    if not quiet:
        where = f"unix socket {socket}" if socket else f"http://{host}:{port}"
        typer.echo(f"{printable(', '.join(config.bundles))} on {where}; Ctrl+C stops", err=True)  # without rich
    if imports:
        run_server(config)  # in this process, which has imported the modules
    else:
        serve_instead(config)
