"""Knowledge distillation: soft labels from trained models, and the decision where to use them.

    target = (1 − teacher_share) · label + teacher_share · σ(teacher logit), averaged over several teachers

Only training rows get soft labels. Dropout and the embeddings' weight decay keep a model from memorising hard labels;
soft labels cannot be memorised that way, so both are scaled by `1 − teacher_share`. A search keeps its dropout: without
it the tickets of deep models get worse.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from thresher._internal.processes import current_processes
from thresher._internal.storage.sealed_arrays import load_array, save_array
from thresher.data.batches.batches import BatchSource, DistillableSource
from thresher.data.batches.split_batches import EVALUATION_BATCH_SIZE, SplitBatches
from thresher.errors import BudgetError, ConfigError
from thresher.training.epoch import predict
from thresher.training.optimizers import OptimizerConfig
from thresher.training.progress import Progress, StageProgress

MIN_GAIN = 0.001
"""Validation AUC that distillation must gain to be used; smaller differences are noise."""

_DROPOUT_ATTRIBUTES: Mapping[type[nn.Module], str] = {
    _DropoutNd: "p",
    nn.MultiheadAttention: "dropout",
    nn.RNNBase: "dropout",
}


@dataclass(frozen=True)
class SoftLabels:
    """Targets of the training rows, in table order, `[rows]`, that include a teacher's predictions."""

    labels: NDArray[np.float32] = field(repr=False)
    teacher_share: float

    @classmethod
    def from_teacher(
        cls,
        teacher: nn.Module,
        source: BatchSource,
        teacher_share: float,
        *,
        stage: str = "teacher",
        progress: Progress | None = None,
    ) -> "SoftLabels":
        """Predict every row of `source` with a trained model; `stage` is the name shown in the progress display."""
        check_teacher_share(teacher_share)
        batches = distillable(source).in_order(EVALUATION_BATCH_SIZE)
        shown = StageProgress(progress, stage=stage, max_epochs=1, num_steps=len(batches))
        labels = np.zeros(batches.num_rows, np.float32)
        for step, (start, batch, logits) in enumerate(predict(teacher, batches), 1):
            targets = (1 - teacher_share) * batch.labels + teacher_share * torch.sigmoid(logits)  # [B]
            labels[start : start + len(targets)] = targets.cpu().numpy()
            if shown.due():
                shown.report(step=step)
        shown.report(step=len(batches), finished=True)
        if (processes := current_processes()) is not None:  # each has predicted other rows
            processes.sum_(torch.from_numpy(labels))
        return cls(labels, teacher_share)

    @classmethod
    def mean(cls, parts: "Sequence[SoftLabels]") -> "SoftLabels":
        """The average over several teachers."""
        total = np.zeros(len(parts[0].labels), np.float32)
        for part in parts:  # one at a time: each may be a memory map of many rows
            total += part.labels
        total /= np.float32(len(parts))
        return cls(total, parts[0].teacher_share)

    @property
    def digest(self) -> str:
        """A short hash of the labels."""
        return hashlib.sha256(np.ascontiguousarray(self.labels).data).hexdigest()[:8]

    def save(self, path: Path) -> None:
        """Write the labels as `.npy`, atomically."""
        save_array(path, self.labels)

    @classmethod
    def load(cls, path: Path, teacher_share: float) -> "SoftLabels":
        """Open saved labels as a memory map."""
        return cls(load_array(path, "Delete these soft labels and resume, or set teacher_share = 0."), teacher_share)

    def relabel(self, data: SplitBatches) -> SplitBatches:
        """The same splits, with these labels on the training rows."""
        return replace(data, train=distillable(data.train).with_labels(self.labels))

    def scale_decay(self, optimizer: OptimizerConfig) -> OptimizerConfig:
        """The settings with the embeddings' weight decay scaled by `1 − teacher_share`."""
        decay = optimizer.weight_decay if optimizer.embedding_weight_decay is None else optimizer.embedding_weight_decay
        return replace(optimizer, embedding_weight_decay=decay * (1 - self.teacher_share))

    @contextmanager
    def scaled_dropout(self, model: nn.Module) -> Iterator[None]:
        """Inside, the dropout rates of torch's modules in `model` are scaled by `1 − teacher_share`."""
        found = [
            (module, attribute)
            for module in model.modules()
            for kind, attribute in _DROPOUT_ATTRIBUTES.items()
            if isinstance(module, kind)
        ]
        before = [getattr(module, attribute) for module, attribute in found]
        try:
            for (module, attribute), rate in zip(found, before, strict=True):
                setattr(module, attribute, rate * (1 - self.teacher_share))
            yield
        finally:
            for (module, attribute), rate in zip(found, before, strict=True):
                setattr(module, attribute, rate)


