"""What the ablation changes: one setting at a time, or one piece of the search that is none.

Not here: how a change is run and judged (`paper.parts.ablation`).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from torch import Tensor

from thresher.baselines.magnitude_search import CubicPlan
from thresher.embeddings import pep
from thresher.embeddings.thresholds import keep_mask, soft_threshold
from thresher.search import searcher
from thresher.search.plan import Plan

DEFAULT = "the defaults"
LATE = 0.2
"""A search is late when it has pruned all but so much of what a batch looks up."""

Thresholding = Callable[[Tensor, Tensor], Tensor]


class DeceleratingPlan(Plan):
    """The geometric fall with `1 − (1 − t)²` for `t`: most of its steps are spent on small sizes."""

    def num_kept(self, step: int) -> int:
        left = max(0.0, 1 - step / self.num_steps)
        return super().num_kept(round(self.num_steps * (1 - left**2)))


class AcceleratingPlan(Plan):
    """The geometric fall with `t²` for `t`: most of its steps are spent on large sizes."""

    def num_kept(self, step: int) -> int:
        return super().num_kept(round(step**2 / self.num_steps))


def hard_when_late(values: Tensor, threshold: Tensor) -> Tensor:
    """The soft threshold; late in a search entries above it keep their whole value, and thresholds learn no more."""
    kept = keep_mask(values, threshold)
    return values * kept if kept.float().mean() < LATE else soft_threshold(values, threshold)


PATCHED_NAMES: Mapping[object, str] = {
    DeceleratingPlan: "slows down",
    AcceleratingPlan: "speeds up",
    CubicPlan: "cubic",
    hard_when_late: "hard when late",
}
"""What is no setting, as tables name it."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One change of the defaults.

    Attributes:
        changes: as `thresher prune --set` takes them.
        rewind_epochs: retrain from the weights after so many epochs of the unpruned model, not from the initial ones.
        plan: how the count falls in the search.
        thresholding: what the search does to the values of a batch.
    """

    about: str
    changes: tuple[str, ...] = ()
    rewind_epochs: int = 0
    plan: type = Plan
    thresholding: Thresholding = soft_threshold

    @property
    def name(self) -> str:
        if self.rewind_epochs:
            return f"rewound to epoch {self.rewind_epochs}"
        return (
            ", ".join(self.changes) or PATCHED_NAMES.get(self.plan) or PATCHED_NAMES.get(self.thresholding) or DEFAULT
        )

    @property
    def slug(self) -> str:
        """What tells its search from others of the same settings."""
        told = PATCHED_NAMES.get(self.plan) or PATCHED_NAMES.get(self.thresholding)
        return f"-{told.replace(' ', '-')}" if told else ""

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Inside, searches have its plan and its thresholding: what gained nothing is no setting of the library."""
        with patch.object(searcher, "Plan", self.plan), patch.object(pep, "soft_threshold", self.thresholding):
            yield


_FM = (
    Variant(about=""),
    Variant(about="deviation", changes=("embedding.learn_deviation=false",)),
    Variant(about="rewinding", rewind_epochs=1),
    Variant(about="rewinding", rewind_epochs=3),
    Variant(about="rewinding", changes=("rewind=random",)),
    Variant(about="rewinding", changes=("rewind=final",)),
    Variant(about="plan", changes=("search.plan_epochs=10",)),
    Variant(about="plan", changes=("search.plan_epochs=40",)),
    Variant(about="plan", plan=DeceleratingPlan),
    Variant(about="plan", plan=AcceleratingPlan),
    Variant(about="plan", plan=CubicPlan),
    Variant(about="threshold", thresholding=hard_when_late),
    Variant(about="warm-up", changes=("search.warmup_epochs=2",)),
    Variant(about="warm-up", changes=("search.warmup_patience=3",)),
    Variant(about="width", changes=("embedding.embedding_dim=32",)),
    Variant(about="width", changes=("embedding.embedding_dim=128",)),
    Variant(about="deviation", changes=("search.optimizer.threshold_learning_rate=0.0001",)),
    Variant(about="deviation", changes=("search.optimizer.threshold_learning_rate=0.01",)),
    Variant(about="score", changes=("embedding.threshold_function=sigmoid",)),
    Variant(about="L2 in search", changes=("search.optimizer.weight_decay=0",)),
    Variant(about="L2 in search", changes=("search.optimizer.weight_decay=0.0001",)),
    Variant(about="L2 in retraining", changes=("training.optimizer.weight_decay=0",)),
    Variant(about="L2 in retraining", changes=("training.optimizer.weight_decay=0.00003",)),
    Variant(about="rate in retraining", changes=("training.optimizer.learning_rate=0.0003",)),
    Variant(about="rate in retraining", changes=("training.optimizer.learning_rate=0.003",)),
    Variant(about="running mean", changes=("training.average_decay=0",)),
)

_DEEP = (
    Variant(about=""),
    Variant(about="dropout", changes=("model.dropout=0",)),
    Variant(about="dropout", changes=("model.dropout=0.2",)),
    Variant(about="length of retraining", changes=("training.patience=1",)),
    Variant(about="length of retraining", changes=("training.patience=10",)),
    Variant(about="width", changes=("embedding.embedding_dim=32",)),
    Variant(about="width", changes=("embedding.embedding_dim=128",)),
    Variant(about="rate in retraining", changes=("training.optimizer.learning_rate=0.001",)),
)
VARIANTS: Mapping[str, tuple[Variant, ...]] = {
    "fm": _FM,
    "deepfm": (*_DEEP, Variant(about="plan", changes=("search.plan_epochs=20",))),
    "autoint": (*_DEEP, Variant(about="plan", changes=("search.plan_epochs=40",))),
}
"""Model → what is changed of its experiment."""
