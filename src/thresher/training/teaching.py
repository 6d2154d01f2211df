"""The dense model as a teacher: its predictions become part of what a pruned model is retrained on.

    target = (1 − share) · label + share · σ(logit of the teacher)

A hard label says which side of the odds a row fell on, a prediction what the odds were: small tables and deep networks
learn by heart less of the first kind. Training rows alone are taught; validation and test keep their labels. The
predictions are made once, in one pass, so retraining costs no more than without, and the teacher need not stay in
memory.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from thresher.data.batches import BatchSource, RelabelledSource
from thresher.errors import ConfigError
from thresher.files import replacing_file
from thresher.training.loop import predict
from thresher.training.progress import Progress, StageProgress

if TYPE_CHECKING:
    from thresher.data.split_batches import SplitBatches

Labels = NDArray[np.float32]


def check_share(share: float) -> None:
    """Raise unless `share` is a part of the target that can be the teacher's."""
    if not 0.0 <= share <= 1.0:
        raise ConfigError(f"teacher_share is {share}; it must lie between 0 (labels alone) and 1 (predictions alone)")


def soft_labels(teacher: nn.Module, source: BatchSource, share: float, *, progress: Progress | None = None) -> Labels:
    """The targets `[rows]` of all rows of `source`, in their order."""
    check_share(share)
    batches = _relabelled(source).in_order()
    stage = StageProgress(progress, stage="teacher", max_epochs=1, num_steps=len(batches))
    labels, at = np.empty(batches.num_rows, np.float32), 0
    for step, (batch, logits) in enumerate(predict(teacher, batches), 1):
        targets = (1 - share) * batch.labels + share * torch.sigmoid(logits)  # [B]
        labels[at : at + len(targets)] = targets.cpu().numpy()
        at += len(targets)
        if stage.due():
            stage.report(step=step)
    stage.report(step=len(batches), finished=True)
    return labels


def save_labels(labels: Labels, path: Path) -> None:
    """Write targets beside, then rename."""
    with replacing_file(path) as beside, beside.open("wb") as file:
        np.save(file, labels, allow_pickle=False)


def load_labels(path: Path) -> Labels:
    """Targets as a memory map: a batch reads its own rows alone."""
    try:
        labels: Labels = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ConfigError(
            f"the teacher's labels cannot be read ({error}); train the dense model first, or set teacher_share = 0"
        ) from None
    return labels


def taught(data: "SplitBatches", labels: Labels) -> "SplitBatches":
    """The same splits, the training rows with soft labels `[rows]`."""
    return replace(data, train=_relabelled(data.train).with_labels(labels))


def _relabelled(source: BatchSource) -> RelabelledSource:
    if isinstance(source, RelabelledSource):
        return source
    raise ConfigError(
        f"{type(source).__name__} cannot be given soft labels: it has no in_order() and with_labels(); "
        "set teacher_share = 0, or use TensorBatches"
    )
