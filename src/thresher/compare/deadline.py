"""Deadline: a `Progress` that ends a comparison when its time is up, as Ctrl-C would: nothing done is lost."""

import signal
import threading
from time import monotonic
from typing import TYPE_CHECKING

from thresher.training.progress import ProgressState

if TYPE_CHECKING:
    from thresher.pipeline import RunProgress


class TimeIsUpError(Exception):
    """The time limit was reached between two trainings."""


class Deadline:
    """Passes everything on to `progress`, and looks at the clock."""

    def __init__(self, seconds: float | None, progress: "RunProgress | None" = None) -> None:
        self._end = None if seconds is None else monotonic() + seconds
        self._progress = progress
        self._rung = False

    @property
    def passed(self) -> bool:
        return self._end is not None and monotonic() >= self._end

    def check(self) -> None:
        """To be called between two trainings."""
        if self.passed:
            raise TimeIsUpError

    def update(self, state: ProgressState) -> None:
        if self._progress is not None:
            self._progress.update(state)
        if self.passed and not self._rung and threading.current_thread() is threading.main_thread():
            self._rung = True
            # the training under way completes its step, writes its checkpoint, and raises KeyboardInterrupt
            signal.raise_signal(signal.SIGINT)

    def encoding(self, done: int, total: int | None, message: str) -> None:
        if self._progress is not None:
            self._progress.encoding(done, total, message)
