"""Progress on stderr: on a terminal one bar per stage, elsewhere one line per epoch."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from thresher._internal.text import format_bytes
from thresher.cli.console import stderr
from thresher.training.progress import ProgressState, SilentProgress

if TYPE_CHECKING:
    from thresher.data.encode.sources import DataSource

SECONDS_BETWEEN_LINES = 5.0
MAX_BARS = 12  # a comparison has hundreds of stages, a terminal some forty lines


class Display(SilentProgress):
    """Base class that shows no progress: `update` is called by training, `columns` and `encoding` by encoding."""

    def columns(self, source: "DataSource") -> None:
        """Show how the columns of raw files are used."""
        from thresher.cli.run_settings import print_guess

        print_guess(source)

    def encoding(self, done: int, total: int | None, message: str) -> None:
        """Show the progress of encoding."""


@contextmanager
def display(*, quiet: bool = False) -> Iterator[Display]:
    """The progress display of a command: bars, lines or none."""
    console = stderr()
    if quiet:
        yield Display()
    elif console.is_terminal:
        with Bars(Console(stderr=True, highlight=False, emoji=False)) as bars:
            yield bars
    else:
        yield Lines(console)


class Bars(Display):
    """One bar per stage."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            TextColumn("{task.description:<14}", style="bold", markup=False),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[position]}", markup=False),
            TextColumn("{task.fields[metrics]}", style="dim", markup=False),
            _TimeColumn(),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "Bars":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def update(self, state: ProgressState) -> None:
        total = state.max_epochs * state.num_steps
        done = min((state.epoch - 1) * state.num_steps + state.step, total)
        self._bars.update(
            self._task(state.stage, start=done),
            total=done if state.finished else total,
            completed=done,
            position=f"epoch {min(state.epoch, state.max_epochs)}/{state.max_epochs}",
            metrics=_metrics(state),
        )

    def encoding(self, done: int, total: int | None, message: str) -> None:
        # files of a known size are counted in bytes, everything else in rows
        amount = format_bytes(done) if message == "reading" and total is not None else f"{done:,} rows"
        self._bars.update(self._task(message), total=total, completed=done, position=amount if done else "")

    def _task(self, stage: str, *, start: int = 0) -> TaskID:
        """The stage's bar; `start` are steps done before a resume, which do not count for the speed."""
        if stage not in self._tasks:
            for before in self._bars.tasks:  # earlier stages are finished
                done = before.completed or 1
                self._bars.update(before.id, total=done, completed=done)
                self._bars.stop_task(before.id)
            for oldest in list(self._tasks)[: max(len(self._tasks) + 1 - MAX_BARS, 0)]:
                self._bars.remove_task(self._tasks.pop(oldest))
            self._tasks[stage] = self._bars.add_task(stage, total=None, position="", metrics="", start_at=start)
        return self._tasks[stage]


class Lines(Display):
    """One line at the end of an epoch, at most every few seconds, and one at the end of a stage."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage, self._next_line = "", 0.0
        self._last: ProgressState | None = None

    def update(self, state: ProgressState) -> None:
        last, self._last = self._last, state
        if last is None or last.stage != state.stage:
            self._next_line = monotonic() + SECONDS_BETWEEN_LINES
        elif state.finished:
            self._print(state)
            self._last = None
        elif state.epoch > last.epoch and monotonic() >= self._next_line:
            self._print(last)
            self._next_line = monotonic() + SECONDS_BETWEEN_LINES

    def encoding(self, done: int, total: int | None, message: str) -> None:
        if message != self._stage:
            self._stage = message
            self._console.print(message, markup=False)

    def _print(self, state: ProgressState) -> None:
        ended = "done after epoch" if state.finished else "epoch"
        text = f"{state.stage}: {ended} {min(state.epoch, state.max_epochs)}/{state.max_epochs}  {_metrics(state)}"
        self._console.print(text.rstrip(), markup=False)


class _TimeColumn(ProgressColumn):
    """Upper bound of the time left: early stopping may end a stage earlier."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        if task.finished or task.total is None:
            return Text(_clock(task.finished_time or task.elapsed or 0.0), style="dim")
        done = task.completed - task.fields["start_at"]
        if done <= 0 or not task.elapsed:
            return Text("")
        return Text(f"≤ {_clock(task.elapsed * (task.total - task.completed) / done)} left", style="cyan")


def _metrics(state: ProgressState) -> str:
    """Loss, kept parameters, next budget and best metric, as far as known."""
    parts = []
    if state.loss is not None:
        parts.append(f"loss {state.loss:.4f}")
    if state.kept_parameters is not None:
        arrow = f" → {state.next_budget}" if state.next_budget and not state.finished else ""
        parts.append(f"kept {state.kept_parameters:,}{arrow}")
    if state.best is not None:
        parts.append(f"best {state.metric or ''} {state.best:.4f}".replace("  ", " "))
    return "  ".join(parts)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
