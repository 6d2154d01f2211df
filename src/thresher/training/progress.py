"""Progress of a running stage (fitting, searching), for a display that implements `Progress`, and the time it needs."""

from dataclasses import dataclass, replace
from statistics import fmean
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from thresher.data.encode.sources import DataSource

SECONDS_BETWEEN_REPORTS = 0.1
MIN_SECONDS = 1.0  # of a stage, before its speed is known well enough
FURTHER_SHARE = 0.5
"""The first training of a run is expected to improve for this share of its best epoch longer."""
StageKind = Literal["floor", "dense", "teacher", "trial", "search", "retraining"]


@dataclass(frozen=True, kw_only=True)
class ProgressState:
    """The state to display. Epochs count from 1; `step` is the number of steps done in this epoch."""

    stage: str
    max_epochs: int
    num_steps: int
    kind: StageKind | None = None  # its place in the workflow; None outside of one
    epoch_share: float = 1.0  # below 1 if an epoch of this stage visits only a part of the rows
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
    later_epochs: float = 0.0  # over all rows, of the stages that follow in the same run, as far as they are known

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
    """Passes states on to another display with other names for the stages, such as `"{}, soft labels"`, or a kind."""

    def __init__(self, progress: Progress | None, name: str = "{}", *, kind: StageKind | None = None) -> None:
        self.progress: Progress = SilentProgress() if progress is None else progress
        self.name, self.kind = name, kind

    def note(self, text: str) -> None:
        if (note := getattr(self.progress, "note", None)) is not None:
            note(text)

    def update(self, state: ProgressState) -> None:
        self.progress.update(replace(state, stage=self.name.format(state.stage), kind=self.kind or state.kind))


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

    def __init__(
        self, progress: Progress | None, *, stage: str, max_epochs: int, num_steps: int, epoch_share: float = 1.0
    ) -> None:
        self.progress: Progress = SilentProgress() if progress is None else progress
        self.state = ProgressState(stage=stage, max_epochs=max_epochs, num_steps=num_steps, epoch_share=epoch_share)
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


class TimeLeft:
    """Follows the states of a run, and estimates when the present stage and the whole run end.

    A planned stage has a known number of epochs. Early stopping ends a training `patience` epochs after its best epoch.
    The best epoch is expected where the trainings before it in this run had theirs. With each epoch without improvement
    it becomes less likely that a better one follows.
    """

    def __init__(self) -> None:
        self._state: ProgressState | None = None
        self._start_time = self._start_epochs = 0.0
        self._best_epochs: list[int] = []  # of the trainings that early stopping has ended

    def update(self, state: ProgressState, now: float) -> None:
        """Add a state, at a time in seconds of any clock."""
        if not state.continues(self._state):
            self._start_time, self._start_epochs = now, state.epochs_done
        self._state = state
        if state.finished and state.best_epoch is not None and state.planned_epochs is None:
            self._best_epochs.append(state.best_epoch)

    def num_epochs(self) -> float | None:
        """Epochs that the present stage is expected to take in all; None if nothing is known yet."""
        state = self._state
        if state is None:
            return None
        if state.finished:
            return state.epochs_done
        if state.patience is None:
            expected = state.max_epochs if state.planned_epochs is None else state.planned_epochs
        else:
            last = self._last_epoch(state, state.patience)
            if last is None:
                return None
            expected = last + (state.planned_epochs or 0.0)
        return min(max(expected, state.epochs_done), float(state.max_epochs))

    def seconds(self, now: float) -> float | None:
        """Seconds until the end of the present stage and of those known to follow; None if unknown."""
        expected, elapsed = self.num_epochs(), now - self._start_time
        if self._state is None or expected is None or elapsed < MIN_SECONDS:
            return None
        done = (self._state.epochs_done - self._start_epochs) * self._state.epoch_share
        left = (expected - self._state.epochs_done) * self._state.epoch_share + self._state.later_epochs
        return elapsed * left / done if done > 0 else None

    def _last_epoch(self, state: ProgressState, patience: int) -> float | None:
        """The epoch in which early stopping is expected to end the training."""
        earlier = fmean(self._best_epochs) if self._best_epochs and state.planned_epochs is None else None
        if state.best_epoch is None:
            return None if earlier is None else earlier + patience
        further = FURTHER_SHARE * state.best_epoch if earlier is None else max(0.0, earlier - state.best_epoch)
        since_best = max(0, int(state.epochs_done) - state.best_epoch)
        return state.best_epoch + patience + further * max(0.0, 1 - since_best / patience)
