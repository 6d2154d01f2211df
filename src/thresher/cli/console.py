"""What the command line says, and where: results on stdout, everything else on stderr; errors in one message.

`--json` makes stdout a single JSON document. Colour and bars appear only on a terminal.
"""

import json
import shlex
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import typer
from rich.console import Console

from thresher.errors import ThresherError
from thresher.report.frontier import Frontier
from thresher.report.tables import plain_table, rich_table

P = ParamSpec("P")
R = TypeVar("R")

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130


def stdout() -> Console:
    return Console(highlight=False, soft_wrap=True)


def stderr() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """A remark for the person at the terminal."""
    stderr().print(text, markup=False)


def show_json(content: Any) -> None:
    """The one JSON document of `--json`."""
    print(json.dumps(content, indent=2, ensure_ascii=False))  # noqa: T201


def show_frontier(frontier: Frontier, *, title: str | None = None) -> None:
    """The table of results; plain where it is piped or the terminal is narrow."""
    console = stdout()
    if console.is_terminal and console.width >= 80:
        Console(highlight=False).print(rich_table(frontier, title=title))
    else:
        console.print(*([title] if title else []), plain_table(frontier), sep="\n", markup=False)


def told_plainly(*, resumable: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator of a command: a `ThresherError` is one message and exit code 2, Ctrl-C exit code 130.

    Args:
        resumable: whether `--resume` goes on where an interruption stopped; then it is said how.
    """

    def decorate(command: Callable[P, R]) -> Callable[P, R]:
        @wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return command(*args, **kwargs)
            except ThresherError as error:
                _say_error(str(error))
            except BrokenPipeError:
                raise
            except OSError as error:
                place = f"{error.filename}: " if error.filename else ""
                _say_error(f"{place}{error.strerror or error}; check the path, its permissions and the free space")
            except KeyboardInterrupt:
                say(f"\nInterrupted. {_resume_hint()}" if resumable else "\nInterrupted.")
                raise typer.Exit(EXIT_INTERRUPTED) from None
            raise typer.Exit(EXIT_USER_ERROR)

        return run

    return decorate


def _say_error(message: str) -> None:
    console = stderr()
    console.print("[bold red]error:[/]", end=" ")
    console.print(message, markup=False)


def _resume_hint() -> str:
    words = ["thresher", *sys.argv[1:]]
    words += [] if "--resume" in words else ["--resume"]
    return f"Nothing is lost; go on with:\n  {shlex.join(words)}"
