"""When to stop, decided on validation, and the weights to go back to. The best weights are always kept."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from thresher._internal.mapped_tensors import copy_of
from thresher._internal.tensor_state import load_tensor_state_, tensor_state
from thresher.errors import ConfigError, FormatError
from thresher.training.metrics import Metrics

StoppingMetric = Literal["auc", "logloss"]


class EarlyStopping:
    """Watches one validation metric over epochs.

    Args:
        metric: `auc` (higher is better) or `logloss` (lower is better).
        patience: stop after this many epochs in a row without an improvement.
        min_delta: an improvement is a change for the better by *more* than this.
    """

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
        """The best value of the watched metric so far."""
        return None if self.best_metrics is None else self._value(self.best_metrics)

    @property
    def should_stop(self) -> bool:
        return self.epochs_since_best >= self.patience

    def update(self, epoch: int, metrics: Metrics, model: nn.Module | None = None) -> bool:
        """Take in an epoch's validation metrics; if they are the best so far, copy the model's weights.

        Returns:
            Whether they improved. Without a model only the decision is kept, no weights.
        """
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
        """Put the best weights (parameters and buffers) back into the model."""
        if not self._best_weights:
            raise ConfigError("no weights were kept yet; call update(epoch, metrics, model) after an epoch first")
        load_tensor_state_(model, self._best_weights)

    def facts(self) -> dict[str, Any]:
        """Everything but the weights, as plain data."""
        return {
            "best_epoch": self.best_epoch,
            "best_metrics": None if self.best_metrics is None else self.best_metrics.to_json(),
            "epochs_since_best": self.epochs_since_best,
        }

    def tensors(self) -> dict[str, Tensor]:
        """The best weights, by their names in the model's `state_dict`."""
        return dict(self._best_weights)

    def load(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `facts()` and `tensors()` gave."""
        try:
            metrics = facts["best_metrics"]
            self.best_epoch = facts["best_epoch"]
            self.best_metrics = None if metrics is None else Metrics.from_json(metrics)
            self.epochs_since_best = int(facts["epochs_since_best"])
        except (KeyError, TypeError) as error:
            raise FormatError(
                f"the stored state of early stopping is incomplete ({error}); start the run anew"
            ) from None
        self._best_weights = {name: copy_of(tensor) for name, tensor in tensors.items()}

    def _value(self, metrics: Metrics) -> float:
        value: float = getattr(metrics, self.metric)
        return value

    @torch.no_grad()
    def _keep(self, model: nn.Module) -> None:
        for name, tensor in tensor_state(model).items():
            kept = self._best_weights.get(name)
            if kept is not None and kept.shape == tensor.shape and kept.dtype == tensor.dtype:
                kept.copy_(tensor)  # into the memory of the last copy: fresh pages are what costs
            else:
                self._best_weights[name] = copy_of(tensor)