@dataclass(frozen=True)
class DistillationPlan:
    """Weight of the teachers' predictions in the labels of the search and of retraining; 0 is hard labels."""

    search: float
    retraining: float

    def __str__(self) -> str:
        if not self.retraining:
            return "hard-labels"
        return f"soft-labels-{self.retraining:g}{'-in-search' if self.search else ''}"

    @property
    def description(self) -> str:
        """For people: `hard labels`, `distillation in retraining`, `distillation in search and retraining`."""
        if not self.retraining:
            return "hard labels"
        return f"distillation in {'search and ' if self.search else ''}retraining"


HARD_LABELS = DistillationPlan(search=0.0, retraining=0.0)


def candidate_plans(teacher_share: float | None, distill_search: bool | None) -> list[DistillationPlan]:
    """The plans that validation decides between; one if both settings are given. Each distills more than the last.

    >>> [str(plan) for plan in candidate_plans(None, None)]
    ['hard-labels', 'soft-labels-1', 'soft-labels-1-in-search']
    >>> [str(plan) for plan in candidate_plans(0.5, False)]
    ['soft-labels-0.5']
    """
    shares = (0.0, 1.0) if teacher_share is None else (teacher_share,)
    in_search = (False, True) if distill_search is None else (distill_search,)
    plans = [DistillationPlan(share if search else 0.0, share) for share in shares for search in in_search]
    return list(dict.fromkeys(plans))  # with hard labels there is nothing to distill into the search


@dataclass(frozen=True)
class PlanChoice:
    """Which plan was chosen, the validation AUC under each, and why one could not be tried.

    Attributes:
        size: the budget whose ticket was trained under each plan; None for a trial of a fixed size.
    """

    best: DistillationPlan
    validation_aucs: Mapping[str, float]
    failed: str | None = None
    size: str | None = None


def choose_plan(plans: Sequence[DistillationPlan], validation_auc: Callable[[DistillationPlan], float]) -> PlanChoice:
    """Try plan after plan while each gains at least `MIN_GAIN` of validation AUC over the one before."""
    best, aucs = plans[0], {str(plans[0]): validation_auc(plans[0])}
    for plan in plans[1:]:
        try:
            aucs[str(plan)] = validation_auc(plan)
        except BudgetError as error:  # a search on soft labels may not reach a budget; hard labels did
            return PlanChoice(best, aucs, f"{plan}: {error}")
        if aucs[str(plan)] < aucs[str(best)] + MIN_GAIN:
            break
        best = plan
    return PlanChoice(best, aucs)


def check_teacher_share(teacher_share: float) -> None:
    if not 0.0 <= teacher_share <= 1.0:
        raise ConfigError(f"teacher_share is {teacher_share}; it must be between 0 (hard labels) and 1 (teacher alone)")


def check_distillation(
    teacher_share: float | None, distill_search: bool | None, *, num_teachers: int = 1, num_other_models: int = 0
) -> None:
    """Raise if distillation settings contradict each other."""
    check_teacher_share(0.0 if teacher_share is None else teacher_share)
    if num_teachers < 1:
        raise ConfigError(f"num_teachers is {num_teachers}; it must be at least 1, or set teacher_share = 0")
    if teacher_share == 0:
        settings = {
            "distill_search is true": bool(distill_search),
            f"num_teachers is {num_teachers}": num_teachers > 1,
            "teacher_models are given": num_other_models > 0,
        }
        for setting, contradicts in settings.items():
            if contradicts:
                raise ConfigError(f"{setting}, but teacher_share is 0 (no distillation). Remove one of the two")


def distillable(source: BatchSource) -> DistillableSource:
    """The source itself; raise if its rows cannot get soft labels."""
    if isinstance(source, DistillableSource):
        return source
    raise ConfigError(
        f"{type(source).__name__} does not support soft labels: it needs in_order() and with_labels(). Set "
        "teacher_share = 0, or use TensorBatches."
    )
