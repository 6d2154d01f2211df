"""Lesson: a trained model as a teacher, its predictions part of what another training learns from.

    target = (1 − share) · label + share · σ(logit of the teacher), the mean of them where there are several

A label says which side of the odds a row fell on, a prediction what the odds were. Labels can be learned by heart, and
dropout and the embeddings' weight decay are there to hinder it; predictions cannot, so both fall by the factor `1 −
share`; in a search dropout stays, since without it tickets of deep models get worse. Training rows alone are taught:
validation and test keep their labels. The predictions are made once, in one pass: learning from them costs no more than
from labels, and the teacher need not stay in memory. Not here: whether it helps to be taught
(`thresher.training.teaching`).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from thresher._internal.files import atomic_file
from thresher.data.batches.batches import BatchSource, TeachableSource
from thresher.data.batches.split_batches import EVALUATION_BATCH_SIZE, SplitBatches
from thresher.errors import ConfigError
from thresher.training.loop import predict
from thresher.training.optimizers import OptimizerConfig
from thresher.training.progress import Progress, StageProgress

_DROPOUT_NAMES: Mapping[type[nn.Module], str] = {
    _DropoutNd: "p",
    nn.MultiheadAttention: "dropout",
    nn.RNNBase: "dropout",
}


class TrainsWithOptimizer(Protocol):
    """Settings with `optimizer` among them: of a training or of a search, a frozen dataclass."""

    @property
    def optimizer(self) -> OptimizerConfig: ...


ConfigT = TypeVar("ConfigT", bound=TrainsWithOptimizer)


@dataclass(frozen=True)
class Lesson:
    """What a teacher would have others learn.

    Attributes:
        labels: the targets of the training rows, in their order, `[rows]`.
        share: the teacher's part in them.
    """

    labels: NDArray[np.float32] = field(repr=False)
    share: float

    @classmethod
    def by(
        cls,
        teacher: nn.Module,
        source: BatchSource,
        share: float,
        *,
        stage: str = "teacher",
        progress: Progress | None = None,
    ) -> "Lesson":
        """Ask a trained model about every row of `source`; `stage` is what progress calls it."""
        check_share(share)
        batches = _teachable(source).in_order(EVALUATION_BATCH_SIZE)
        shown = StageProgress(progress, stage=stage, max_epochs=1, num_steps=len(batches))
        labels, at = np.empty(batches.num_rows, np.float32), 0
        for step, (batch, logits) in enumerate(predict(teacher, batches), 1):
            targets = (1 - share) * batch.labels + share * torch.sigmoid(logits)  # [B]
            labels[at : at + len(targets)] = targets.cpu().numpy()
            at += len(targets)
            if shown.due():
                shown.report(step=step)
        shown.report(step=len(batches), finished=True)
        return cls(labels, share)

    @classmethod
    def mean(cls, lessons: "Sequence[Lesson]") -> "Lesson":
        """What several teachers say on average: each errs on other rows, and labels one has learned by heart fade."""
        total = np.zeros(len(lessons[0].labels), np.float32)
        for lesson in lessons:  # one at a time: they may be memory maps of very many rows
            total += lesson.labels
        total /= np.float32(len(lessons))
        return cls(total, lessons[0].share)

    @property
    def digest(self) -> str:
        """A short name: lessons that say something else have another."""
        return hashlib.sha256(np.ascontiguousarray(self.labels).data).hexdigest()[:8]

    def save(self, path: Path) -> None:
        """Write the labels beside, then rename."""
        with atomic_file(path) as beside, beside.open("wb") as file:
            np.save(file, self.labels, allow_pickle=False)

    @classmethod
    def load(cls, path: Path, share: float) -> "Lesson":
        """The labels as a memory map: a batch reads its own rows alone."""
        try:
            labels: NDArray[np.float32] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ConfigError(
                f"the teacher's labels in {path} cannot be read ({error}); delete that file, and a resumed run "
                "makes it again, or set teacher_share = 0"
            ) from None
        return cls(labels, share)

    def taught(self, data: SplitBatches) -> SplitBatches:
        """The same splits, the training rows with these labels."""
        return replace(data, train=_teachable(data.train).with_labels(self.labels))

    def eased(self, config: ConfigT) -> ConfigT:
        """Settings with the weight decay that is left for the embeddings."""
        told = config.optimizer.embedding_weight_decay
        decay = (config.optimizer.weight_decay if told is None else told) * (1 - self.share)
        optimizer = replace(config.optimizer, embedding_weight_decay=decay)
        return replace(config, optimizer=optimizer)  # type: ignore[type-var]

    @contextmanager
    def easing_dropout(self, model: nn.Module) -> Iterator[None]:
        """Inside, the dropout of torch's modules in a model is scaled by what is left for the labels."""
        found = [(module, _DROPOUT_NAMES[kind]) for module in model.modules() for kind in _kinds(module)]
        before = [getattr(module, name) for module, name in found]
        try:
            for (module, name), rate in zip(found, before, strict=True):
                setattr(module, name, rate * (1 - self.share))
            yield
        finally:
            for (module, name), rate in zip(found, before, strict=True):
                setattr(module, name, rate)


def check_share(share: float) -> None:
    """Raise unless `share` is a part of the target that can be the teacher's."""
    if not 0.0 <= share <= 1.0:
        raise ConfigError(f"teacher_share is {share}; it must lie between 0 (labels alone) and 1 (predictions alone)")


def _kinds(module: nn.Module) -> list[type[nn.Module]]:
    return [kind for kind in _DROPOUT_NAMES if isinstance(module, kind)]


def _teachable(source: BatchSource) -> TeachableSource:
    if isinstance(source, TeachableSource):
        return source
    raise ConfigError(
        f"{type(source).__name__} cannot be given soft labels: it has no in_order() and with_labels(); "
        "set teacher_share = 0, or use TensorBatches"
    )
