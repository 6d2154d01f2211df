"""fit(): train until validation stops improving and restore the best weights. Resumes bit for bit from a checkpoint."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from thresher._internal.mapped_tensors import copy_of, load_tensor_state_, tensor_state
from thresher.data.batches.split_batches import FirstBatches
from thresher.errors import ConfigError
from thresher.training.averaging import WeightAverage
from thresher.training.checkpoint import Checkpoint, Record
from thresher.training.epoch import evaluate
from thresher.training.loop import run_epochs
from thresher.training.metrics import Metrics
from thresher.training.optimizers import OptimizerConfig, build_optimizer
from thresher.training.progress import Progress

if TYPE_CHECKING:
    from thresher.data.batches.batches import BatchSource
    from thresher.data.batches.split_batches import SplitBatches

STAGE = "fit"
StoppingMetric = Literal["auc", "logloss"]


class EarlyStopping:
    """Stops after `patience` epochs without an improvement larger than `min_delta`, and keeps the best weights."""

    def __init__(self, *, metric: StoppingMetric = "auc", patience: int = 3, min_delta: float = 0.0) -> None:
        if metric not in get_args(StoppingMetric):
            raise ConfigError(f"early stopping on {metric!r}: known metrics are {', '.join(get_args(StoppingMetric))}")
        if patience < 1:
            raise ConfigError(f"patience is {patience}; it must be at least 1 epoch")
        if not 0.0 <= min_delta < float("inf"):
            raise ConfigError(f"min_delta is {min_delta}; it must be 0 or more, and finite")
        self.metric: StoppingMetric = metric
        self.patience = patience
        self.min_delta = min_delta
        self.best_epoch: int | None = None
        self.best_metrics: Metrics | None = None
        self.epochs_since_best = 0
        self._best_weights: dict[str, Tensor] = {}

    @property
    def best(self) -> float | None:
        """The best value of the metric so far."""
        return None if self.best_metrics is None else self._value(self.best_metrics)

    def progress(self) -> dict[str, int | None]:
        """Fields of `ProgressState` from which the end of the training is estimated."""
        return {"best_epoch": self.best_epoch, "patience": self.patience}

    @property
    def should_stop(self) -> bool:
        return self.epochs_since_best >= self.patience

    def update(self, epoch: int, metrics: Metrics, model: nn.Module | None = None) -> bool:
        """Add an epoch's metrics, and keep the weights of `model` if they improved; returns whether they did."""
        gain = float("inf") if self.best is None else self._value(metrics) - self.best
        if self.metric == "logloss" and self.best is not None:
            gain = -gain
        if not gain > self.min_delta:
            self.epochs_since_best += 1
            return False
        self.best_epoch, self.best_metrics, self.epochs_since_best = epoch, metrics, 0
        if model is not None:
            self._keep(model)
        return True

    @torch.no_grad()
    def restore_best_(self, model: nn.Module) -> None:
        """Load the best weights (parameters and buffers) into the model."""
        if not self._best_weights:
            raise ConfigError("no weights were kept yet. Call update(epoch, metrics, model) after an epoch first")
        load_tensor_state_(model, self._best_weights)

    def state(self) -> Checkpoint:
        """What it counts, and the best weights by their names in the model's `state_dict`."""
        best_metrics = None if self.best_metrics is None else self.best_metrics.to_json()
        counts = {"best_epoch": self.best_epoch, "epochs_since_best": self.epochs_since_best}
        return Checkpoint(dict(self._best_weights), counts | {"best_metrics": best_metrics})

    def load(self, state: Checkpoint) -> None:
        metrics = state.metadata["best_metrics"]
        self.best_metrics = None if metrics is None else Metrics.from_json(metrics)
        self.best_epoch, self.epochs_since_best = state.metadata["best_epoch"], state.metadata["epochs_since_best"]
        self._best_weights = {name: copy_of(tensor) for name, tensor in state.tensors.items()}

    def _value(self, metrics: Metrics) -> float:
        return metrics.auc if self.metric == "auc" else metrics.logloss

    @torch.no_grad()
    def _keep(self, model: nn.Module) -> None:
        for name, tensor in tensor_state(model).items():
            kept = self._best_weights.get(name)
            if kept is not None and kept.shape == tensor.shape and kept.dtype == tensor.dtype:
                kept.copy_(tensor)  # reuses the memory of the last copy: allocating pages is the main cost
            else:
                self._best_weights[name] = copy_of(tensor)


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Settings of a training. In TOML: `[training]`."""

    max_epochs: int | float = 60
    """Maximum number of epochs; early stopping usually ends a training before. Raise it if results say that a model was
    still improving. Below 1 it is a part of an epoch: 0.25 trains on a quarter of the rows."""
    batch_size: int = 1024
    """Rows per step. Larger batches are faster per row and may need a higher learning rate."""
    patience: int = 3
    """Epochs without improvement after which training stops."""
    early_stopping_metric: StoppingMetric = "auc"
    """Validation metric of early stopping and of the choice of the best epoch; the paper uses `logloss`."""
    min_delta: float = 0.0
    """Smallest gain of the metric that counts as an improvement."""
    average_decay: float = 0.999
    """Decay per step of the running mean of the weights, which is evaluated and kept. 0 uses the weights themselves."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The optimizer of the dense training and of retraining."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size}; it must be at least 1")
        check_max_epochs("max_epochs", self.max_epochs)
        if not 0.0 <= self.average_decay < 1.0:
            raise ConfigError(f"average_decay is {self.average_decay}; it must be at least 0 and below 1")
        self.early_stopping()

    def early_stopping(self) -> EarlyStopping:
        """Early stopping with these settings."""
        return EarlyStopping(metric=self.early_stopping_metric, patience=self.patience, min_delta=self.min_delta)


