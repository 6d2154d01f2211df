"""One epoch of training, one evaluation. What is trained, and for how long, others decide (`fit`, the search)."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.modules.batchnorm import _BatchNorm

from thresher.errors import ThresherError
from thresher.training.metrics import Metrics, compute_metrics
from thresher.training.progress import StageProgress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from thresher.data.batches.batches import Batch, BatchSource


@runtime_checkable
class CatchesUp(Protocol):
    """An optimizer that puts work off, and can be asked to do it (`RowAdam`)."""

    def catch_up(self) -> None: ...


OnStep = Callable[[int, Tensor], None]
STEPS_BETWEEN_CHECKS = 128  # reading a loss waits for the device, so it is done in lots


class RunningLoss:
    """The mean training loss of an epoch, collected without waiting for any step's result.

    The sum is taken step by step in float64, so it does not depend on when it is read: an interrupted epoch that goes
    on from `state` ends with the very same mean.
    """

    def __init__(self, *, total: float = 0.0, weight: float = 0.0) -> None:
        self.total = total
        self.weight = weight
        self._pending: list[tuple[int, Tensor, float | Tensor]] = []

    def add(self, epoch: int, step: int, loss: Tensor, weight: float | Tensor) -> None:
        """Take in one step's mean loss; `weight` is its number of rows, or the sum of their sample weights."""
        self._pending.append((step, loss, weight))
        if len(self._pending) >= STEPS_BETWEEN_CHECKS:
            self.read(epoch)

    def read(self, epoch: int) -> float:
        """The mean so far.

        Raises:
            ThresherError: a loss was not finite.
        """
        if self._pending:
            losses: list[float] = torch.stack([loss for _, loss, _ in self._pending]).tolist()
            for loss, (step, _, weight) in zip(losses, self._pending, strict=True):
                if not math.isfinite(loss):
                    raise ThresherError(
                        f"the training loss became {loss} in epoch {epoch}, step {step + 1}. Lower the learning rate, "
                        "scale the dense columns, or look for NaN and extreme values in them"
                    )
                self.total += loss * float(weight)
                self.weight += float(weight)
            self._pending.clear()
        return self.total / self.weight if self.weight else 0.0

    def state(self, epoch: int) -> dict[str, float]:
        """Plain data from which `RunningLoss(**state)` goes on."""
        self.read(epoch)
        return {"total": self.total, "weight": self.weight}


def train_epoch(
    model: nn.Module,
    batches: "BatchSource",
    optimizer: torch.optim.Optimizer,
    epoch: int,
    *,
    start: int = 0,
    on_step: OnStep | None = None,
    progress: StageProgress | None = None,
    running: RunningLoss | None = None,
) -> float:
    """Train one epoch and return its mean loss per row (per unit of sample weight where there are weights).

    Args:
        epoch: number of the epoch, from 1; with the source's seed it fixes the order of the batches.
        start: batches of this epoch already trained on; they are skipped.
        on_step: called after each optimizer step with the step's index in the epoch (from 0) and its loss, a tensor
            without graph.
        running: the loss of the batches before `start`, when an epoch is taken up again.

    Raises:
        ThresherError: the loss is not finite, or there is no row to train on.
    """
    running = RunningLoss() if running is None else running
    device, moves = _device(model)
    model.train()
    for step, batch in enumerate(batches.epoch(epoch, start), start):
        if moves:
            batch = batch.to(device)
        optimizer.zero_grad(set_to_none=True)
        with lone_row(model, batch) if 0 < step == len(batches) - 1 else nullcontext():
            loss, weight = mean_loss(model(*batch.inputs), batch)
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss = loss.detach()
        running.add(epoch, step, loss, weight)
        if on_step is not None:
            on_step(step, loss)
        if progress is not None and progress.due():
            progress.report(epoch=epoch, step=step + 1, loss=running.read(epoch))
    if isinstance(optimizer, CatchesUp):
        optimizer.catch_up()  # rows absent from the last batches still owe what dense updates have done already
    mean = running.read(epoch)
    if not running.weight:
        raise ThresherError("there is nothing to train on: no row, or none with a sample weight above 0")
    if progress is not None:
        progress.report(epoch=epoch, step=len(batches), loss=mean)
    return mean


