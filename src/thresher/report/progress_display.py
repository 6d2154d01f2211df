"""Progress on stderr: on a terminal a bar for the running stage, elsewhere one line per epoch."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from thresher._internal.text import format_bytes, shorten
from thresher.report.notes import SettingNames, guess_notes, print_note, stderr
from thresher.training.progress import Progress, ProgressState, RunProgress, SilentProgress, TimeLeft

if TYPE_CHECKING:
    from thresher.data.encode.sources import DataSource


WIDE = 100  # columns from which names and bars are longer
NAME_WIDTHS, BAR_WIDTHS = (24, 30), (8, 16)  # on a narrow and on a wide terminal
TIME_WIDTH = len("about 00:00 left")
SECONDS_BETWEEN_LINES = 5.0
REFRESHES_PER_SECOND = 5


@dataclass
class Row:
    """A stage of a run, or a step of encoding; times are of `monotonic`."""

    name: str
    started: float
    indent: str = ""
    share: float | None = None  # done, 0…1; None: unknown
    seconds_left: float | None = None
    ended: float | None = None
    details: Sequence[str] = ()  # most important first

    def time(self, now: float) -> str:
        """The time left if it can be estimated, else the time so far."""
        if self.ended is None and self.seconds_left is not None:
            return f"about {clock(self.seconds_left)} left"
        return clock((now if self.ended is None else self.ended) - self.started)

    def render(self, width: int, now: float) -> Table:
        """The row on one line. Details that do not fit are left out."""
        name_width, bar_width = (pair[width >= WIDE] for pair in (NAME_WIDTHS, BAR_WIDTHS))
        time = self.time(now)
        bar = ProgressBar(total=None if self.share is None else 1.0, completed=self.share or 0.0, width=bar_width)
        room = width - name_width - bar_width - max(TIME_WIDTH, len(time)) - 4  # gaps of one, one and two spaces
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(width=name_width, no_wrap=True)
        grid.add_column(width=bar_width)
        grid.add_column(width=max(TIME_WIDTH, len(time)) + 1, no_wrap=True)
        grid.add_column(no_wrap=True)
        style = "dim" if self.ended is not None or self.seconds_left is None else "cyan"
        name = Text(shorten(self.indent + self.name, name_width), style="bold")
        grid.add_row(name, bar, Text(time, style=style), Text(fitting(self.details, room)))
        return grid


def fitting(details: Sequence[str], room: int) -> str:
    """The first details, joined by two spaces, as far as there is room.

    >>> fitting(["epoch 3/20", "kept 9,000", "loss 0.4"], 24)
    'epoch 3/20  kept 9,000'
    """
    text = ""
    for detail in filter(None, details):
        longer = f"{text}  {detail}" if text else detail
        if len(longer) > room:
            break
        text = longer
    return text


def position(state: ProgressState) -> str:
    """The epoch and the last one that is possible; of a finished stage the number of epochs."""
    if state.max_epochs == 1:
        return ""
    if state.finished:
        return f"{state.epoch} epoch{'' if state.epoch == 1 else 's'}"
    planned = state.planned_epochs if state.patience is None else None
    last = state.max_epochs if planned is None else min(-(-planned // 1), state.max_epochs)
    return f"epoch {min(state.epoch, state.max_epochs)}/{int(last)}"


def details(state: ProgressState) -> list[str]:
    """Kept parameters and next budget, epoch, best metric and loss, as far as known, most important first."""
    parts = []
    if state.kept_parameters is not None:
        arrow = f" → {state.next_budget}" if state.next_budget and not state.finished else ""
        parts.append(f"kept {state.kept_parameters:,}{arrow}")
    parts.append(position(state))
    if state.best is not None:
        parts.append(f"best {state.metric or ''} {state.best:.4f}".replace("  ", " "))
    if state.loss is not None:
        parts.append(f"loss {state.loss:.4f}")
    return parts


def clock(seconds: float) -> str:
    """Seconds as minutes and seconds, from one hour on also hours.

    >>> clock(65), clock(3661)
    ('1:05', '1:01:01')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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
