"""What a running stage tells whoever draws it. Nothing is drawn here.

A drawer (the command line's bar, a notebook) implements `Progress`; a stage (fitting, searching) holds a
`StageProgress`, notes what changes, and reports at most a few times per second.
"""

from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Protocol

SECONDS_BETWEEN_REPORTS = 0.1


@dataclass(frozen=True, kw_only=True)
class ProgressState:
    """All there is to draw at one moment. Epochs count from 1; `step` is the number of steps done in this epoch."""

    stage: str
    max_epochs: int
    num_steps: int
    epoch: int = 1
    step: int = 0
    loss: float | None = None
    """Mean training loss of the running epoch so far."""
    metric: str | None = None
    """The name of what `best` is, e.g. `auc`."""
    best: float | None = None
    kept_parameters: int | None = None
    next_budget: str | None = None
    finished: bool = False


class Progress(Protocol):
    """Something that shows how far a stage is. Stages follow each other; a new name is a new stage."""

    def update(self, state: ProgressState) -> None: ...


class SilentProgress:
    """Shows nothing."""

    def update(self, state: ProgressState) -> None:
        pass


class Renamed:
    """Another's progress, with other names for the stages: `"{}, taught"`."""

    def __init__(self, progress: Progress | None, name: str) -> None:
        self.progress: Progress = SilentProgress() if progress is None else progress
        self.name = name

    def update(self, state: ProgressState) -> None:
        self.progress.update(replace(state, stage=self.name.format(state.stage)))


class StageProgress:
    """One stage's end of a `Progress`: remembers the state, so that callers say only what changed."""

    def __init__(self, progress: Progress | None, *, stage: str, max_epochs: int, num_steps: int) -> None:
        self.progress: Progress = SilentProgress() if progress is None else progress
        self.state = ProgressState(stage=stage, max_epochs=max_epochs, num_steps=num_steps)
        self._next_report = 0.0

    def due(self) -> bool:
        """Whether it is time for another `report`; cheap enough to ask at every step."""
        return monotonic() >= self._next_report

    def note(self, **changes: Any) -> None:
        """Remember changed fields of `ProgressState`, e.g. `note(kept_parameters=25_000)`, for the next report."""
        self.state = replace(self.state, **changes)

    def report(self, **changes: Any) -> None:
        """Show the state now."""
        self.note(**changes)
        self._next_report = monotonic() + SECONDS_BETWEEN_REPORTS
        self.progress.update(self.state)