def check_max_epochs(name: str, max_epochs: float) -> None:
    if not 0 <= max_epochs < float("inf") or (max_epochs > 1 and max_epochs != int(max_epochs)):
        raise ConfigError(f"{name} is {max_epochs}; it must be a whole number, or a part of an epoch between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """Result of a training; the model itself holds the best weights."""

    best_epoch: int
    num_epochs: float  # a part of one if `max_epochs` is below 1
    validation: Metrics  # of the best epoch
    seconds: float  # training time without interruptions
    history: tuple[Record, ...]

    @property
    def still_improving(self) -> bool:
        """Whether `max_epochs` ended the training with its best epoch."""
        return 0 < self.best_epoch == len(self.history)


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
        data: its training and validation splits; the test split is not read.
        seed: of the randomness inside training (dropout); the caller decides initial weights and batch order.
        folder: where checkpoint and history are written; a run found there is resumed, with exactly the same result.
        watch: further splits to evaluate after each epoch, for the record only.
        should_stop: called after every step; if it returns True, a checkpoint is written and `TimeLimitReached` raised.
    """
    if config.max_epochs == 0:
        metrics = evaluate(model, data.validation, feature_counts=data.feature_counts)
        return FitResult(best_epoch=0, num_epochs=0, validation=metrics, seconds=0.0, history=())
    max_epochs, share = max(1, int(config.max_epochs)), min(1, config.max_epochs)
    if share < 1:
        data = replace(data, train=FirstBatches(data.train, share))
    controller = StoppingController(model, config.early_stopping(), max_epochs)
    history, seconds = run_epochs(
        model,
        build_optimizer(model, config.optimizer),
        controller,
        data,
        stage=STAGE,
        settings=asdict(config),
        seed=seed,
        max_epochs=max_epochs,
        title=stage,
        average=WeightAverage(model, config.average_decay) if config.average_decay else None,
        folder=folder,
        watch=watch,
        progress=progress,
        should_stop=should_stop,
        share_tables=True,
    )
    stopping = controller.stopping
    stopping.restore_best_(model)
    assert stopping.best_epoch is not None
    assert stopping.best_metrics is not None
    return FitResult(
        best_epoch=stopping.best_epoch,
        num_epochs=len(history) * share,
        validation=stopping.best_metrics,
        seconds=seconds,
        history=history,
    )


class StoppingController:
    """A `TrainingController` that ends on early stopping or at `max_epochs`, and keeps the best weights."""

    def __init__(self, model: nn.Module, stopping: EarlyStopping, max_epochs: int) -> None:
        self.model, self.stopping, self.max_epochs = model, stopping, max_epochs
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
        return {"metric": self.stopping.metric, "best": self.stopping.best, **self.stopping.progress()}

    def state(self) -> Checkpoint:
        state = Checkpoint(metadata={"epoch": self.epoch})
        state.add("stopping", self.stopping.state())
        return state

    def load(self, state: Checkpoint) -> None:
        self.epoch = state.metadata["epoch"]
        self.stopping.load(state.part("stopping"))
