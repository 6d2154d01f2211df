"""Output of the command line: results on stdout, notes, progress and errors on stderr.

`--json` makes stdout a single JSON document. Colours and progress bars appear only on a terminal.
"""

import json
import logging
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import typer

from thresher._internal.text import format_bytes, printable
from thresher.errors import (
    DataError,
    FileFormatError,
    FolderError,
    LabelError,
    NotRegisteredError,
    RunExistsError,
    RunNotFoundError,
    SettingsConflictError,
    TableExistsError,
    ThresherError,
    UserCodeError,
    WriteError,
    WrongValueError,
)
from thresher.report.frontier import Frontier
from thresher.report.notes import SettingNames, fold_text, print_note, stderr
from thresher.report.remarks import remarks
from thresher.report.tables import plain_table, rich_table

if TYPE_CHECKING:  # rich takes 0.1 seconds and 7 MB, which a server does not need
    from rich.bar import Bar
    from rich.console import Console

    from thresher.report.progress_display import Display

P = ParamSpec("P")
R = TypeVar("R")
Details = dict[str, Any]

HINTS: Mapping[type, Mapping[str, str]] = {
    RunExistsError: {
        "resume": "--resume to continue it", "force": "--force to replace it", "out": "--out for another folder",
    },
    FolderError: {"out": "--out for another folder"},
    TableExistsError: {"force": "--force to overwrite it", "out": "--out for another folder"},
    WriteError: {"out": "--out for another folder"},
    LabelError: {"label": "--label for the label column", "positive": "--positive for the values that mean 1"},
    FileFormatError: {"settings": "--set data.encoding=latin-1 or --set 'data.delimiter=\";\"' for the file format"},
    WrongValueError: {"settings": "the column without a transform if its values are categories"},
    SettingsConflictError: {"settings": "--set KEY=VALUE to change a setting"},
    NotRegisteredError: {"imports": "--import MODULE if a module of yours registers it"},
    UserCodeError: {},
}  # fmt: skip
"""Options that fix an error, by its class and by the parameter of the command that takes the option."""
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
UNITS = (" %", " B", " KB", " MB", " GB")
MIN_WIDTH = 40  # of folded text
PIPE_WIDTH = 10_000  # tables in a pipe or a file are not folded
OPTIONS = SettingNames(label="--label", columns="--label, --fields, --drop", positive="--positive")


@dataclass(frozen=True)
class View:
    """Something that `show` can show: as data for `--json`, as text, and as a figure if there is one."""

    details: Details
    display: Callable[[], None]
    draw: Callable[[Path], Sequence[Path]] | None = None


def stdout() -> "Console":
    from rich.console import Console

    return Console(highlight=False, emoji=False, soft_wrap=True)


class _NoteHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_note(record.getMessage())


def print_logs() -> None:
    """Print the library's log messages as notes."""
    logger = logging.getLogger("thresher")
    if not any(isinstance(handler, _NoteHandler) for handler in logger.handlers):
        logger.addHandler(_NoteHandler())
        logger.setLevel(logging.INFO)


def print_json(content: Any) -> None:
    print(json.dumps(content, indent=2, ensure_ascii=False))


def print_frontier(frontier: Frontier, *, title: str | None = None) -> None:
    """Print the table of results; plain text in a pipe or on a narrow terminal."""
    from rich.console import Console

    console = stdout()
    if console.is_terminal and console.width >= 80:
        Console(highlight=False, emoji=False, markup=False).print(
            rich_table(frontier, title=title, width=console.width)
        )
    else:
        console.print(*([title] if title else []), plain_table(frontier), sep="\n", markup=False)
    for remark in remarks(frontier):
        console.print(fold_text(remark, console), markup=False)


