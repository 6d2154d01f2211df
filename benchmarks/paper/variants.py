"""The variants of the ablation: each changes one setting, or patches one piece of the search that has no setting."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from torch import Tensor

from thresher.baselines.magnitude import CubicPlan
from thresher.embeddings import pep
from thresher.embeddings.thresholds import keep_mask, soft_threshold
from thresher.search import searcher
from thresher.search.schedule import Plan

DEFAULT = "the defaults"
LATE = 0.2
"""A search is late when at most this share of a batch's entries is kept."""

Thresholding = Callable[[Tensor, Tensor], Tensor]


class DeceleratingPlan(Plan):
    """The geometric plan with `1 − (1 − t)²` in place of `t`: most steps have small sizes."""

    def num_kept(self, step: int) -> int:
        left = max(0.0, 1 - step / self.num_steps)
        return super().num_kept(round(self.num_steps * (1 - left**2)))


class AcceleratingPlan(Plan):
    """The geometric plan with `t²` in place of `t`: most steps have large sizes."""

    def num_kept(self, step: int) -> int:
        return super().num_kept(round(step**2 / self.num_steps))


def hard_when_late(values: Tensor, threshold: Tensor) -> Tensor:
    """Soft threshold that becomes hard late in a search: kept entries keep their value, thresholds get no gradient."""
    kept = keep_mask(values, threshold)
    return values * kept if kept.float().mean() < LATE else soft_threshold(values, threshold)


PATCHED_NAMES: Mapping[object, str] = {
    DeceleratingPlan: "slows down",
    AcceleratingPlan: "speeds up",
    CubicPlan: "cubic",
    hard_when_late: "hard when late",
}
"""Patched piece → its name in tables and result files."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One change of the defaults.

    Attributes:
        topic: what the variant is about, for the table.
        changes: settings in the format of `thresher prune --set`.
        rewind_epochs: retrain from the weights of the unpruned model after this many epochs.
        plan: the class of the plan.
        thresholding: the function that is applied to the values of a batch.
    """

    topic: str
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
        """Suffix of the search's folder; different from other searches with the same settings."""
        name = PATCHED_NAMES.get(self.plan) or PATCHED_NAMES.get(self.thresholding)
        return f"-{name.replace(' ', '-')}" if name else ""

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Patch the plan and the thresholding of searches; the library has no settings for them."""
        with patch.object(searcher, "Plan", self.plan), patch.object(pep, "soft_threshold", self.thresholding):
            yield


_FM = (
    Variant(topic=""),
    Variant(topic="deviation", changes=("embedding.learn_deviation=false",)),
    Variant(topic="rewinding", rewind_epochs=1),
    Variant(topic="rewinding", rewind_epochs=3),
    Variant(topic="rewinding", changes=("rewind=random",)),
    Variant(topic="rewinding", changes=("rewind=final",)),
    Variant(topic="plan", changes=("search.plan_epochs=10",)),
    Variant(topic="plan", changes=("search.plan_epochs=40",)),
    Variant(topic="plan", plan=DeceleratingPlan),
    Variant(topic="plan", plan=AcceleratingPlan),
    Variant(topic="plan", plan=CubicPlan),
    Variant(topic="threshold", thresholding=hard_when_late),
    Variant(topic="warm-up", changes=("search.warmup_epochs=2",)),
    Variant(topic="warm-up", changes=("search.warmup_patience=3",)),
    Variant(topic="embedding dimension", changes=("embedding.embedding_dim=32",)),
    Variant(topic="embedding dimension", changes=("embedding.embedding_dim=128",)),
    Variant(topic="deviation", changes=("search.optimizer.threshold_learning_rate=0.0001",)),
    Variant(topic="deviation", changes=("search.optimizer.threshold_learning_rate=0.01",)),
    Variant(topic="threshold function", changes=("embedding.threshold_function=sigmoid",)),
    Variant(topic="L2 in search", changes=("search.optimizer.weight_decay=0",)),
    Variant(topic="L2 in search", changes=("search.optimizer.weight_decay=0.0001",)),
    Variant(topic="L2 in retraining", changes=("training.optimizer.weight_decay=0",)),
    Variant(topic="L2 in retraining", changes=("training.optimizer.weight_decay=0.00003",)),
    Variant(topic="learning rate in retraining", changes=("training.optimizer.learning_rate=0.0003",)),
    Variant(topic="learning rate in retraining", changes=("training.optimizer.learning_rate=0.003",)),
    Variant(topic="weight average", changes=("training.average_decay=0",)),
)

_DEEP = (
    Variant(topic=""),
    Variant(topic="dropout", changes=("model.dropout=0",)),
    Variant(topic="dropout", changes=("model.dropout=0.2",)),
    Variant(topic="length of retraining", changes=("training.patience=1",)),
    Variant(topic="length of retraining", changes=("training.patience=10",)),
    Variant(topic="embedding dimension", changes=("embedding.embedding_dim=32",)),
    Variant(topic="embedding dimension", changes=("embedding.embedding_dim=128",)),
    Variant(topic="learning rate in retraining", changes=("training.optimizer.learning_rate=0.001",)),
)
VARIANTS: Mapping[str, tuple[Variant, ...]] = {
    "fm": _FM,
    "deepfm": (*_DEEP, Variant(topic="plan", changes=("search.plan_epochs=20",))),
    "autoint": (*_DEEP, Variant(topic="plan", changes=("search.plan_epochs=40",))),
}
"""Model → variants of its experiment."""
