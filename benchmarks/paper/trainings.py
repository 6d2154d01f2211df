"""Trainings shared by several parts: the dense model and tickets from different weights.

Checkpoints are stored in the folder of the search, so each training runs once.
"""

from dataclasses import replace
from typing import Any

from paper.searches import Search, short
from paper.settings import PaperSettings
from thresher.data.batches.batches import BatchSource
from thresher.embeddings.uniform import UniformConfig
from thresher.experiment.config import RunConfig
from thresher.experiment.retrain import TrainedModel, retrain_ticket, train_model
from thresher.experiment.run.run_models import new_model
from thresher.search.ticket import Rewind
from thresher.training.fit import TrainingConfig

DENSE_EPOCHS, RETRAIN_EPOCHS, QUICK_CURVE_EPOCHS = 40, 60, 3
"""Epochs of training curves, without early stopping."""


def train_dense(settings: PaperSettings, found: Search, *, epochs: int | None = DENSE_EPOCHS) -> TrainedModel:
    """Train the model with a dense table for `epochs` epochs (None: with early stopping)."""
    model = new_model(found.config, found.table, UniformConfig(embedding_dim=found.config.embedding.embedding_dim))
    training, name = training_config(settings, found.config, epochs), _name(settings, epochs)
    folder = found.folder / f"dense-{name}"
    folder.mkdir(exist_ok=True)
    return train_model(
        model, found.data, training, seed=found.config.seed, folder=folder, watch=_extra_splits(found, epochs)
    )


def retrain(
    settings: PaperSettings,
    found: Search,
    budget: str,
    *,
    rewind: Rewind = "initial",
    epochs: int | None = RETRAIN_EPOCHS,
) -> TrainedModel:
    """Retrain the ticket of `budget` from the initial, random or final weights; a finished training is loaded."""
    purpose = "retrain" if rewind == "random" else "initial"
    model = new_model(found.config, found.table, found.config.embedding, purpose=purpose)
    training, name = training_config(settings, found.config, epochs), _name(settings, epochs)
    ticket = found.tickets[budget]
    folder = found.folder / f"{ticket.budget.slug}-{rewind}-{name}"
    folder.mkdir(exist_ok=True)
    return retrain_ticket(
        ticket, model, found.data, training,
        rewind=rewind, seed=found.config.seed, folder=folder, watch=_extra_splits(found, epochs),
    )  # fmt: skip


def curve(trained: TrainedModel) -> dict[str, Any]:
    """Return a training as plain data: metrics of each epoch and of the best epoch on validation."""
    assert trained.test is not None
    splits = [{"validation": record["validation"], **record["watch"]} for record in trained.fit.history]
    return {
        "num_parameters": trained.num_parameters,
        "best_epoch": trained.fit.best_epoch,
        "validation": short(trained.fit.validation),
        "test": short(trained.test),
        "epochs": {"train_loss": [round(record["train_loss"], 6) for record in trained.fit.history]}
        | {
            f"{split}_{metric}": [round(metrics[split][metric], 6) for metrics in splits]
            for split in ("validation", "test")
            for metric in ("auc", "logloss")
        },
    }


def _extra_splits(found: Search, epochs: int | None) -> dict[str, BatchSource] | None:
    """Return the test split for the curves of the lottery ticket figure, which has a fixed number of epochs."""
    return None if epochs is None or found.data.test is None else {"test": found.data.test}


def training_config(settings: PaperSettings, config: RunConfig, epochs: int | None) -> TrainingConfig:
    """Return the training settings; a fixed number of epochs disables early stopping and the weight average."""
    training = config.training
    if epochs is not None:
        training = replace(training, max_epochs=epochs, patience=epochs, average_decay=0.0)
    return replace(training, max_epochs=QUICK_CURVE_EPOCHS) if settings.quick else training


def _name(settings: PaperSettings, epochs: int | None) -> str:
    return ("stopped" if epochs is None else f"{epochs}-epochs") + ("-quick" if settings.quick else "")
