"""The dense model as a teacher: its predictions become part of what a pruned model is retrained on.

    target = (1 − share) · label + share · σ(logit of the teacher)

A label says which side of the odds a row fell on, a prediction what the odds were. Labels can be learned by heart, and
dropout and the embeddings' weight decay are there to hinder it; predictions cannot, so both fall by the factor `1 −
share`. Training rows alone are taught: validation and test keep their labels. The predictions are made once, in one
pass: retraining costs no more than without, and the teacher need not stay in memory.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from thresher.data.batches import BatchSource, TeachableSource
from thresher.data.split_batches import EVALUATION_BATCH_SIZE, SplitBatches
from thresher.errors import ConfigError
from thresher.files import replacing_file
from thresher.training.fit import TrainingConfig
from thresher.training.loop import predict
from thresher.training.progress import Progress, StageProgress

BY_LABELS = "by-labels"
"""What a folder of trainings without a teacher is called."""
_DROPOUT_NAMES: Mapping[type[nn.Module], str] = {
    _DropoutNd: "p",
    nn.MultiheadAttention: "dropout",
    nn.RNNBase: "dropout",
}


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
    def by(cls, teacher: nn.Module, source: BatchSource, share: float, *, progress: Progress | None = None) -> "Lesson":
        """Ask a trained model about every row of `source`."""
        check_share(share)
        batches = _teachable(source).in_order(EVALUATION_BATCH_SIZE)
        stage = StageProgress(progress, stage="teacher", max_epochs=1, num_steps=len(batches))
        labels, at = np.empty(batches.num_rows, np.float32), 0
        for step, (batch, logits) in enumerate(predict(teacher, batches), 1):
            targets = (1 - share) * batch.labels + share * torch.sigmoid(logits)  # [B]
            labels[at : at + len(targets)] = targets.cpu().numpy()
            at += len(targets)
            if stage.due():
                stage.report(step=step)
        stage.report(step=len(batches), finished=True)
        return cls(labels, share)

    def save(self, path: Path) -> None:
        """Write the labels beside, then rename."""
        with replacing_file(path) as beside, beside.open("wb") as file:
            np.save(file, self.labels, allow_pickle=False)

    @classmethod
    def load(cls, path: Path, share: float) -> "Lesson":
        """The labels as a memory map: a batch reads its own rows alone."""
        try:
            labels: NDArray[np.float32] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ConfigError(
                f"the teacher's labels cannot be read ({error}); train the dense model first, or set teacher_share = 0"
            ) from None
        return cls(labels, share)

    def taught(self, data: SplitBatches) -> SplitBatches:
        """The same splits, the training rows with these labels."""
        return replace(data, train=_teachable(data.train).with_labels(self.labels))

    def eased(self, config: TrainingConfig) -> TrainingConfig:
        """Training settings with the weight decay that is left for the embeddings."""
        told = config.optimizer.embedding_weight_decay
        decay = (config.optimizer.weight_decay if told is None else told) * (1 - self.share)
        return replace(config, optimizer=replace(config.optimizer, embedding_weight_decay=decay))

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

    @property
    def way(self) -> str:
        """What a folder of trainings by it is called."""
        return f"taught-{self.share:g}"


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
