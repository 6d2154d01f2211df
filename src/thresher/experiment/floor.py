"""The floor: the linear term alone, without an embedding, and how much a model with embeddings gains over it.

A gain is measured on validation, with the standard error of a paired comparison: both models predict the same rows.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from thresher._internal.storage.sealed_arrays import load_array, save_array
from thresher.data.batches.batches import BatchSource
from thresher.experiment.retrain import TrainedModel
from thresher.training.epoch import predict_rows
from thresher.training.fit import TrainingConfig
from thresher.training.metrics import auc_difference

NO_EMBEDDING = "no embedding"
"""The label of the floor's point."""
RATE_FACTOR, MIN_DELTA = 3.0, 1e-4
FEWEST_EPOCHS, MOST_EPOCHS, MOST_STEPS = 2, 200, 20_000
"""Limits of the floor's training: on data with a long epoch, more would cost more than the dense training."""


def floor_training(config: TrainingConfig, steps_per_epoch: int) -> TrainingConfig:
    """Training until an epoch gains next to nothing.

    A linear term needs more epochs than an embedding, and bears a higher rate; a third of its epochs would only raise
    its AUC by a few ten-thousandths.

    >>> [floor_training(TrainingConfig(), steps).max_epochs for steps in (10, 500, 50_000)]
    [200, 40, 2]
    """
    optimizer = replace(config.optimizer, learning_rate=RATE_FACTOR * config.optimizer.learning_rate)
    max_epochs = min(MOST_EPOCHS, max(FEWEST_EPOCHS, MOST_STEPS // steps_per_epoch))
    min_delta = max(MIN_DELTA, config.min_delta)
    return replace(config, max_epochs=max_epochs, patience=1, min_delta=min_delta, optimizer=optimizer)


@dataclass(frozen=True)
class Floor:
    """The predictions of the floor for the validation rows, as logits."""

    predictions: NDArray[np.float32]

    @classmethod
    def of(cls, model: nn.Module, validation: BatchSource) -> "Floor":
        return cls(_predictions(model, validation)[1])

    def save(self, path: Path) -> None:
        save_array(path, self.predictions)

    @classmethod
    def load(cls, path: Path) -> "Floor":
        return cls(load_array(path, "Delete its folder, and resume the run."))

    def compare(self, trained: TrainedModel, validation: BatchSource) -> TrainedModel:
        """The same model with its gain over the floor."""
        labels, predictions, weights = _predictions(trained.model, validation)
        gain, error = auc_difference(labels, predictions, self.predictions, weights)
        return replace(trained, floor_gain=gain, floor_gain_error=error)


def _predictions(model: nn.Module, rows: BatchSource) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[Any] | None]:
    """Labels, logits and sample weights of all rows."""
    columns = predict_rows(model, rows)
    labels, logits = columns["labels"], columns["logits"]
    assert labels is not None
    assert logits is not None
    return labels.reshape(-1), logits, columns["weights"]
