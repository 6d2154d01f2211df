"""What a run costs: expected before it starts and over its first hundred steps, and measured in `results.json`."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

from thresher._internal.text import align_columns
from thresher.experiment.effort import PRESETS, UNKNOWN_DENSE_EPOCHS, StageSettings
from thresher.search.budget import Budget
from thresher.training.checkpoint import read_history
from thresher.training.progress import Progress, ProgressState, StageKind
from thresher.training.run_state import HISTORY

DENSE = "dense"
MEASURED_STEPS = 100
EARLY_SHARE = 0.3
"""Early stopping is expected to end retraining after this share of its longest duration."""


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """Training of one stage; seconds include the evaluation after each epoch, but no interruption."""

    stage: str
    epochs: float  # not whole if one ended before all rows were visited
    seconds: float
    cpu_seconds: float  # of all threads; independent of what else the machine does
    over_dense: float | None  # seconds ÷ seconds of the dense training; None without one
    cpu_over_dense: float | None  # the same of CPU seconds


@dataclass(frozen=True, kw_only=True)
class Cost:
    """All stages, in the order in which they ran."""

    dense_seconds: float | None
    total_seconds: float
    total_over_dense: float | None
    total_cpu_over_dense: float | None
    stages: tuple[StageCost, ...]

    @classmethod
    def of(cls, folders: Iterable[tuple[str, Path]]) -> "Cost":
        """The cost of stages, given their names and folders; stages of one name are added up."""
        epochs: dict[str, float] = {}
        seconds: dict[str, float] = {}
        cpu: dict[str, float] = {}
        for stage, folder in folders:
            records = read_history(folder / HISTORY) if (folder / HISTORY).exists() else []
            if records:
                epochs[stage] = epochs.get(stage, 0) + sum(record.get("share", 1) for record in records)
                seconds[stage] = seconds.get(stage, 0.0) + sum(record["seconds"] for record in records)
                cpu[stage] = cpu.get(stage, 0.0) + sum(record.get("cpu_seconds", 0.0) for record in records)
        dense, total = seconds.get(DENSE), sum(seconds.values())
        return cls(
            dense_seconds=dense,
            total_seconds=total,
            total_over_dense=_ratio(total, dense),
            total_cpu_over_dense=_ratio(sum(cpu.values()), cpu.get(DENSE)),
            stages=tuple(
                StageCost(
                    stage=name,
                    epochs=epochs[name],
                    seconds=spent,
                    cpu_seconds=cpu[name],
                    over_dense=_ratio(spent, dense),
                    cpu_over_dense=_ratio(cpu[name], cpu.get(DENSE)),
                )
                for name, spent in seconds.items()
            ),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def cost_table(cost: Mapping[str, Any]) -> str:
    """The cost in `results.json` as text: one line per stage and their sum."""
    stages = [
        [stage["stage"], f"{round(stage['epochs'], 2):g}", f"{stage['seconds']:.1f}", _times(stage["over_dense"])]
        for stage in cost["stages"]
    ]
    total = ["total", "", f"{cost['total_seconds']:.1f}", _times(cost["total_over_dense"])]
    return align_columns([["stage", "epochs", "seconds", "× dense"], *stages, total], [False, True, True, True])


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def _ratio(seconds: float, dense: float | None) -> float | None:
    return None if not dense else seconds / dense


@dataclass(frozen=True, kw_only=True)
class ExpectedCost:
    """Epochs of each stage of a run whose search starts from the dense model.

    Attributes:
        num_plans: distillation plans that are tried.
        num_halvings: how often the kept entries halve down to the smallest budget.
        num_teachers: dense trainings, the model itself included; 0 if it is trained already.
    """

    settings: StageSettings
    num_plans: int
    num_halvings: float
    num_budgets: int
    steps_per_epoch: int
    num_teachers: int = 1

    @classmethod
    def of(
        cls,
        settings: StageSettings,
        budgets: Sequence[Budget],
        *,
        num_entries: int,
        steps_per_epoch: int,
        num_plans: int,
        num_teachers: int,
    ) -> "ExpectedCost | None":
        """None for a search that does not start from a dense model: early stopping decides how long it takes."""
        if settings.start != "dense" or settings.post_training or PRESETS[settings.effort] is None:
            return None
        smallest = min(max(1, budget.max_entries(num_entries)) for budget in budgets)
        num_halvings = max(0.0, math.log2(num_entries / smallest))
        return cls(
            settings=settings,
            num_plans=num_plans,
            num_halvings=num_halvings,
            num_budgets=len(budgets),
            steps_per_epoch=steps_per_epoch,
            num_teachers=num_teachers,
        )

    def trial_epochs(self, dense_epochs: float) -> float:
        """Of all plans together."""
        epochs = self.settings.trial_epochs(dense_epochs, self.steps_per_epoch)
        return epochs * self.num_plans if self.num_plans > 1 else 0

    def search_epochs(self, dense_epochs: float) -> float:
        config = self.settings.search_config(dense_epochs, soft_labels=True)
        if config.plan_epochs is not None:
            return config.plan_epochs
        assert config.halving_epochs is not None, "a search from a dense model has one of the two"
        return config.halving_epochs * self.num_halvings

    def retraining_epochs(self, dense_epochs: float) -> float:
        """Most epochs of one retraining."""
        return self.settings.retraining_config(dense_epochs, self.steps_per_epoch, soft_labels=True).max_epochs

    def likely_retraining_epochs(self, dense_epochs: float) -> float:
        """Of one retraining that early stopping ends; at least one, unless it is shorter."""
        most = self.retraining_epochs(dense_epochs)
        return min(most, max(1.0, most * EARLY_SHARE))

    def description(self, dense_epochs: float = UNKNOWN_DENSE_EPOCHS) -> str:
        """For people, in units of the dense training."""
        epochs = {"trial": self.trial_epochs(dense_epochs), "search": self.search_epochs(dense_epochs)}
        parts = [("dense training", float(self.num_teachers))]
        parts += [(name, number / dense_epochs) for name, number in epochs.items()]
        most = self.num_budgets * self.retraining_epochs(dense_epochs) / dense_epochs
        likely = self.num_budgets * self.likely_retraining_epochs(dense_epochs) / dense_epochs
        total = sum(share for _, share in parts) + likely
        listed = ", ".join(f"{name} {share:.1f}" for name, share in parts if share)
        sizes = "1 size" if self.num_budgets == 1 else f"{self.num_budgets} sizes"
        return (
            f"Effort {self.settings.effort}: about {total:.1f} times the dense training, if that takes "
            f"{dense_epochs} epochs ({listed}, retraining of {sizes} {likely:.1f} or at most {most:.1f}), plus the "
            "training without an embedding"
        )


@dataclass
class RunEstimate:
    """A `Progress` that passes states on with the epochs of all later stages, and reports the expected cost once."""

    progress: Progress
    expected: ExpectedCost
    _dense_epochs: float | None = None
    _described: bool = False
    _timed: bool = False
    _started: float = 0.0
    _last: ProgressState | None = None
    _retrained: list[float] = field(default_factory=list)  # epochs of the retrainings so far

    def update(self, state: ProgressState) -> None:
        now = monotonic()
        if not self._described:
            self._described = True
            self._note(self.expected.description())
        if not state.continues(self._last):
            self._started = now
        self._last = state
        is_first_epoch = state.kind == "dense" and state.epoch == 1 and self._dense_epochs is None
        if is_first_epoch and not self._timed and state.step >= MEASURED_STEPS:
            self._timed = True
            seconds = (now - self._started) / state.step * state.num_steps / state.epoch_share
            epochs = UNKNOWN_DENSE_EPOCHS + self._later_epochs(state)
            self._note(
                f"An epoch takes about {seconds:.0f} s; with {UNKNOWN_DENSE_EPOCHS} epochs of dense training the whole "
                f"run takes about {seconds * epochs / 60:.0f} min"
            )
        if state.finished and state.kind == "dense" and self._dense_epochs is None:  # later: its predictions
            self._dense_epochs = state.epochs_done * state.epoch_share
        if state.finished and state.kind == "retraining":
            self._retrained.append(state.epochs_done * state.epoch_share)
        self.progress.update(replace(state, later_epochs=self._later_epochs(state)))

    def _later_epochs(self, state: ProgressState) -> float:
        """Epochs of the stages after this one."""
        dense = self._dense_epochs or UNKNOWN_DENSE_EPOCHS
        likely = self.expected.likely_retraining_epochs(dense)
        if self._retrained:
            likely = sum(self._retrained) / len(self._retrained)
        running = state.kind == "retraining" and not state.finished
        epochs: dict[StageKind, float] = {
            "dense": dense if self.expected.num_teachers else 0,
            "teacher": max(0, self.expected.num_teachers - 1) * dense,
            "trial": self.expected.trial_epochs(dense),
            "search": self.expected.search_epochs(dense),
            "retraining": max(0, self.expected.num_budgets - len(self._retrained) - running) * likely,
        }
        kinds = list(epochs)  # in the order in which they run
        start = kinds.index(state.kind) + 1 if state.kind in epochs else 0
        return sum(epochs[kind] for kind in kinds[start:-1]) + epochs["retraining"]

    def _note(self, text: str) -> None:
        if (note := getattr(self.progress, "note", None)) is not None:
            note(text)
