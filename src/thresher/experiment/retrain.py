"""retrain_ticket(): a model rewound to its ticket's initial weights → trained on what is kept alone, tested once."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from thresher._internal.tensor_state import load_tensor_state_, tensor_state
from thresher.compact.embedding import quantize_aware_
from thresher.compact.layouts import ValueType
from thresher.embeddings.base import FieldEmbedding
from thresher.search.ticket import Rewind, Ticket
from thresher.training.distillation import SoftLabels
from thresher.training.fit import EarlyStopping, FitResult, TrainingConfig, fit
from thresher.training.loop import evaluate
from thresher.training.metrics import Metrics
from thresher.training.progress import Progress

if TYPE_CHECKING:
    from thresher.data.batches.batches import BatchSource
    from thresher.data.batches.split_batches import SplitBatches

SHORT_EPOCHS = 5


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A model with its best weights, what it weighs, and how well it predicts.

    Attributes:
        num_parameters: embedding parameters; as the paper counts, first-order weights are excluded, unless they were
            searched too (`PepConfig.first_order`).
        storage_bytes: bytes of everything a lookup of them needs.
        fit: how training went; `fit.validation` is what decisions are made on.
        test: metrics of the test split, read once, after all decisions; None if the data has none.
    """

    model: nn.Module
    num_parameters: int
    storage_bytes: int
    fit: FitResult
    test: Metrics | None


def train_model(
    model: nn.Module,
    data: "SplitBatches",
    config: TrainingConfig | None = None,
    *,
    seed: int = 0,
    folder: Path | None = None,
    stage: str = "train",
    soft_labels: SoftLabels | None = None,
    watch: "Mapping[str, BatchSource] | None" = None,
    progress: Progress | None = None,
) -> Trained:
    """Train a model with early stopping on validation, restore its best weights, then read the test split once.

    Args:
        soft_labels: what a teacher says of the training rows, to be learned in the place of their labels.
        folder: history and checkpoint go there; a training found there is taken up again.
        watch: splits to follow over epochs, only for figures that ask for such curves by name.
    """
    config = TrainingConfig() if config is None else config
    result = _fit_taught(
        model, data, config, soft_labels, seed=seed, folder=folder, stage=stage, watch=watch, progress=progress
    )
    return tested(model, data, result)


def _fit_taught(
    model: nn.Module,
    data: "SplitBatches",
    config: TrainingConfig,
    soft_labels: SoftLabels | None,
    *,
    seed: int,
    folder: Path | None = None,
    stage: str,
    watch: "Mapping[str, BatchSource] | None" = None,
    progress: Progress | None,
) -> FitResult:
    """`fit`, on what a soft_labels says of the training rows, with the decay and dropout it leaves."""
    learned, easing = data, nullcontext() if soft_labels is None else soft_labels.scaled_dropout(model)
    if soft_labels is not None:
        learned, config = soft_labels.relabel(data), soft_labels.scale_decay(config)
    with easing:
        return fit(model, learned, config, seed=seed, folder=folder, stage=stage, watch=watch, progress=progress)


def tested(model: nn.Module, data: "SplitBatches", result: FitResult) -> Trained:
    """What a trained model weighs, and its metrics on the test split, read here for the first time."""
    tables = [module for module in model.modules() if isinstance(module, FieldEmbedding)]
    return Trained(
        model=model,
        num_parameters=sum(table.num_parameters() for table in tables),
        storage_bytes=sum(table.storage_bytes() for table in tables),
        fit=result,
        test=None if data.test is None else evaluate(model, data.test, feature_counts=data.feature_counts),
    )


def retrain_ticket(
    ticket: Ticket,
    model: nn.Module,
    data: "SplitBatches",
    config: TrainingConfig | None = None,
    *,
    rewind: Rewind = "initial",
    seed: int = 0,
    folder: Path | None = None,
    soft_labels: SoftLabels | None = None,
    watch: "Mapping[str, BatchSource] | None" = None,
    progress: Progress | None = None,
) -> Trained:
    """Lines 5 to 8 of the paper's Algorithm 1: reset what survives, train it, keep the best.

    Args:
        model: built with `ticket.embedding_config(…)` of what the search had. It is changed: what was found takes the
            place of the searched tables.
        rewind: `initial` as in the paper; `random` keeps the model's own fresh weights, `final` the search's last ones.
        soft_labels: of the dense model; the paper has none.
    """
    ticket.apply_(model, rewind=rewind)
    return train_model(
        model,
        data,
        config,
        seed=seed,
        folder=folder,
        stage=f"retrain {ticket.budget}" + ("" if soft_labels is None else ", taught"),
        soft_labels=soft_labels,
        watch=watch,
        progress=progress,
    )


def short_training(config: TrainingConfig) -> TrainingConfig:
    """The same training for weights that are good already: a few epochs at a tenth of its rate.

    >>> short = short_training(TrainingConfig(batch_size=512))
    >>> short.max_epochs, short.batch_size, short.optimizer.learning_rate
    (5, 512, 0.0001)
    """
    optimizer = replace(config.optimizer, learning_rate=config.optimizer.learning_rate / 10)
    return replace(config, max_epochs=min(config.max_epochs, SHORT_EPOCHS), optimizer=optimizer)


def retrain_quantised(
    model: nn.Module,
    data: "SplitBatches",
    value_type: ValueType,
    config: TrainingConfig | None = None,
    *,
    seed: int = 0,
    soft_labels: SoftLabels | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Go on with a retrained model in the 8 or 4 bits its values will be stored in.

    Where no epoch improves on plain rounding, judged on validation, the rounded model is what comes back.

    Args:
        model: one whose searched tables are compact. It is changed: its tables now round their values.
        value_type: `int8` or `int4`.
        config: best `short_training` of the settings the model was retrained with; by default that of the usual ones.
        soft_labels: the one the model was retrained on, if it was.
    """
    config = short_training(TrainingConfig()) if config is None else config
    quantize_aware_(model, value_type)
    rounded = {name: tensor.clone() for name, tensor in tensor_state(model).items()}
    start = evaluate(model, data.validation, feature_counts=data.feature_counts)
    stage = f"quantise {value_type}"
    result = _fit_taught(model, data, config, soft_labels, seed=seed, stage=stage, progress=progress)
    watched = EarlyStopping(metric=config.early_stopping_metric)
    watched.update(0, result.validation)
    if watched.update(1, start):
        load_tensor_state_(model, rounded)
        result = replace(result, best_epoch=0, validation=start)
    return tested(model, data, result)
