"""What the command line says, and where: results on stdout, everything else on stderr; errors in one message.

`--json` makes stdout a single JSON document. Colour and bars appear only on a terminal.
"""

import json
import logging
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import Any, ParamSpec, TypeVar

import typer
from rich.console import Console

from thresher._internal.text import format_bytes
from thresher.errors import (
    DataError,
    FileFormatError,
    FolderError,
    LabelError,
    RunExistsError,
    RunNotFoundError,
    SettingsConflictError,
    TableExistsError,
    ThresherError,
    WriteError,
)
from thresher.report.frontier import Frontier, plain_table, rich_table

P = ParamSpec("P")
R = TypeVar("R")
Facts = dict[str, Any]

HINTS: Mapping[type, str] = {
    RunExistsError: "Use --resume to continue it, --force to replace it, or --out for another folder.",
    RunNotFoundError: "Start a run with: thresher prune DATA --out FOLDER",
    FolderError: "Use --out for another folder.",
    TableExistsError: "Use --force to overwrite it, or --out for another folder.",
    WriteError: "Use --out for another folder.",
    LabelError: "Use --label for the label column, and --positive for the values that mean 1.",
    FileFormatError: "Use --set for the file format, e.g. --set data.encoding=latin-1 or --set 'data.delimiter=\";\"'.",
    SettingsConflictError: "Use --set KEY=VALUE to change a setting.",
}
"""Flags that fix an error, by its class."""
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Shown:
    """One thing that `show` can show: as data, on a terminal, and drawn where there is something to draw."""

    facts: Facts
    display: Callable[[], None]
    draw: Callable[[Path], Sequence[Path]] | None = None


def stdout() -> Console:
    return Console(highlight=False, emoji=False, soft_wrap=True)


def stderr() -> Console:
    return Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)


def say(text: str) -> None:
    """A remark for the person at the terminal."""
    stderr().print(text, markup=False)


class _Remarks(logging.Handler):
    """What the library logs, as remarks."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


def pass_on_logs() -> None:
    """Let the person at the terminal see what the library logs, such as a kernel being compiled."""
    logger = logging.getLogger("thresher")
    if not any(isinstance(handler, _Remarks) for handler in logger.handlers):
        logger.addHandler(_Remarks())
        logger.setLevel(logging.INFO)


def show_json(content: Any) -> None:
    """The one JSON document of `--json`."""
    print(json.dumps(content, indent=2, ensure_ascii=False))  # noqa: T201


def show_frontier(frontier: Frontier, *, title: str | None = None) -> None:
    """The table of results; plain where it is piped or the terminal is narrow."""
    console = stdout()
    if console.is_terminal and console.width >= 80:
        Console(highlight=False, emoji=False, markup=False).print(rich_table(frontier, title=title))
    else:
        console.print(*([title] if title else []), plain_table(frontier), sep="\n", markup=False)


def show_facts(facts: Mapping[str, Any]) -> None:
    """Facts one a line; lists of rows as a small table below."""
    plain = {key: value for key, value in facts.items() if not _is_rows(value)}
    indent = max(map(len, plain)) + 2
    for key, value in plain.items():
        for name, line in zip_longest([key.replace("_", " ")], _folded(_write(key, value), indent), fillvalue=""):
            print(f"{name:<{indent}}{line}".rstrip())  # noqa: T201
    for key, rows in facts.items():
        if key not in plain:
            print()  # noqa: T201
            show_rows(rows)


def show_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """A table in spaces: numbers right, text left. A last column of lists takes as much as the line has room for."""
    titles = list(rows[0])
    cells = [
        [title.replace("_", " ") for title in titles],
        *([_write("", row[title]) for title in titles] for row in rows),
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(titles))]
    if isinstance(rows[0][titles[-1]], list):
        room = max(stdout().width - sum(widths[:-1]) - 2 * len(titles[:-1]), len(titles[-1]))
        for line, row in zip(cells[1:], rows, strict=True):
            line[-1] = _fitted(row[titles[-1]], room)
        widths[-1] = room
    right = [isinstance(rows[0][title], int | float) or _is_amount(rows[0][title]) for title in titles]
    for line in cells:
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)]
        print("  ".join(padded).rstrip())  # noqa: T201


def bar(share: float, width: int = 20) -> str:
    """A share 0…1 as a bar; anything above nothing shows.

    >>> bar(0.5, 4), bar(0.001, 4), bar(0, 4)
    ('██', '▏', '')
    """
    eighths = max(round(8 * width * min(share, 1)), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def shorten(text: str, width: int) -> str:
    """Text cut to a width, the cut marked; signs that would break a line are shown as blanks."""
    text = "".join(sign if sign.isprintable() else " " for sign in text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def handle_errors(
    *, resumable: bool = False, repeatable: bool = False, skip_flag: str | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator of a command: a `ThresherError` is one message and exit code 2, Ctrl-C exit code 130.

    Args:
        resumable: whether `--resume` goes on where an interruption stopped; then it is said how.
        repeatable: whether the very same command does.
        skip_flag: what leaves bad rows out, for a command that reads many; said where a row is bad.
    """

    def decorate(command: Callable[P, R]) -> Callable[P, R]:
        @wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return command(*args, **kwargs)
            except ThresherError as error:
                _print_error(str(error), _hint(error, skip_flag))
            except BrokenPipeError:
                raise
            except OSError as error:
                place = f"{error.filename}: " if error.filename else ""
                _print_error(
                    f"{place}{error.strerror or error}. Check the path, its permissions and the free disk space."
                )
            except KeyboardInterrupt:
                again = "The same command goes on from here." if repeatable else ""
                say(f"\nInterrupted. {_resume_hint() if resumable else again}".rstrip())
                raise typer.Exit(EXIT_INTERRUPTED) from None
            raise typer.Exit(EXIT_USER_ERROR)

        return run

    return decorate


