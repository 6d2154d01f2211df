"""One epoch of training, one evaluation, and Ctrl-C deferred to the end of a step."""

import math
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any

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
    from thresher.data.batches.batches import Batch, BatchSource


OnStep = Callable[[int, Tensor], bool | None]
STEPS_BETWEEN_CHECKS = 128  # reading a loss waits for the device


class RunningLoss:
    """The mean loss of an epoch, read every few steps; summed in float64, so a resumed epoch has the same mean."""

    def __init__(self, *, total: float = 0.0, weight: float = 0.0) -> None:
        self.total = total
        self.weight = weight
        self._pending: list[tuple[int, Tensor, float | Tensor]] = []

    def add(self, epoch: int, step: int, loss: Tensor, weight: float | Tensor) -> None:
        """Add one step's mean loss; `weight` is its number of rows, or the sum of their sample weights."""
        self._pending.append((step, loss, weight))
        if len(self._pending) >= STEPS_BETWEEN_CHECKS:
            self.read(epoch)

    def read(self, epoch: int) -> float:
        """The mean so far; raises `ThresherError` if a loss was not finite."""
        if self._pending:
            losses: list[float] = torch.stack([loss for _, loss, _ in self._pending]).tolist()
            for loss, (step, _, weight) in zip(losses, self._pending, strict=True):
                if not math.isfinite(loss):
                    where = f"the training loss became {loss} in epoch {epoch}, step {step + 1}"
                    raise ThresherError(f"{where}. Lower the learning rate, or check the scale of the dense columns")
                self.total += loss * float(weight)
                self.weight += float(weight)
            self._pending.clear()
        return self.total / self.weight if self.weight else 0.0

    def state(self, epoch: int) -> dict[str, float]:
        """Plain data from which `RunningLoss(**state)` resumes."""
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
        start: number of batches to skip: those trained on before the epoch was resumed.
        on_step: called after each optimizer step with the step's index in the epoch (from 0) and its loss; returns True
            to end the epoch here.
        running: the loss of the batches before `start`.
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
        if on_step is not None and on_step(step, loss):
            break
        if progress is not None and progress.due():
            progress.report(epoch=epoch, step=step + 1, loss=running.read(epoch))
    if (catch_up := getattr(optimizer, "catch_up", None)) is not None:
        catch_up()  # RowAdam: apply the updates deferred for rows absent from the last batches
    mean = running.read(epoch)
    if not running.weight:
        raise ThresherError("the training split has no row with a sample weight above 0")
    if progress is not None:
        progress.report(epoch=epoch, step=len(batches), loss=mean)
    return mean


def lone_row(model: nn.Module, batch: "Batch") -> AbstractContextManager[None]:
    """For a batch of one row, which has no variance: batch norm uses its running statistics inside."""
    if len(batch.labels) != 1:
        return nullcontext()
    return _evaluation_mode(nn.ModuleList(module for module in model.modules() if isinstance(module, _BatchNorm)))


@torch.no_grad()
def predict(model: nn.Module, batches: "BatchSource") -> Iterator[tuple["Batch", Tensor]]:
    """Each batch of a split, in order, with the model's logits `[B]`, in evaluation mode; modes are restored."""
    device, moves = _device(model)
    with _evaluation_mode(model):
        for batch in batches.epoch(0):
            moved = batch.to(device) if moves else batch
            yield moved, _as_labels(model(*moved.inputs), moved.labels)


@torch.no_grad()
def evaluate(
    model: nn.Module, batches: "BatchSource", *, feature_counts: Sequence[int] | NDArray[Any] | Tensor | None = None
) -> Metrics:
    """The model's metrics over a whole split, in evaluation mode; every module's mode is restored.

    `rare_auc` needs `feature_counts` `[N]` of the training split, and feature ids `[B, F]` as the first input.
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
        raise ThresherError("the split to evaluate on has no row")
    return compute_metrics(
        _to_numpy(labels),
        _to_numpy(logits),
        weights=_to_numpy(weights) if weights else None,
        row_counts=np.concatenate(row_counts) if row_counts else None,
    )


def mean_loss(logits: Tensor, batch: "Batch") -> tuple[Tensor, float | Tensor]:
    """A batch's mean loss, and its weight in the mean over batches. Independent of the scale of the sample weights."""
    labels = batch.labels.to(logits.dtype)
    logits = _as_labels(logits, labels)
    if batch.weights is None:
        return binary_cross_entropy_with_logits(logits, labels), float(len(labels))
    total = batch.weights.sum()
    losses = binary_cross_entropy_with_logits(logits, labels, weight=batch.weights, reduction="sum")
    return losses / total.clamp_min(torch.finfo(losses.dtype).tiny), total.detach()


def _as_labels(logits: Tensor, labels: Tensor) -> Tensor:
    """Logits `[B]`; user-defined models may return `[B, 1]`."""
    if logits.shape == labels.shape:
        return logits
    if logits.numel() != labels.numel():
        shapes = f"logits of shape {list(logits.shape)} for labels of shape {list(labels.shape)}"
        raise ThresherError(f"the model returned {shapes}. It must return one logit per row")
    return logits.reshape(labels.shape)


def _rarest_counts(batch: "Batch", counts: NDArray[Any]) -> NDArray[Any] | None:
    """For each row the training count of its rarest feature `[B]`; None where every field is multi-valued."""
    ids = batch.inputs[0] if batch.inputs else None
    if not isinstance(ids, Tensor) or ids.is_floating_point():
        raise ThresherError("feature_counts need feature ids, but the batches' first input is not an integer tensor")
    if not ids.numel():
        return None
    rarest: NDArray[Any] = counts[ids.reshape(len(batch.labels), -1).cpu().numpy()].min(axis=1)
    return rarest


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _device(model: nn.Module) -> tuple[torch.device, bool]:
    """The model's device, and whether batches (made on the CPU) must be moved there."""
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    return device, device.type != "cpu"


def _to_numpy(parts: list[Tensor]) -> NDArray[Any]:
    return torch.cat(parts).float().cpu().numpy()


class SafeInterrupt(KeyboardInterrupt):
    """Ctrl-C, raised between two steps, when a checkpoint is consistent."""


class Interrupts:
    """Records Ctrl-C until `raise_if_pending()` is called. A second Ctrl-C raises `KeyboardInterrupt` at once."""

    def __init__(self) -> None:
        self.pending = False
        self._immediate = False

    def raise_if_pending(self) -> None:
        """Call this between steps."""
        if self.pending:
            self.pending = False
            raise SafeInterrupt

    @contextmanager
    def immediate(self) -> Iterator[None]:
        """Inside, Ctrl-C is raised at once: nothing changes that a checkpoint holds (e.g. an evaluation)."""
        self.raise_if_pending()
        self._immediate = True
        try:
            yield
        finally:
            self._immediate = False

    def handle(self, signum: int, frame: FrameType | None) -> None:
        if self.pending:
            raise KeyboardInterrupt
        self.pending = True
        if self._immediate:
            self.raise_if_pending()


@contextmanager
def deferred_interrupts() -> Iterator[Interrupts]:
    """Defer Ctrl-C until `raise_if_pending()` or the end of the block; only in the main thread."""
    interrupts = Interrupts()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield interrupts
        return
    signal.signal(signal.SIGINT, interrupts.handle)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts.pending:
        raise KeyboardInterrupt
