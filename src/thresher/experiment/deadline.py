"""Deadline: a `Progress` that ends a comparison when its time is up, as Ctrl-C would: nothing done is lost."""

import signal
import threading
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from thresher.training.progress import ProgressState

if TYPE_CHECKING:
    from thresher.experiment.stages import RunProgress


class TimeIsUpError(Exception):
    """The time limit was reached between two trainings."""


class Deadline:
    """Passes everything on to `progress`, and looks at the clock.

    Attributes:
        about: what is being trained, before the name of each stage: trainings of a comparison have the same names.
    """

    def __init__(self, seconds: float | None, progress: "RunProgress | None" = None) -> None:
        self._end = None if seconds is None else monotonic() + seconds
        self._progress = progress
        self._rung = False
        self.about = ""

    @property
    def passed(self) -> bool:
        return self._end is not None and monotonic() >= self._end

    def check(self) -> None:
        """To be called between two trainings."""
        if self.passed:
            raise TimeIsUpError

    def update(self, state: ProgressState) -> None:
        if self._progress is not None:
            named = replace(state, stage=f"{self.about} · {state.stage}") if self.about else state
            self._progress.update(named)
        if self.passed and not self._rung and threading.current_thread() is threading.main_thread():
            self._rung = True
            # the training under way completes its step, writes its checkpoint, and raises KeyboardInterrupt
            signal.raise_signal(signal.SIGINT)

    def encoding(self, done: int, total: int | None, message: str) -> None:
        if self._progress is not None:
            self._progress.encoding(done, total, message)
