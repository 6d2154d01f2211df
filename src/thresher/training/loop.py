"""The training loop: epochs until a controller has finished, with checkpoints from which it resumes bit for bit."""

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from thresher._internal.interrupts import Interrupts, SafeInterrupt, deferred_interrupts
from thresher._internal.processes import current_processes
from thresher.errors import TimeLimitReached
from thresher.training.averaging import WeightAverage
from thresher.training.checkpoint import Record, isolated_rng, weights_digest
from thresher.training.devices import tiny_numbers_as_zero
from thresher.training.epoch import evaluate, train_epoch
from thresher.training.gradient_exchange import GradientExchange
from thresher.training.metrics import Metrics
from thresher.training.progress import Progress, StageProgress
from thresher.training.run_state import INITIAL_WEIGHTS, RunState, TrainingController
from thresher.training.shared_tables import exchanged_gradients

if TYPE_CHECKING:
    from thresher.data.batches.batches import BatchSource
    from thresher.data.batches.split_batches import SplitBatches

TIME_LIMIT, INTERRUPTED = 1, 2
"""Why a training stops early."""


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
    share_tables: bool = False,
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
        share_tables: whether processes of one machine may share tables (`SharedTables`).
    """
    run_settings = {**settings, "seed": seed, "num_steps": len(data.train), "num_rows": data.train.num_rows}
    run_settings = json.loads(json.dumps(run_settings, default=str))  # tuples and paths as read from a checkpoint
    if folder is not None:  # settings do not distinguish two models or tickets of the same size
        run_settings[INITIAL_WEIGHTS] = weights_digest(model)
    processes = current_processes()
    run = RunState(model, optimizer, controller, average, stage, run_settings, folder, processes)
    show = StageProgress(
        progress, stage=title or stage, max_epochs=max_epochs, num_steps=len(data.train),
        epoch_share=getattr(data.train, "epoch_share", 1.0),
    )  # fmt: skip
    with isolated_rng(), deferred_interrupts() as interrupts, ExitStack() as sharing:
        run.start(seed)
        exchange = sharing.enter_context(exchanged_gradients(model, optimizer, processes, share_tables=share_tables))
        run.exchange = exchange
        show.report(epoch=run.epoch, step=run.step, **controller.progress())
        loop = _Loop(run, data, show, interrupts, exchange, watch or {}, should_stop)
        try:
            while not controller.finished:
                loop.train_epoch()
                run.save()
                show.report(**controller.progress())
                loop.stop_if_requested(None if processes is None else max(processes.gather_objects(loop.stop_reason())))
        except TimeLimitReached:
            run.save()
            raise
        except SafeInterrupt:
            run.save()
            raise KeyboardInterrupt from None
        show.report(epoch=run.epoch - 1, step=len(data.train), finished=True)
        return tuple(run.history.records), run.seconds


@dataclass(frozen=True)
class _Loop:
    """Trains a run epoch by epoch, and stops it between two steps if that is requested."""

    run: RunState
    data: "SplitBatches"
    show: StageProgress
    interrupts: Interrupts
    exchange: GradientExchange | None
    watch: "Mapping[str, BatchSource]"
    should_stop: Callable[[], bool] | None

    def train_epoch(self) -> None:
        """Train one epoch, or the rest of one, and evaluate."""
        run, data = self.run, self.data
        with tiny_numbers_as_zero():
            loss = train_epoch(
                run.model, data.train, run.optimizer, run.epoch,
                start=run.step, on_step=self.on_step, progress=self.show, running=run.loss,
                exchange=self.exchange, stop=self.stop_reason,
            )  # fmt: skip
        agree_on_statistics(run.model)
        with nullcontext() if run.average is None else run.average.in_place():
            with self.interrupts.immediate() if run.processes is None else nullcontext():
                metrics, watched = (
                    self.evaluate(data.validation),
                    {name: self.evaluate(source).to_json() for name, source in self.watch.items()},
                )
            share = self.show.state.epoch_share * run.step / len(data.train)
            run.end_epoch(loss, metrics, watched, share)

    def evaluate(self, rows: "BatchSource") -> Metrics:
        return evaluate(self.run.model, rows, feature_counts=self.data.feature_counts)

    def on_step(self, step: int, loss: Tensor) -> bool:
        """Called after a step; whether the controller has finished, which a search may do inside an epoch."""
        run = self.run
        run.step = step + 1
        if run.average is not None:
            run.average.after_step()
        run.controller.after_step()
        if self.show.due():
            self.show.note(**run.controller.progress())
        self.stop_if_requested(None if self.exchange is None else self.exchange.stop)
        return run.controller.finished

    def stop_reason(self) -> int:
        if self.interrupts.pending:
            return INTERRUPTED
        unfinished = not self.run.controller.finished
        return TIME_LIMIT if self.should_stop is not None and unfinished and self.should_stop() else 0

    def stop_if_requested(self, reason: int | None = None) -> None:
        """Raise if there is a reason to stop: the one that all processes agreed on, or that of a single process."""
        reason = self.stop_reason() if reason is None else reason
        if reason == INTERRUPTED:  # an interrupt that came after they agreed stops all of them after the next step
            self.interrupts.pending = True
            self.interrupts.raise_if_pending()
        if reason == TIME_LIMIT:
            place = f"in epoch {self.run.epoch}, step {self.run.step} ({self.show.state.stage})"
            raise TimeLimitReached(f"time limit reached {place}")


def agree_on_statistics(model: nn.Module) -> None:
    """Use the first process's running statistics of batch norm in all processes, as DistributedDataParallel does."""
    if (processes := current_processes()) is None:
        return
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            for statistics in module.buffers():
                processes.copy_from_first_(statistics)
