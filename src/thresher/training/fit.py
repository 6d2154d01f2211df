"""Train until validation stops improving, restore the best weights; killed at any moment, go on bit for bit.

Not here: what is trained (any model that maps a batch's inputs to logits), nor the test split, which is read once, by
the caller, after this.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from thresher.errors import ConfigError
from thresher.training.averaging import WeightAverage
from thresher.training.early_stopping import EarlyStopping, StoppingMetric
from thresher.training.epochs import run_epochs
from thresher.training.history import Record
from thresher.training.metrics import Metrics
from thresher.training.optimizers import OptimizerConfig, build_optimizer
from thresher.training.progress import Progress

if TYPE_CHECKING:
    from thresher.data.batches.batches import BatchSource
    from thresher.data.batches.split_batches import SplitBatches

STAGE = "fit"


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
    average_decay: float = 0.999
    """What is evaluated and kept is a running mean of the weights, which holds this share of itself from one step to
    the next; 0 takes the weights themselves."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    def __post_init__(self) -> None:
        for name in ("max_epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0.0 <= self.average_decay < 1.0:
            raise ConfigError(f"average_decay is {self.average_decay}; it must be at least 0 and below 1")
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
    data: "SplitBatches",
    config: TrainingConfig,
    *,
    seed: int,
    folder: Path | None = None,
    stage: str = "train",
    watch: "Mapping[str, BatchSource] | None" = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> FitResult:
    """Train a model with early stopping on validation; afterwards it holds the weights of the best epoch.

    Args:
        data: its training and validation splits; the test split is not touched.
        seed: of the randomness inside training (dropout); initial weights and batch order are the caller's. The global
            generators are left as they were found.
        folder: checkpoint and history go there. If it holds a checkpoint, training goes on from it, and ends with the
            very weights and metrics of an uninterrupted run; if that run had ended, its result is returned at once.
        stage: what to call this training in the progress display.
        watch: further splits to evaluate after each epoch, only for the record; no decision sees them.
        should_stop: called after every step; when it returns True, the checkpoint is written and `TimeLimitReached` is
            raised.
    """
    judge = _FitJudge(model, config)
    epochs = run_epochs(
        model,
        build_optimizer(model, config.optimizer),
        judge,
        data,
        stage=STAGE,
        settings=asdict(config),
        seed=seed,
        max_epochs=config.max_epochs,
        title=stage,
        average=WeightAverage(model, config.average_decay) if config.average_decay else None,
        folder=folder,
        watch=watch,
        progress=progress,
        should_stop=should_stop,
    )
    judge.stopping.restore_best_(model)
    assert judge.stopping.best_epoch is not None
    assert judge.stopping.best_metrics is not None
    return FitResult(
        best_epoch=judge.stopping.best_epoch,
        num_epochs=len(epochs.history),
        validation=judge.stopping.best_metrics,
        seconds=epochs.seconds,
        history=epochs.history,
    )


class _FitJudge:
    """Ends a training when validation no longer improves, or at `max_epochs`; keeps the best weights."""

    def __init__(self, model: nn.Module, config: TrainingConfig) -> None:
        self.model, self.max_epochs, self.stopping = model, config.max_epochs, config.early_stopping()
        self.epoch = 0

    @property
    def finished(self) -> bool:
        return self.stopping.should_stop or self.epoch >= self.max_epochs

    def after_step(self) -> None:
        pass

    def after_epoch(self, epoch: int, metrics: Metrics) -> Mapping[str, Any]:
        self.epoch = epoch
        self.stopping.update(epoch, metrics, self.model)
        return {}

    def progress(self) -> Mapping[str, Any]:
        return {"metric": self.stopping.metric, "best": self.stopping.best}

    def facts(self) -> dict[str, Any]:
        return {**self.stopping.facts(), "epoch": self.epoch}

    def tensors(self) -> dict[str, Tensor]:
        return self.stopping.tensors()

    def load(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        self.epoch = facts["epoch"]
        self.stopping.load(facts, tensors)