def print_details(details: Mapping[str, Any]) -> None:
    """Print one line per entry, folded only on a terminal; lists of rows follow as tables."""
    console = stdout()
    single = {key: value for key, value in details.items() if not _is_rows(value)}
    indent = max(map(len, single)) + 2
    for key, value in single.items():
        text = printable(_format(key, value))
        lines = wrap(text, max(console.width - indent, 20)) if console.is_terminal else [text]
        for name, line in zip_longest([key.replace("_", " ")], lines, fillvalue=""):
            print(f"{name:<{indent}}{line}".rstrip())
    for key, rows in details.items():
        if key not in single:
            print()
            print_rows(rows)


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a table: numbers right, text left; on a terminal the last column is cut to the width."""
    from rich.bar import Bar
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for title, value in rows[0].items():
        is_number = isinstance(value, int | float) or str(value).endswith(UNITS)
        table.add_column(title.replace("_", " "), justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(value if isinstance(value, Bar) else printable(_format("", value)) for value in row.values()))
    width = None if stdout().is_terminal else PIPE_WIDTH
    console = Console(highlight=False, emoji=False, markup=False, width=width)
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def share_bar(share: float, width: int) -> "Bar":
    """A bar for a share 0…1; a share above 0 is always visible."""
    from rich.bar import Bar

    return Bar(1, 0, max(share, 1 / (8 * width)) if share > 0 else 0, width=width)


def handle_errors(
    *, resumable: bool = False, repeatable: bool = False, skip_flag: str | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator of a command: a `ThresherError` is printed and exits with code 2, Ctrl-C exits with code 130.

    After an interruption, `--resume` (resumable) or the same command (repeatable) continues. Errors about a row name
    `skip_flag`, the option that leaves out bad rows.
    """

    def decorate(command: Callable[P, R]) -> Callable[P, R]:
        @wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return command(*args, **kwargs)
            except ThresherError as error:
                _print_error(str(error), _hint(error, skip_flag, signature(command).parameters))
            except BrokenPipeError:
                raise
            except OSError as error:
                place = f"{error.filename}: " if error.filename else ""
                advice = "Check the path, its permissions and the free disk space."
                _print_error(f"{place}{error.strerror or error}. {advice}")
            except KeyboardInterrupt:
                again = "The same command continues from here." if repeatable else ""
                print_note(f"\nInterrupted. {_resume_hint() if resumable else again}".rstrip(), fold=False)
                raise typer.Exit(EXIT_INTERRUPTED) from None
            raise typer.Exit(EXIT_USER_ERROR)

        return run

    return decorate


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _format(key: str, value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "none" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,} ({format_bytes(value)})" if "bytes" in key else str(value) if key == "seed" else f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_format(name, item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "nothing"
    return str(value)


def _hint(error: ThresherError, skip_flag: str | None, parameters: Collection[str]) -> str:
    """The options that fix the error, of those that the command has; the most specific class in `HINTS` counts."""
    if isinstance(error, RunNotFoundError):
        return "Start a run with: thresher prune DATA --out FOLDER"
    kinds = [*type(error).__mro__, *type(error.__cause__).__mro__]  # a bundle of an unknown model: the cause says it
    options = next((HINTS[kind] for kind in kinds if kind in HINTS), {})
    named = [text for name, text in options.items() if name in parameters]
    if isinstance(error, DataError) and "settings" in parameters:
        if error.settings:
            named = [f"--set {shlex.quote(f'{key}={json.dumps(value)}')}" for key, value in error.settings.items()]
        if skip_flag and error.line is not None and error.line > 1:
            named.append(f"{skip_flag} to leave such rows out")
    *others, last = named or [""]
    return f"Use {', '.join([*others, f'or {last}' if others else last])}." if last else ""


def _print_error(message: str, hint: str = "") -> None:
    console = stderr()
    console.print("[bold red]error:[/]", end=" ")
    console.print(printable(message), markup=False, soft_wrap=True)  # it may quote names from files
    if hint:
        console.print(f"hint: {hint}", markup=False, soft_wrap=True)


def _resume_hint() -> str:
    """The interrupted command with `--resume`, and without `--force`, which would delete the run."""
    words = ["thresher", *(word for word in sys.argv[1:] if word not in ("--force", "--resume")), "--resume"]
    return f"Nothing is lost. Continue with:\n  {shlex.join(words)}"


def display(*, quiet: bool = False) -> "AbstractContextManager[Display]":
    """The progress display of a command: a bar, lines or none."""
    from thresher.report.progress_display import progress_display

    return progress_display(quiet=quiet, names=OPTIONS)
