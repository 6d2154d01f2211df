"""One line of the progress display: name, bar, time, then as many details as the terminal is wide."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from thresher._internal.text import shorten
from thresher.training.progress import ProgressState

WIDE = 100  # columns from which names and bars are longer
NAME_WIDTHS, BAR_WIDTHS = (24, 30), (8, 16)  # on a narrow and on a wide terminal
TIME_WIDTH = len("about 00:00 left")


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
