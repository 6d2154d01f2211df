"""RunState: everything that the checkpoint of a running training holds, and how it is saved and resumed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Protocol

import torch
from torch import nn

from thresher._internal.mapped_tensors import tensor_state
from thresher._internal.processes import OwnState, Processes, agreed
from thresher.errors import ConfigError, FormatError
from thresher.training.averaging import WeightAverage
from thresher.training.checkpoint import (
    Checkpoint,
    History,
    Record,
    capture_rng_state,
    derive_seed,
    pack_optimizer,
    restore_rng_state,
    seed_all,
    unpack_model_,
    unpack_optimizer_,
)
from thresher.training.epoch import RunningLoss
from thresher.training.gradient_exchange import GradientExchange
from thresher.training.metrics import Metrics

CHECKPOINT = "checkpoint.safetensors"
HISTORY = "history.jsonl"
INITIAL_WEIGHTS = "initial_weights"


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


@dataclass
class RunState:
    """A running training: everything that a checkpoint holds, and how it is saved and resumed."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    controller: TrainingController
    average: WeightAverage | None
    stage: str
    settings: dict[str, Any]
    folder: Path | None
    processes: Processes | None = None
    exchange: GradientExchange | None = None

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

    def end_epoch(self, loss: float, metrics: Metrics, watched: Mapping[str, Any], share: float) -> None:
        """Add the epoch to the history; `share` of all rows were visited."""
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
        if share < 1:
            record["share"] = share
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
        if self.exchange is not None:
            self.exchange.complete_states()
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