def lone_row(model: nn.Module, batch: "Batch") -> AbstractContextManager[None]:
    """For the last batch: a row left alone there has no spread, so batch norm takes the statistics it has."""
    if len(batch.labels) != 1:
        return nullcontext()
    return _evaluation_mode(nn.ModuleList(module for module in model.modules() if isinstance(module, _BatchNorm)))


@torch.no_grad()
def predict(model: nn.Module, batches: "BatchSource") -> "Iterator[tuple[Batch, Tensor]]":
    """Each batch of a split, in order, with the model's logits `[B]`, in evaluation mode; modes are restored."""
    device, moves = _device(model)
    with _evaluation_mode(model):
        for batch in batches.epoch(0):
            moved = batch.to(device) if moves else batch
            yield moved, _fitting(model(*moved.inputs), moved.labels)


@torch.no_grad()
def evaluate(
    model: nn.Module, batches: "BatchSource", *, feature_counts: Sequence[int] | NDArray[Any] | Tensor | None = None
) -> Metrics:
    """The model's metrics over a whole split, in evaluation mode; every module's mode is restored.

    Args:
        feature_counts: count of each of the `N` features in the training split, for `rare_auc`; needs the batches'
            first input to be feature ids `[B, F]`.
    """
    counts = None if feature_counts is None else np.asarray(feature_counts)
    labels, logits, weights, row_counts = [], [], [], []
    for batch, found in predict(model, batches):
        if counts is not None and (rarest := _rarest_counts(batch, counts)) is not None:
            row_counts.append(rarest)
        logits.append(found)
        labels.append(batch.labels)
        if batch.weights is not None:
            weights.append(batch.weights)
    if not labels:
        raise ThresherError("there is nothing to evaluate on: the split has no row")
    return compute_metrics(
        _to_numpy(labels),
        _to_numpy(logits),
        weights=_to_numpy(weights) if weights else None,
        row_counts=np.concatenate(row_counts) if row_counts else None,
    )


def mean_loss(logits: Tensor, batch: "Batch") -> tuple[Tensor, float | Tensor]:
    """A batch's mean loss, and its weight in the mean over batches. Scaling all sample weights changes nothing."""
    labels = batch.labels.to(logits.dtype)
    logits = _fitting(logits, labels)
    if batch.weights is None:
        return binary_cross_entropy_with_logits(logits, labels), float(len(labels))
    total = batch.weights.sum()
    losses = binary_cross_entropy_with_logits(logits, labels, weight=batch.weights, reduction="sum")
    return losses / total.clamp_min(torch.finfo(losses.dtype).tiny), total.detach()


def _fitting(logits: Tensor, labels: Tensor) -> Tensor:
    """Logits `[B]`; foreign models may give `[B, 1]`."""
    if logits.shape == labels.shape:
        return logits
    if logits.numel() != labels.numel():
        raise ThresherError(
            f"the model returned logits of shape {list(logits.shape)} for labels of shape {list(labels.shape)}; "
            "it must return one logit per row"
        )
    return logits.reshape(labels.shape)


def _rarest_counts(batch: "Batch", counts: NDArray[Any]) -> NDArray[Any] | None:
    """For each row the training count of its rarest feature `[B]`; None where every field is multi-valued."""
    ids = batch.inputs[0] if batch.inputs else None
    if not isinstance(ids, Tensor) or ids.is_floating_point():
        raise ThresherError(
            "feature_counts were given, but the batches' first input is no tensor of feature ids; "
            "leave feature_counts out for such a model"
        )
    if not ids.numel():
        return None
    rarest: NDArray[Any] = counts[ids.reshape(len(batch.labels), -1).cpu().numpy()].min(axis=1)
    return rarest


@contextmanager
def _evaluation_mode(model: nn.Module) -> "Iterator[None]":
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _device(model: nn.Module) -> tuple[torch.device, bool]:
    """Where the model lives, and whether batches (made on the CPU) must be moved there."""
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    return device, device.type != "cpu"


def _to_numpy(parts: list[Tensor]) -> NDArray[Any]:
    return torch.cat(parts).float().cpu().numpy()
