"""Progress on stderr: on a terminal a bar for the running stage, elsewhere one line per epoch."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from thresher._internal.text import format_bytes
from thresher.report.guess_notes import SettingNames, guess_notes
from thresher.report.notes import print_note, stderr
from thresher.report.progress_row import Row, clock, details
from thresher.training.progress import Progress, ProgressState, RunProgress, SilentProgress, TimeLeft

if TYPE_CHECKING:
    from thresher.data.encode.sources import DataSource

SECONDS_BETWEEN_LINES = 5.0
REFRESHES_PER_SECOND = 5


class Display(SilentProgress):
    """Shows how columns are used, and no progress: `update` is called by training, `encoding` by encoding."""

    def __init__(self, names: SettingNames | None = None) -> None:
        self._names = SettingNames() if names is None else names

    def columns(self, source: "DataSource") -> None:
        for note in guess_notes(source, self._names):
            print_note(note)


@contextmanager
def progress_display(*, quiet: bool = False, names: SettingNames | None = None) -> Iterator[Display]:
    """Bars on a terminal, lines elsewhere, and no progress if `quiet`."""
    console = stderr()
    if quiet:
        yield Display(names)
    elif console.is_terminal and not console.is_jupyter:
        with Bars(console, names) as bars:
            yield bars
    else:
        yield Lines(console, names)


@contextmanager
def run_progress(progress: RunProgress | None) -> Iterator[RunProgress]:
    """The caller's display; by default, one on stderr if a person looks at it: on a terminal and in a notebook."""
    if progress is None and _somebody_looks():
        with progress_display() as shown:
            yield shown
    else:
        yield SilentProgress() if progress is None else progress


@contextmanager
def training_progress(progress: Progress | None) -> Iterator[Progress]:
    """The same, for what reads no raw files."""
    if progress is None:
        with run_progress(None) as shown:
            yield shown
    else:
        yield progress


def _somebody_looks() -> bool:
    from thresher._internal.processes import writes_files  # loads torch

    return writes_files() and (sys.stderr.isatty() or "ipykernel" in sys.modules)


class Bars(Display):
    """The running stage with a bar, below the finished stages and the notes."""

    def __init__(self, console: Console, names: SettingNames | None = None) -> None:
        super().__init__(names)
        self._console = console
        self._row: Row | None = None
        self._group = ""
        self._state: ProgressState | None = None
        self._time_left = TimeLeft()
        self._live = Live(
            get_renderable=self._render, console=console, refresh_per_second=REFRESHES_PER_SECOND, transient=True
        )

    def __enter__(self) -> "Bars":
        self._live.start()
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self._end_row(complete=error is None and self._state is None)
        self._live.stop()

    def update(self, state: ProgressState) -> None:
        now = monotonic()
        if self._row is None or not state.continues(self._state):
            self._start_row(Row(state.stage, now, indent="  " if state.group else ""), state.group)
        self._state = state
        self._time_left.update(state, now)
        assert self._row is not None
        epochs = self._time_left.num_epochs()
        self._row.share = None if not epochs else state.epochs_done / epochs
        self._row.seconds_left = self._time_left.seconds(now)
        self._row.details = details(state)
        if state.finished:
            self._end_row()

    def note(self, text: str) -> None:
        self._console.print(Text(text, style="dim"))

    def encoding(self, done: int, total: int | None, message: str) -> None:
        now = monotonic()
        if self._row is None or self._row.name != message:
            self._start_row(Row(message, now))
        assert self._row is not None
        # files of a known size are counted in bytes, everything else in rows
        amount = format_bytes(done) if message == "reading" and total is not None else f"{done:,} rows"
        self._row.details = [amount] if done else []
        self._row.share = done / total if total else None
        if total and done and now - self._row.started > 1:
            self._row.seconds_left = (now - self._row.started) * (total - done) / done

    def _start_row(self, row: Row, group: str = "") -> None:
        self._end_row()
        if group and group != self._group:
            self._console.print(Text(group), overflow="ellipsis", no_wrap=True)
        self._row, self._group = row, group

    def _end_row(self, *, complete: bool = True) -> None:
        """Print the row above the display, where it stays; an interrupted stage is not complete."""
        row, self._row, self._state = self._row, None, None
        if row is not None:
            row.ended = monotonic()
            row.share = 1.0 if complete else row.share or 0.0
            self._console.print(row.render(self._console.width, row.ended))

    def _render(self) -> RenderableType:
        row = self._row
        return Group() if row is None else row.render(self._console.width, monotonic())


class Lines(Display):
    """One line at the end of an epoch, at most every few seconds, and one at the end of a stage."""

    def __init__(self, console: Console, names: SettingNames | None = None) -> None:
        super().__init__(names)
        self._console = console
        self._message, self._group = "", ""
        self._started = self._next_line = 0.0
        self._last: ProgressState | None = None
        self._time_left = TimeLeft()

    def update(self, state: ProgressState) -> None:
        last, self._last, now = self._last, state, monotonic()
        self._time_left.update(state, now)
        if not state.continues(last):
            self._started, self._next_line = now, now + SECONDS_BETWEEN_LINES
        elif last is not None and state.epoch > last.epoch and now >= self._next_line:
            left = self._time_left.seconds(now)
            self._print(last, "" if left is None else f", about {clock(left)} left")
            self._next_line = now + SECONDS_BETWEEN_LINES
        if state.finished:
            self._print(state, f" in {clock(now - self._started)}")

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def encoding(self, done: int, total: int | None, message: str) -> None:
        if message != self._message:
            self._message = message
            self._console.print(message, markup=False, soft_wrap=True)

    def _print(self, state: ProgressState, time: str) -> None:
        if state.group and state.group != self._group:
            self._console.print(state.group, markup=False, soft_wrap=True)
        self._group = state.group
        name = f"  {state.stage}" if state.group else state.stage
        text = "  ".join([f"{name}: {'done' if state.finished else 'running'}{time}", *filter(None, details(state))])
        self._console.print(text, markup=False, soft_wrap=True)