def _folded(text: str, indent: int) -> list[str]:
    """The lines of a fact; folded on a terminal only, so that a pipe gets one line a fact."""
    console = stdout()
    return wrap(text, max(console.width - indent, 20)) if console.is_terminal else [text]


def _fitted(values: Sequence[str], width: int) -> str:
    """As many of the values as there is room for, at least the beginning of the first."""
    text = shorten(values[0], width) if values else ""
    for value in values[1:]:
        longer = f"{text}, {shorten(value, 24)}"
        if len(longer) > width:
            break
        text = longer
    return text


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _is_amount(value: Any) -> bool:
    """A number with its unit, as shares and bytes are written."""
    return isinstance(value, str) and value.endswith((" %", " B", " KB", " MB", " GB"))


def _write(key: str, value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "none" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,} ({format_bytes(value)})" if "bytes" in key else str(value) if key == "seed" else f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_write(name, item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "nothing"
    return str(value)


def _hint(error: ThresherError, skip_flag: str | None) -> str:
    """The flags that fix an error: those of the most specific class in `HINTS`, and of bad rows."""
    if skip_flag and isinstance(error, DataError) and error.line is not None and error.line > 1:
        return f"Use {skip_flag} to leave such rows out, or --set KEY=VALUE to change a setting."
    return next((HINTS[kind] for kind in type(error).__mro__ if kind in HINTS), "")


def _print_error(message: str, hint: str = "") -> None:
    console = stderr()
    console.print("[bold red]error:[/]", end=" ")
    console.print(message, markup=False)
    if hint:
        console.print(f"hint: {hint}", markup=False)


def _resume_hint() -> str:
    """The interrupted command, going on; without `--force`, which would throw away what there is to go on with."""
    words = ["thresher", *(word for word in sys.argv[1:] if word not in ("--force", "--resume")), "--resume"]
    return f"Nothing is lost; go on with:\n  {shlex.join(words)}"
