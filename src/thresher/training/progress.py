"""Progress of a running stage (fitting, searching), for a display that implements `Progress`."""

from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from thresher.data.encode.sources import DataSource

SECONDS_BETWEEN_REPORTS = 0.1


@dataclass(frozen=True, kw_only=True)
class ProgressState:
    """The state to display. Epochs count from 1; `step` is the number of steps done in this epoch."""

    stage: str
    max_epochs: int
    num_steps: int
    group: str = ""  # what the stage is part of, such as one method and seed of a comparison
    epoch: int = 1
    step: int = 0
    loss: float | None = None  # mean training loss of the running epoch so far
    metric: str | None = None
    best: float | None = None
    kept_parameters: int | None = None
    next_budget: str | None = None
    finished: bool = False
    best_epoch: int | None = None  # of early stopping, while it decides when the stage ends
    patience: int | None = None  # epochs after the best epoch at which early stopping ends the stage
    planned_epochs: float | None = None  # of the whole stage, or of what follows early stopping if `patience` is given
    later_epochs: float = 0.0  # of the stages that follow in the same run, as far as they are known

    @property
    def epochs_done(self) -> float:
        return min(self.epoch - 1 + self.step / max(self.num_steps, 1), float(self.max_epochs))

    def continues(self, last: "ProgressState | None") -> bool:
        """Whether this state is of the same stage as the last one; a stage that runs again starts anew."""
        if last is None or last.finished or (last.stage, last.group) != (self.stage, self.group):
            return False
        return self.epochs_done >= last.epochs_done


class Progress(Protocol):
    """A display. Stages follow each other; `ProgressState.continues` tells where a new one begins."""

    def update(self, state: ProgressState) -> None: ...


class RunProgress(Progress, Protocol):
    """A `Progress` that also shows the data: how its columns are used, then the encoding."""

    def columns(self, source: "DataSource") -> None: ...

    def encoding(self, done: int, total: int | None, message: str) -> None: ...


class SilentProgress:
    """Shows nothing. A base class for displays."""

    def note(self, text: str) -> None:
        """Show a sentence about the run."""

    def update(self, state: ProgressState) -> None:
        """Show the state of a training."""

    def columns(self, source: "DataSource") -> None:
        """Show how the columns of raw files are used."""

    def encoding(self, done: int, total: int | None, message: str) -> None:
        """Show the progress of encoding; `total` is None if it is unknown."""


class Renamed:
    """Passes states on to another display, with other names for the stages: `"{}, soft labels"`."""

    def __init__(self, progress: Progress | None, name: str) -> None:
        self.progress: Progress = SilentProgress() if progress is None else progress
        self.name = name

    def note(self, text: str) -> None:
        if (note := getattr(self.progress, "note", None)) is not None:
            note(text)

    def update(self, state: ProgressState) -> None:
        self.progress.update(replace(state, stage=self.name.format(state.stage)))


class Grouped:
    """Passes everything on to another display; the title becomes the group of the stages."""

    def __init__(self, progress: RunProgress | None) -> None:
        self.progress: RunProgress = SilentProgress() if progress is None else progress
        self.title = ""

    def update(self, state: ProgressState) -> None:
        self.progress.update(replace(state, group=self.title))

    def columns(self, source: "DataSource") -> None:
        self.progress.columns(source)

    def encoding(self, done: int, total: int | None, message: str) -> None:
        self.progress.encoding(done, total, message)


class StageProgress:
    """Reports one stage to a `Progress`; callers pass only the fields that changed."""

    def __init__(self, progress: Progress | None, *, stage: str, max_epochs: int, num_steps: int) -> None:
        self.progress: Progress = SilentProgress() if progress is None else progress
        self.state = ProgressState(stage=stage, max_epochs=max_epochs, num_steps=num_steps)
        self._next_report = 0.0

    def due(self) -> bool:
        """Whether it is time for another `report`; cheap enough to call at every step."""
        return monotonic() >= self._next_report

    def note(self, **changes: Any) -> None:
        """Change fields of the state, for the next report."""
        self.state = replace(self.state, **changes)

    def report(self, **changes: Any) -> None:
        """Show the state now."""
        self.note(**changes)
        self._next_report = monotonic() + SECONDS_BETWEEN_REPORTS
        self.progress.update(self.state)
