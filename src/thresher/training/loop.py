"""The training loop: epochs until a controller has finished, with checkpoints from which it resumes bit for bit."""

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from thresher._internal.mapped_tensors import tensor_state
from thresher._internal.processes import OwnState, Processes, agreed, current_processes
from thresher.errors import ConfigError, FormatError, TimeLimitReached
from thresher.training.averaging import WeightAverage
from thresher.training.checkpoint import (
    Checkpoint,
    History,
    Record,
    capture_rng_state,
    derive_seed,
    isolated_rng,
    pack_optimizer,
    restore_rng_state,
    seed_all,
    unpack_model_,
    unpack_optimizer_,
    weights_digest,
)
from thresher.training.devices import tiny_numbers_as_zero
from thresher.training.epoch import RunningLoss, evaluate, train_epoch
from thresher.training.gradient_exchange import GradientExchange
from thresher.training.interrupts import SafeInterrupt, deferred_interrupts
from thresher.training.metrics import Metrics
from thresher.training.progress import Progress, StageProgress

if TYPE_CHECKING:
    from thresher.data.batches.batches import BatchSource
    from thresher.data.batches.split_batches import SplitBatches

CHECKPOINT = "checkpoint.safetensors"
HISTORY = "history.jsonl"
INITIAL_WEIGHTS = "initial_weights"
TIME_LIMIT, INTERRUPTED = 1, 2
"""Why a training stops early."""


class TrainingController(Protocol):
    """Follows a training and decides when it ends. Its state is part of the checkpoint."""

    @property
    def finished(self) -> bool: ...

    def after_step(self) -> None:
        """Called after every optimizer step."""

    def after_epoch(self, epoch: int, metrics: Metrics) -> Mapping[str, Any]:
        """Called with an epoch's validation metrics; the result is added to the epoch's record in the history."""

    def progress(self) -> Mapping[str, Any]:
        """Fields of `ProgressState` to display now."""

    def state(self) -> Checkpoint: ...
    def load(self, state: Checkpoint) -> None:
        """Resume from the result of `state()`."""


