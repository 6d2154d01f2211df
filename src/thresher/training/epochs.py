"""Epoch after epoch until a judge says enough; killed at any moment, go on bit for bit.

Fitting and searching are this loop with different judges: one watches validation and keeps the best weights, the other
presses thresholds and cuts tickets.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from thresher.errors import ConfigError, FormatError, TimeLimitReached
from thresher.training.averaging import WeightAverage
from thresher.training.checkpoint import (
    Checkpoint,
    pack_model,
    pack_optimizer,
    pack_rng,
    unpack_model_,
    unpack_optimizer_,
    unpack_rng_,
    weights_digest,
)
from thresher.training.history import History, Record
from thresher.training.interrupts import SafeInterrupt, deferred_interrupts
from thresher.training.loop import RunningLoss, evaluate, train_epoch
from thresher.training.metrics import Metrics
from thresher.training.progress import Progress, StageProgress
from thresher.training.seeding import derive_seed, isolated_rng, seed_all

if TYPE_CHECKING:
    from thresher.data.batches.batches import BatchSource
    from thresher.data.batches.split_batches import SplitBatches

CHECKPOINT = "checkpoint.safetensors"
HISTORY = "history.jsonl"
INITIAL_WEIGHTS = "initial_weights"


class Judge(Protocol):
    """Follows a training and decides when it ends. Its own state goes into the checkpoint."""

    @property
    def finished(self) -> bool: ...

    def after_step(self) -> None:
        """Called after every optimizer step."""

    def after_epoch(self, epoch: int, metrics: Metrics) -> Mapping[str, Any]:
        """Take in an epoch's validation metrics; what it returns goes into the history beside them."""

    def progress(self) -> Mapping[str, Any]:
        """Fields of `ProgressState` worth showing now."""

    def facts(self) -> dict[str, Any]:
        """Its state but for tensors, as plain data."""

    def tensors(self) -> dict[str, Tensor]: ...

    def load(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `facts()` and `tensors()` gave."""


@dataclass(frozen=True, kw_only=True)
class EpochsResult:
    """What happened: one record per epoch, and the seconds spent, interruptions not counted."""

    history: tuple[Record, ...]
    seconds: float


def run_epochs(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    judge: Judge,
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
) -> EpochsResult:
    """Train until the judge has finished.

    Args:
        stage: what kind of training this is; a checkpoint of another stage is refused.
        settings: plain data that must be the same for a checkpoint to be taken up again.
        seed: of the randomness inside training (dropout). The global generators are left as they were found.
        max_epochs: for the progress display; the judge decides.
        title: what to call this training in the progress display, where not by its stage.
        average: what is evaluated, and what the judge sees after an epoch, in place of the last weights.
        folder: where `checkpoint.safetensors` is written after each epoch and on Ctrl-C, and `history.jsonl`, one
            record per epoch. If the checkpoint exists, training goes on from it; one of a model that began with other
            weights is refused.
        watch: further splits to evaluate after each epoch, only for the record; no decision sees them.
        should_stop: called after every step; when it returns True, the checkpoint is written and training ends.

    Raises:
        TimeLimitReached: `should_stop` returned True before training had finished.
        KeyboardInterrupt: Ctrl-C was pressed; the step under way was completed and the checkpoint holds it.
    """
    same = {**settings, "seed": seed, "num_steps": len(data.train), "num_rows": data.train.num_rows}
    same = json.loads(json.dumps(same, default=str))  # tuples and paths as a checkpoint will give them back
    checkpoint, history = (None, None) if folder is None else (folder / CHECKPOINT, folder / HISTORY)
    if folder is not None:  # settings do not tell one ticket, or one model, from another of the same size
        same[INITIAL_WEIGHTS] = weights_digest(model)
    run = _Run(model, optimizer, judge, average, stage, same, checkpoint, History(history))
    show = StageProgress(progress, stage=title or stage, max_epochs=max_epochs, num_steps=len(data.train))
    with isolated_rng(), deferred_interrupts() as interrupts:
        run.start(seed)
        show.report(epoch=run.epoch, step=run.step, **judge.progress())

        def stop_if_requested() -> None:
            interrupts.raise_if_pending()
            if should_stop is not None and not judge.finished and should_stop():
                raise TimeLimitReached(f"time limit reached in epoch {run.epoch}, step {run.step} ({title or stage})")

        def on_step(step: int, loss: Tensor) -> None:
            run.step = step + 1
            if average is not None:
                average.after_step()
            judge.after_step()
            if show.due():
                show.note(**judge.progress())
            stop_if_requested()

        try:
            while not judge.finished:
                loss = train_epoch(
                    model, data.train, optimizer, run.epoch,
                    start=run.step, on_step=on_step, progress=show, running=run.loss,
                )  # fmt: skip
                with nullcontext() if average is None else average.in_place():
                    with interrupts.immediate():
                        metrics = evaluate(model, data.validation, feature_counts=data.feature_counts)
                        watched = {
                            name: evaluate(model, source, feature_counts=data.feature_counts).to_json()
                            for name, source in (watch or {}).items()
                        }
                    run.end_epoch(loss, metrics, watched)
                run.save()
                show.report(**judge.progress())
                stop_if_requested()
        except TimeLimitReached:
            run.save()
            raise
        except SafeInterrupt:
            run.save()
            raise KeyboardInterrupt from None
        show.report(epoch=run.epoch - 1, step=len(data.train), finished=True)  # the last that was trained
        return EpochsResult(history=tuple(run.history.records), seconds=run.seconds)


@dataclass
class _Run:
    """A training on its way: everything that a checkpoint holds, and the reading and writing of it."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    judge: Judge
    average: WeightAverage | None
    stage: str
    settings: dict[str, Any]
    path: Path | None
    history: History

    def __post_init__(self) -> None:
        self.epoch, self.step, self.seconds = 1, 0, 0.0  # the epoch under way, from 1
        self.loss = RunningLoss()
        self._clock = perf_counter()

    def start(self, seed: int) -> None:
        if self.path is not None and self.path.exists():
            self._resume(Checkpoint.load(self.path), self.path)
        else:
            seed_all(derive_seed(seed, self.stage))
            self.history.restore([])

    def end_epoch(self, loss: float, metrics: Metrics, watched: Mapping[str, Any]) -> None:
        judged = self.judge.after_epoch(self.epoch, metrics)
        self._count_time()
        spent = self.seconds - sum(record["seconds"] for record in self.history.records)
        record: Record = {"epoch": self.epoch, "train_loss": loss, "validation": metrics.to_json(), "seconds": spent}
        self.history.append(record | dict(judged) | ({"watch": dict(watched)} if watched else {}))
        self.epoch, self.step, self.loss = self.epoch + 1, 0, RunningLoss()

    def save(self) -> None:
        if self.path is None:
            return
        self._count_time()
        checkpoint = Checkpoint(
            facts={
                "stage": self.stage,
                "settings": self.settings,
                "epoch": self.epoch,
                "step": self.step,
                "loss": self.loss.state(self.epoch),
                "seconds": self.seconds,
                "judge": self.judge.facts(),
                "history": self.history.records,
            }
        )
        checkpoint.add("judge", self.judge.tensors())
        if self.average is not None:
            checkpoint.facts["average"] = self.average.facts()
            checkpoint.add("average", self.average.tensors())
        pack_model(checkpoint, self.model)
        pack_optimizer(checkpoint, self.optimizer)
        pack_rng(checkpoint)
        checkpoint.save(self.path)

    def _count_time(self) -> None:
        now = perf_counter()
        self.seconds, self._clock = self.seconds + now - self._clock, now

    def _resume(self, checkpoint: Checkpoint, path: Path) -> None:
        facts = checkpoint.facts
        if facts.get("stage") != self.stage:
            raise FormatError(
                f"{path} is the checkpoint of another stage ({facts.get('stage')}, not {self.stage}); "
                "choose another file"
            )
        stored = facts["settings"]
        changed = [
            f"{name} {stored.get(name)!r} → {value!r}"
            for name, value in self.settings.items()
            if name != INITIAL_WEIGHTS and stored.get(name) != value
        ]
        if changed:
            raise ConfigError(
                f"{path} was written with other settings ({'; '.join(changed)}); "
                "use the same settings, or delete it to start anew"
            )
        began = self.settings[INITIAL_WEIGHTS]
        if stored.get(INITIAL_WEIGHTS, began) != began:  # absent in files of earlier versions
            raise ConfigError(
                f"{path} was written for a model that began with other weights: another model, another ticket, or one "
                "whose making was not seeded; give that one, or delete the file to start anew"
            )
        unpack_model_(checkpoint, self.model)
        unpack_optimizer_(checkpoint, self.optimizer)
        unpack_rng_(checkpoint)
        self.judge.load(facts["judge"], checkpoint.under("judge"))
        if self.average is not None:
            self.average.load(facts["average"], checkpoint.under("average"))
        self.epoch, self.step, self.seconds = facts["epoch"], facts["step"], facts["seconds"]
        self.loss = RunningLoss(**facts["loss"])
        self.history.restore(facts["history"])
