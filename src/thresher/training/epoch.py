"""One epoch of training, and one evaluation."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.modules.batchnorm import _BatchNorm

from thresher._internal.processes import Processes, current_processes
from thresher.embeddings.base import RowGradients
from thresher.errors import ThresherError
from thresher.training.devices import autocast, batches_on
from thresher.training.gradient_exchange import GradientExchange
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
    exchange: GradientExchange | None = None,
    stop: Callable[[], int] | None = None,
) -> float:
    """Train one epoch and return its mean loss per row (per unit of sample weight where there are weights).

    Args:
        start: number of batches to skip: those trained on before the epoch was resumed.
        on_step: called after each optimizer step with the step's index in the epoch (from 0) and its loss; returns True
            to end the epoch here.
        running: the loss of the batches before `start`.
        exchange: adds up the gradients of several processes, which share each batch.
        stop: passed on by `exchange`: above 0, all processes stop after this step.
    """
    if exchange is not None:
        batches = part_of_process(batches, exchange.processes)
    running = RunningLoss() if running is None else running
    device = device_of(model)
    model.train()
    for step, batch in enumerate(batches_on(batches.epoch(epoch, start), device), start):
        optimizer.zero_grad(set_to_none=True)
        may_be_one = exchange is not None or 0 < step == len(batches) - 1
        with lone_row(model, batch) if may_be_one else nullcontext():
            with autocast(device):
                loss, weight = mean_loss(model(*batch.inputs), batch) if _has_rows(batch) else _no_rows(batch)
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
        loss = loss.detach()
        if exchange is not None:
            loss = exchange(loss, 0 if stop is None else stop())
        optimizer.step()
        if exchange is not None:
            exchange.finish_step()
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


def part_of_process(batches: "BatchSource", processes: Processes) -> "BatchSource":
    """The process's part of each batch; raise if the source cannot be shared."""
    from thresher.data.batches.batches import shared_part

    return shared_part(batches, processes.rank, processes.size)


def _total_weight(batch: "Batch") -> float | None:
    return getattr(batch, "total_weight", None)  # users' own batches may lack it


def _has_rows(batch: "Batch") -> bool:
    return _total_weight(batch) is None or len(batch.labels) > 0


def _no_rows(batch: "Batch") -> tuple[Tensor, float]:
    """The loss of a process that has no row of a small batch."""
    return batch.labels.sum(), _total_weight(batch) or 0.0


def lone_row(model: nn.Module, batch: "Batch") -> AbstractContextManager[None]:
    """For a batch of one row, which has no variance: batch norm uses its running statistics inside."""
    if len(batch.labels) != 1:
        return nullcontext()
    return evaluation_mode(nn.ModuleList(module for module in model.modules() if isinstance(module, _BatchNorm)))


@torch.no_grad()
def predict(model: nn.Module, batches: "BatchSource") -> Iterator[tuple[int, "Batch", Tensor]]:
    """Each batch of a split with its first row and the model's logits `[B]`, in evaluation mode; modes are restored.

    Processes that train together get different batches: batch `k` is predicted by process `k mod size`.
    """
    device, processes, first = device_of(model), current_processes(), 0
    with evaluation_mode(model):
        for number, batch in enumerate(batches.epoch(0)):
            if processes is None or number % processes.size == processes.rank:
                moved = batch if device.type == "cpu" else batch.to(device)
                with autocast(device):
                    logits = model(*moved.inputs).float()
                yield first, moved, _as_labels(logits, moved.labels)
            first += len(batch.labels)
    if processes is not None:
        for module in model.modules():
            if isinstance(module, RowGradients):
                module.unite_records(processes)


@torch.no_grad()
def evaluate(
    model: nn.Module, batches: "BatchSource", *, feature_counts: Sequence[int] | NDArray[Any] | Tensor | None = None
) -> Metrics:
    """The model's metrics over a whole split, in evaluation mode; every module's mode is restored.

    `rare_auc` needs `feature_counts` `[N]` of the training split, and feature ids `[B, F]` as the first input.
    """
    counts = None if feature_counts is None else np.asarray(feature_counts)
    columns = predict_rows(model, batches, counts)
    if columns["labels"] is None:
        raise ThresherError("the split to evaluate on has no row")
    return compute_metrics(**columns)  # type: ignore[arg-type]


def predict_rows(
    model: nn.Module, batches: "BatchSource", counts: NDArray[Any] | None = None
) -> dict[str, NDArray[Any] | None]:
    """All rows of a split in order, also those that other processes predict: labels, logits, weights and row_counts.

    The last are the training counts of each row's rarest feature, if `counts` `[N]` are given. Absent columns are None.
    """
    firsts, labels, logits, weights, row_counts = [], [], [], [], []
    for first, batch, found in predict(model, batches):
        if counts is not None and (rarest := _rarest_counts(batch, counts)) is not None:
            row_counts.append(rarest)
        firsts.append(first)
        logits.append(found)
        labels.append(batch.labels)
        if batch.weights is not None:
            weights.append(batch.weights)
    columns = {"labels": _to_numpy(labels), "logits": _to_numpy(logits), "weights": _to_numpy(weights)}
    columns["row_counts"] = np.concatenate(row_counts) if row_counts else None
    if (processes := current_processes()) is not None:
        columns = _of_all_processes(columns, firsts, [len(part) for part in labels], processes)
    return columns


def _of_all_processes(
    columns: Mapping[str, NDArray[Any] | None], firsts: list[int], sizes: list[int], processes: Processes
) -> dict[str, NDArray[Any] | None]:
    """The columns of all processes in the order of the rows; each has predicted some batches."""
    every = processes.gather_objects((firsts, sizes, columns))
    order = np.argsort([first for parts, _, _ in every for first in parts], kind="stable")
    joined: dict[str, NDArray[Any] | None] = {}
    for name in columns:
        batches: list[NDArray[Any]] = []
        for _, lengths, found in every:
            if found[name] is not None:
                batches += np.split(found[name], np.cumsum(lengths)[:-1])
        joined[name] = np.concatenate([batches[place] for place in order]) if batches else None
    return joined


def mean_loss(logits: Tensor, batch: "Batch") -> tuple[Tensor, float | Tensor]:
    """A batch's mean loss, and its weight in the mean over batches. Independent of the scale of the sample weights."""
    labels = batch.labels.to(logits.dtype)
    logits = _as_labels(logits, labels)
    if (all_weights := _total_weight(batch)) is not None:  # the losses of all processes' parts add up to the mean
        losses = binary_cross_entropy_with_logits(logits, labels, weight=batch.weights, reduction="sum")
        return losses / max(all_weights, torch.finfo(losses.dtype).tiny), all_weights
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
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's parameters, to which batches (made on the CPU) must be moved."""
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def _to_numpy(parts: list[Tensor]) -> NDArray[Any] | None:
    return torch.cat(parts).float().cpu().numpy() if parts else None
