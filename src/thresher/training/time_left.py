"""TimeLeft: how long a run still takes: its present stage by its plan or by early stopping, and the later stages."""

from statistics import fmean

from thresher.training.progress import ProgressState

MIN_SECONDS = 1.0  # of a stage, before its speed is known well enough
FURTHER_SHARE = 0.5
"""The first training of a run is expected to improve for this share of its best epoch longer."""


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
        done = self._state.epochs_done - self._start_epochs
        left = expected - self._state.epochs_done + self._state.later_epochs
        return elapsed * left / done if done > 0 else None

    def _last_epoch(self, state: ProgressState, patience: int) -> float | None:
        """The epoch in which early stopping is expected to end the training."""
        earlier = fmean(self._best_epochs) if self._best_epochs and state.planned_epochs is None else None
        if state.best_epoch is None:
            return None if earlier is None else earlier + patience
        further = FURTHER_SHARE * state.best_epoch if earlier is None else max(0.0, earlier - state.best_epoch)
        since_best = max(0, int(state.epochs_done) - state.best_epoch)
        return state.best_epoch + patience + further * max(0.0, 1 - since_best / patience)