def run_epochs(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    controller: TrainingController,
    data: "SplitBatches",
    *,
    stage: str,
    settings: Mapping[str, Any],
    seed: int,
    max_epochs: int,
    title: str | None = None,
    average: WeightAverage | None = None,
    folder: Path | None = None,
    watch: "Mapping[str, BatchSource] | None" = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> tuple[tuple[Record, ...], float]:
    """Train until the controller has finished; returns the records of all epochs and the seconds of training.

    Args:
        stage: kind of training; a checkpoint of another stage is refused.
        settings: plain data; a checkpoint with other settings is refused.
        seed: of the randomness inside training (dropout). The state of the global generators is restored afterwards.
        max_epochs, title: shown in the progress display; the controller decides when training ends.
        average: weights that are evaluated, and that the controller sees after an epoch, instead of the last ones.
        folder: where `checkpoint.safetensors` is written after each epoch and on Ctrl-C, and `history.jsonl`, one
            record per epoch. Training resumes from an existing checkpoint.
        watch: further splits to evaluate after each epoch, for the record only.
        should_stop: called after every step; if it returns True, a checkpoint is written and `TimeLimitReached` raised.
    """
    run_settings = {**settings, "seed": seed, "num_steps": len(data.train), "num_rows": data.train.num_rows}
    run_settings = json.loads(json.dumps(run_settings, default=str))  # tuples and paths as read from a checkpoint
    if folder is not None:  # settings do not distinguish two models or tickets of the same size
        run_settings[INITIAL_WEIGHTS] = weights_digest(model)
    processes = current_processes()
    exchange = None if processes is None else GradientExchange(model, processes)
    run = _Run(model, optimizer, controller, average, stage, run_settings, folder, processes)
    show = StageProgress(progress, stage=title or stage, max_epochs=max_epochs, num_steps=len(data.train))
    with isolated_rng(), deferred_interrupts() as interrupts:
        run.start(seed)
        show.report(epoch=run.epoch, step=run.step, **controller.progress())

        def stop_reason() -> int:
            if interrupts.pending:
                return INTERRUPTED
            return TIME_LIMIT if should_stop is not None and not controller.finished and should_stop() else 0

        def stop_if_requested(reason: int | None = None) -> None:
            reason = stop_reason() if reason is None else reason
            if reason == INTERRUPTED:
                interrupts.pending = True
            interrupts.raise_if_pending()
            if reason == TIME_LIMIT:
                raise TimeLimitReached(f"time limit reached in epoch {run.epoch}, step {run.step} ({title or stage})")

        def on_step(step: int, loss: Tensor) -> bool:
            run.step = step + 1
            if average is not None:
                average.after_step()
            controller.after_step()
            if show.due():
                show.note(**controller.progress())
            stop_if_requested(None if exchange is None else exchange.stop)
            return controller.finished  # a search may end inside an epoch

        try:
            while not controller.finished:
                with tiny_numbers_as_zero():
                    loss = train_epoch(
                        model, data.train, optimizer, run.epoch,
                        start=run.step, on_step=on_step, progress=show, running=run.loss,
                        exchange=exchange, stop=stop_reason,
                    )  # fmt: skip
                agree_on_statistics(model)
                with nullcontext() if average is None else average.in_place():
                    with interrupts.immediate() if processes is None else nullcontext():
                        metrics = evaluate(model, data.validation, feature_counts=data.feature_counts)
                        watched = {
                            name: evaluate(model, source, feature_counts=data.feature_counts).to_json()
                            for name, source in (watch or {}).items()
                        }
                    run.end_epoch(loss, metrics, watched)
                run.save()
                show.report(**controller.progress())
                stop_if_requested(None if processes is None else max(processes.gather_objects(stop_reason())))
        except TimeLimitReached:
            run.save()
            raise
        except SafeInterrupt:
            run.save()
            raise KeyboardInterrupt from None
        show.report(epoch=run.epoch - 1, step=len(data.train), finished=True)
        return tuple(run.history.records), run.seconds


@dataclass
class _Run:
    """A running training: everything that a checkpoint holds, and how it is saved and resumed."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    controller: TrainingController
    average: WeightAverage | None
    stage: str
    settings: dict[str, Any]
    folder: Path | None
    processes: Processes | None = None

    def __post_init__(self) -> None:
        self.path = None if self.folder is None else self.folder / CHECKPOINT
        self.writes = self.processes is None or self.processes.is_first
        self.history = History(self.folder / HISTORY if self.folder is not None and self.writes else None)
        self.epoch, self.step, self.seconds, self.cpu_seconds = 1, 0, 0.0, 0.0  # the running epoch, from 1
        self.loss = RunningLoss()
        self._last_time, self._last_cpu_time = perf_counter(), process_time()

    def start(self, seed: int) -> None:
        rank = 0 if self.processes is None else self.processes.rank
        seed_all(derive_seed(seed, self.stage, *([rank] if rank else [])))
        if self.path is not None and agreed(self.path.exists()):
            self._resume(Checkpoint.load(self.path), self.path)
        else:
            self.history.restore([])

    def end_epoch(self, loss: float, metrics: Metrics, watched: Mapping[str, Any]) -> None:
        if self.processes is not None:
            unite_seen(self.model, self.processes)  # before the controller copies the best weights
        further = self.controller.after_epoch(self.epoch, metrics)
        self._count_time()
        spent = self.seconds - sum(record["seconds"] for record in self.history.records)
        record: Record = {"epoch": self.epoch, "train_loss": loss, "validation": metrics.to_json(), "seconds": spent}
        # of all threads; unlike seconds it hardly depends on what else the machine does
        record["cpu_seconds"] = self.cpu_seconds - sum(
            record.get("cpu_seconds", 0.0) for record in self.history.records
        )
        self.history.append(record | dict(further) | ({"watch": dict(watched)} if watched else {}))
        self.epoch, self.step, self.loss = self.epoch + 1, 0, RunningLoss()

    def save(self) -> None:
        if self.path is None:
            return
        self._count_time()
        generators = [capture_rng_state()]
        if self.processes is not None:
            unite_seen(self.model, self.processes)
            generators = self.processes.gather_objects(generators[0])
        if not self.writes:
            return
        checkpoint = Checkpoint(
            metadata={
                "stage": self.stage,
                "settings": self.settings,
                "epoch": self.epoch,
                "step": self.step,
                "loss": self.loss.state(self.epoch),
                "seconds": self.seconds,
                "cpu_seconds": self.cpu_seconds,
                "history": self.history.records,
            }
        )
        checkpoint.add("controller", self.controller.state())
        if self.average is not None:
            checkpoint.add("average", self.average.state())
        checkpoint.add("model", Checkpoint(tensor_state(self.model)))
        checkpoint.add("optimizer", pack_optimizer(self.optimizer))
        for rank, generator in enumerate(generators):
            checkpoint.add(_rng_name(rank), Checkpoint(generator))
        checkpoint.save(self.path)

    def _count_time(self) -> None:
        now = perf_counter()
        self.seconds, self._last_time = self.seconds + now - self._last_time, now
        cpu_now = process_time()
        self.cpu_seconds, self._last_cpu_time = self.cpu_seconds + cpu_now - self._last_cpu_time, cpu_now

    def _resume(self, checkpoint: Checkpoint, path: Path) -> None:
        stored = checkpoint.metadata
        self._check(stored, path)
        unpack_model_(checkpoint.part("model"), self.model)
        unpack_optimizer_(checkpoint.part("optimizer"), self.optimizer)
        rank, size = (0, 1) if self.processes is None else (self.processes.rank, self.processes.size)
        if sum(name.startswith("rng") for name in stored) == size:  # else each keeps its new generator
            restore_rng_state(checkpoint.part(_rng_name(rank)).tensors)
        self.controller.load(checkpoint.part("controller"))
        if self.average is not None:
            self.average.load(checkpoint.part("average"))
        self.epoch, self.step = stored["epoch"], stored["step"]
        self.seconds, self.cpu_seconds = stored["seconds"], stored.get("cpu_seconds", 0.0)
        self.loss = RunningLoss(**stored["loss"])
        self.history.restore(stored["history"])

    def _check(self, stored: Mapping[str, Any], path: Path) -> None:
        """Raise unless the checkpoint belongs to this training."""
        if stored.get("stage") != self.stage:
            stages = f"({stored.get('stage')}, expected {self.stage})"
            raise FormatError(f"{path} is the checkpoint of another stage {stages}. Choose another folder")
        settings = stored["settings"]
        changed = [
            f"{name} {settings.get(name)!r} → {value!r}"
            for name, value in self.settings.items()
            if name != INITIAL_WEIGHTS and settings.get(name) != value
        ]
        if changed:
            raise ConfigError(f"{path} has other settings ({'; '.join(changed)}). Use the same settings, or delete it")
        if settings.get(INITIAL_WEIGHTS) != self.settings[INITIAL_WEIGHTS]:
            reason = "written for a model with other initial weights: another model or ticket, or one without a seed"
            raise ConfigError(f"{path} was {reason}. Pass the same model, or delete the file to start again")


def _rng_name(rank: int) -> str:
    return f"rng-{rank}" if rank else "rng"


def unite_seen(model: nn.Module, processes: Processes) -> None:
    """Make the record of the rows looked up in training equal in all processes."""
    for module in model.modules():
        if isinstance(module, OwnState):
            module.unite_seen(processes)


def agree_on_statistics(model: nn.Module) -> None:
    """Use the first process's running statistics of batch norm in all processes, as DistributedDataParallel does."""
    if (processes := current_processes()) is None:
        return
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            for statistics in module.buffers():
                processes.copy_from_first_(statistics)
