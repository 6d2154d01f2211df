"""The trainings that several parts look at: the dense model, and tickets from different weights; each is run once.

Their checkpoints stay beside the search, so whoever asks again gets the trained model at once.
"""

from dataclasses import replace
from typing import Any

from paper.searches import Search, short
from paper.settings import PaperSettings
from thresher.data.batches.batches import BatchSource
from thresher.embeddings.uniform import UniformConfig
from thresher.experiment.fresh import new_model
from thresher.experiment.retrain import Trained, retrain_ticket, train_model
from thresher.experiment.runs import RunConfig
from thresher.search.ticket import Rewind
from thresher.training.fit import TrainingConfig

DENSE_EPOCHS, RETRAIN_EPOCHS, QUICK_CURVE_EPOCHS = 40, 60, 3
"""Of curves over epochs, which no early stopping cuts off."""


def train_dense(settings: PaperSettings, found: Search, *, epochs: int | None = DENSE_EPOCHS) -> Trained:
    """The model with a plain table, over `epochs` epochs (None: until validation stops improving)."""
    model = new_model(found.config, found.table, UniformConfig(embedding_dim=found.config.embedding.embedding_dim))
    training, name = training_config(settings, found.config, epochs), _name(settings, epochs)
    folder = found.folder / f"dense-{name}"
    folder.mkdir(exist_ok=True)
    return train_model(
        model, found.data, training, seed=found.config.seed, folder=folder, watch=_watched(found, epochs)
    )


def retrain(
    settings: PaperSettings,
    found: Search,
    budget: str,
    *,
    rewind: Rewind = "initial",
    epochs: int | None = RETRAIN_EPOCHS,
) -> Trained:
    """The ticket of `budget` from the initial, random or final weights; run again, it is only loaded."""
    purpose = "retrain" if rewind == "random" else "initial"
    model = new_model(found.config, found.table, found.config.embedding, purpose=purpose)
    training, name = training_config(settings, found.config, epochs), _name(settings, epochs)
    ticket = found.tickets[budget]
    folder = found.folder / f"{ticket.budget.slug}-{rewind}-{name}"
    folder.mkdir(exist_ok=True)
    return retrain_ticket(
        ticket, model, found.data, training,
        rewind=rewind, seed=found.config.seed, folder=folder, watch=_watched(found, epochs),
    )  # fmt: skip


def curve(trained: Trained) -> dict[str, Any]:
    """A training as plain data: each epoch's metrics, and those of the epoch best on validation."""
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


def _watched(found: Search, epochs: int | None) -> dict[str, BatchSource] | None:
    """Test curves are for the figure of the lottery ticket, which asks for a number of epochs; for nothing else."""
    return None if epochs is None or found.data.test is None else {"test": found.data.test}


def training_config(settings: PaperSettings, config: RunConfig, epochs: int | None) -> TrainingConfig:
    """A number of epochs means all of them, and the weights themselves: their mean would hide how they move."""
    training = config.training
    if epochs is not None:
        training = replace(training, max_epochs=epochs, patience=epochs, average_decay=0.0)
    return replace(training, max_epochs=QUICK_CURVE_EPOCHS) if settings.quick else training


def _name(settings: PaperSettings, epochs: int | None) -> str:
    return ("stopped" if epochs is None else f"{epochs}-epochs") + ("-quick" if settings.quick else "")
