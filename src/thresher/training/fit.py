"""Train until validation stops improving, restore the best weights; killed at any moment, go on bit for bit.

Not here: what is trained (any model that maps a batch's inputs to logits), nor the test split, which is read once, by
the caller, after this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from thresher.errors import ConfigError, FormatError
from thresher.training.checkpoint import (
    Checkpoint,
    pack_model,
    pack_optimizer,
    pack_rng,
    unpack_model_,
    unpack_optimizer_,
    unpack_rng_,
)
from thresher.training.early_stopping import EarlyStopping, StoppingMetric
from thresher.training.history import History, Record
from thresher.training.interrupts import SafeInterrupt, deferred_interrupts
from thresher.training.loop import RunningLoss, evaluate, train_epoch
from thresher.training.metrics import Metrics
from thresher.training.optimizers import OptimizerConfig, build_optimizer
from thresher.training.progress import Progress, StageProgress
from thresher.training.seeding import derive_seed, isolated_rng, seed_all

if TYPE_CHECKING:
    from thresher.data.batches import BatchSource

KIND = "fit"


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a model is trained. In TOML: `[training]`."""

    max_epochs: int = 60
    batch_size: int = 1024
    patience: int = 3
    """Epochs without improvement after which training stops."""
    early_stopping_metric: StoppingMetric = "auc"
    """Judged on validation: `auc`, or `logloss` as in the paper."""
    min_delta: float = 0.0
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    def __post_init__(self) -> None:
        for name in ("max_epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        self.early_stopping()

    def early_stopping(self) -> EarlyStopping:
        """A fresh one with these settings, which it checks."""
        return EarlyStopping(metric=self.early_stopping_metric, patience=self.patience, min_delta=self.min_delta)


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """What a training came to; the model itself holds the best weights."""

    best_epoch: int
    num_epochs: int
    validation: Metrics
    """Of the best epoch."""
    seconds: float
    """Time spent, interruptions not counted."""
    history: tuple[Record, ...]


def fit(
    model: nn.Module,
    train: "BatchSource",
    validation: "BatchSource",
    config: TrainingConfig,
    *,
    seed: int,
    feature_counts: Sequence[int] | NDArray[Any] | Tensor | None = None,
    checkpoint: Path | None = None,
    history: Path | None = None,
    progress: Progress | None = None,
    stage: str = "train",
    watch: Mapping[str, "BatchSource"] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> FitResult:
    """Train a model with early stopping on validation; afterwards it holds the weights of the best epoch.

    Args:
        seed: of the randomness inside training (dropout); initial weights and batch order are the caller's. The global
            generators are left as they were found.
        feature_counts: training counts of the `N` features, for the AUC on rows with rare features.
        checkpoint: file written after each epoch and on Ctrl-C. If it exists, training goes on from it, and ends with
            the very weights and metrics of an uninterrupted run; if that run had ended, its result is returned at once.
        history: JSON-lines file, one record per epoch.
        stage: what to call this training in the progress display.
        watch: further splits to evaluate after each epoch, only for the record; no decision sees them.
        optimizer: instead of the one `config.optimizer` describes.
    """
    optimizer = build_optimizer(model, config.optimizer) if optimizer is None else optimizer
    run = _Run(model, optimizer, config, seed, len(train), train.num_rows, checkpoint, History(history))
    show = StageProgress(progress, stage=stage, max_epochs=config.max_epochs, num_steps=len(train))
    with isolated_rng(), deferred_interrupts() as interrupts:
        run.start()
        show.report(epoch=run.epoch, step=run.step, metric=config.early_stopping_metric, best=run.stopping.best)

        def on_step(step: int, loss: Tensor) -> None:
            run.step = step + 1
            interrupts.raise_if_pending()

        try:
            while not run.finished:
                loss = train_epoch(
                    model, train, optimizer, run.epoch,
                    start=run.step, on_step=on_step, progress=show, running=run.loss,
                )  # fmt: skip
                with interrupts.immediate():
                    metrics = evaluate(model, validation, feature_counts=feature_counts)
                    watched = {
                        name: evaluate(model, source, feature_counts=feature_counts).to_json()
                        for name, source in (watch or {}).items()
                    }
                run.end_epoch(loss, metrics, watched)
                run.save()
                show.report(best=run.stopping.best)
                interrupts.raise_if_pending()
        except SafeInterrupt:
            run.save()
            raise KeyboardInterrupt from None
        run.stopping.restore_best_(model)
        show.report(finished=True)
        return run.result()


@dataclass
class _Run:
    """A training on its way: everything that a checkpoint holds, and the reading and writing of it."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    config: TrainingConfig
    seed: int
    num_steps: int
    num_rows: int
    path: Path | None
    history: History

    def __post_init__(self) -> None:
        self.stopping = self.config.early_stopping()
        self.epoch, self.step, self.seconds, self.finished = 1, 0, 0.0, False  # the epoch under way, from 1
        self.loss = RunningLoss()
        self._clock = perf_counter()

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same for a run to be the same."""
        return {**asdict(self.config), "seed": self.seed, "num_steps": self.num_steps, "num_rows": self.num_rows}

    def start(self) -> None:
        if self.path is not None and self.path.exists():
            self._resume(Checkpoint.load(self.path), self.path)
        else:
            seed_all(derive_seed(self.seed, KIND))
            self.history.restore([])

    def end_epoch(self, loss: float, metrics: Metrics, watched: Mapping[str, Any]) -> None:
        self.stopping.update(self.epoch, metrics, self.model)
        self._count_time()
        spent = self.seconds - sum(record["seconds"] for record in self.history.records)
        record: Record = {"epoch": self.epoch, "train_loss": loss, "validation": metrics.to_json(), "seconds": spent}
        self.history.append(record | ({"watch": dict(watched)} if watched else {}))
        self.finished = self.stopping.should_stop or self.epoch >= self.config.max_epochs
        self.epoch, self.step, self.loss = self.epoch + 1, 0, RunningLoss()

    def save(self) -> None:
        if self.path is None:
            return
        self._count_time()
        checkpoint = Checkpoint(
            facts={
                "kind": KIND,
                "settings": self.settings,
                "epoch": self.epoch,
                "step": self.step,
                "loss": self.loss.state(self.epoch),
                "seconds": self.seconds,
                "finished": self.finished,
                "early_stopping": self.stopping.facts(),
                "history": self.history.records,
            }
        )
        checkpoint.add("best", self.stopping.tensors())
        pack_model(checkpoint, self.model)
        pack_optimizer(checkpoint, self.optimizer)
        pack_rng(checkpoint)
        checkpoint.save(self.path)

    def result(self) -> FitResult:
        assert self.stopping.best_epoch is not None
        assert self.stopping.best_metrics is not None
        return FitResult(
            best_epoch=self.stopping.best_epoch,
            num_epochs=len(self.history.records),
            validation=self.stopping.best_metrics,
            seconds=self.seconds,
            history=tuple(self.history.records),
        )

    def _count_time(self) -> None:
        now = perf_counter()
        self.seconds, self._clock = self.seconds + now - self._clock, now

    def _resume(self, checkpoint: Checkpoint, path: Path) -> None:
        facts = checkpoint.facts
        if facts.get("kind") != KIND:
            raise FormatError(f"{path} is the checkpoint of something else ({facts.get('kind')}); choose another file")
        stored = facts["settings"]
        changed = [
            f"{name} {stored.get(name)!r} → {value!r}"
            for name, value in self.settings.items()
            if stored.get(name) != value
        ]
        if changed:
            raise ConfigError(
                f"{path} was written with other settings ({'; '.join(changed)}); "
                "use the same settings, or delete it to start anew"
            )
        unpack_model_(checkpoint, self.model)
        unpack_optimizer_(checkpoint, self.optimizer)
        unpack_rng_(checkpoint)
        self.stopping.load(facts["early_stopping"], checkpoint.under("best"))
        self.epoch, self.step, self.seconds = facts["epoch"], facts["step"], facts["seconds"]
        self.loss, self.finished = RunningLoss(**facts["loss"]), facts["finished"]
        self.history.restore(facts["history"])
