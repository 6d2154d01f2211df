"""train_model() and retrain_ticket(): train with early stopping on validation, then read the test split once."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from thresher._internal.mapped_tensors import load_tensor_state_, tensor_state
from thresher.compact.embedding import quantize_aware_
from thresher.compact.layouts import ValueType
from thresher.data.batches.batches import BatchSource
from thresher.data.batches.split_batches import SplitBatches
from thresher.embeddings.base import FieldEmbedding
from thresher.report.frontier import FrontierPoint
from thresher.search.ticket import Rewind, Ticket
from thresher.training.distillation import SoftLabels
from thresher.training.epoch import evaluate
from thresher.training.fit import EarlyStopping, FitResult, TrainingConfig, fit
from thresher.training.metrics import Metrics
from thresher.training.progress import Progress

SHORT_EPOCHS = 5


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A model with its best weights, its size and its metrics.

    Attributes:
        num_parameters: embedding parameters; as the paper counts, first-order weights are excluded, unless they were
            searched too (`PepConfig.first_order`).
        storage_bytes: bytes of everything that a lookup of them reads.
        model_bytes: bytes of all weights of the model: `storage_bytes`, other tables, the network.
        fit: how training went; decisions use `fit.validation`.
        test: metrics of the test split, read once, after all decisions; None if it was not read.
        floor_gain: validation AUC above the model without an embedding; None without such a model.
        floor_gain_error: its standard error.
    """

    model: nn.Module
    num_parameters: int
    storage_bytes: int
    model_bytes: int
    fit: FitResult
    test: Metrics | None
    floor_gain: float | None = None
    floor_gain_error: float | None = None

    def point(self, *, label: str, budget: str | None, seed: int | None) -> FrontierPoint:
        """Its size and metrics, for tables and figures."""
        point = FrontierPoint.from_metrics(
            label=label,
            budget=budget,
            seed=seed,
            num_parameters=self.num_parameters,
            storage_bytes=self.storage_bytes,
            validation=self.fit.validation,
            test=self.test,
        )
        return replace(point, floor_gain=self.floor_gain, floor_gain_error=self.floor_gain_error)


def train_model(
    model: nn.Module,
    data: SplitBatches,
    config: TrainingConfig | None = None,
    *,
    seed: int = 0,
    folder: Path | None = None,
    stage: str = "train",
    soft_labels: SoftLabels | None = None,
    watch: Mapping[str, BatchSource] | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> TrainedModel:
    """Train a model with early stopping on validation, restore its best weights, then read the test split once.

    Args:
        soft_labels: targets of the training rows that replace their labels.
        folder: for history and checkpoint; a training found there is resumed.
        watch: further splits to evaluate after each epoch, for curves; no decision uses them.
        should_stop: called after every step; when it returns True, the checkpoint is written and `TimeLimitReached` is
            raised.
    """
    config = TrainingConfig() if config is None else config
    dropout = nullcontext() if soft_labels is None else soft_labels.scaled_dropout(model)
    if soft_labels is not None:
        data, config = soft_labels.relabel(data), replace(config, optimizer=soft_labels.scale_decay(config.optimizer))
    with dropout:
        result = fit(
            model,
            data,
            config,
            seed=seed,
            folder=folder,
            stage=stage,
            watch=watch,
            progress=progress,
            should_stop=should_stop,
        )
    tables = [module for module in model.modules() if isinstance(module, FieldEmbedding)]
    trained = TrainedModel(
        model=model,
        num_parameters=sum(table.num_parameters() for table in tables),
        storage_bytes=sum(table.storage_bytes() for table in tables),
        model_bytes=count_model_bytes(model),
        fit=result,
        test=None,
    )
    return with_test_metrics(trained, data)


def count_model_bytes(model: nn.Module) -> int:
    """Bytes of all weights that predictions read; embeddings of methods count as they are stored."""
    seen: set[int] = set()  # tensors that two modules share count once

    def count(module: nn.Module) -> int:
        own = [*module.parameters(recurse=False), *_stored_buffers(module)]
        if isinstance(module, FieldEmbedding):
            first = next(module.parameters(), None)
            if first is not None and id(first) in seen:
                return 0
            seen.update(map(id, module.parameters()))
            return module.storage_bytes()
        new = {id(tensor): tensor.nbytes for tensor in own if id(tensor) not in seen}
        seen.update(new)
        return sum(new.values()) + sum(map(count, module.children()))

    return count(model)


def _stored_buffers(module: nn.Module) -> Iterator[Tensor]:
    buffers = module.named_buffers(recurse=False)
    return (buffer for name, buffer in buffers if name not in module._non_persistent_buffers_set)


def evaluate_trained(model: nn.Module, data: SplitBatches) -> TrainedModel:
    """A model that is trained already, with its metrics."""
    validation = evaluate(model, data.validation, feature_counts=data.feature_counts)
    tables = [module for module in model.modules() if isinstance(module, FieldEmbedding)]
    trained = TrainedModel(
        model=model,
        num_parameters=sum(table.num_parameters() for table in tables),
        storage_bytes=sum(table.storage_bytes() for table in tables),
        model_bytes=count_model_bytes(model),
        fit=FitResult(best_epoch=0, num_epochs=0, validation=validation, seconds=0.0, history=()),
        test=None,
    )
    return with_test_metrics(trained, data)


def with_test_metrics(trained: TrainedModel, data: SplitBatches) -> TrainedModel:
    """The same model with its metrics on the test split, which is read here; unchanged if `data` has none."""
    if data.test is None:
        return trained
    return replace(trained, test=evaluate(trained.model, data.test, feature_counts=data.feature_counts))


def retrain_ticket(
    ticket: Ticket,
    model: nn.Module,
    data: SplitBatches,
    config: TrainingConfig | None = None,
    *,
    rewind: Rewind = "initial",
    seed: int = 0,
    folder: Path | None = None,
    soft_labels: SoftLabels | None = None,
    watch: Mapping[str, BatchSource] | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> TrainedModel:
    """Rewind the kept entries, train them, and restore the best epoch (lines 5 to 8 of the paper's Algorithm 1).

    Args:
        model: built with `ticket.embedding_config(…)` of the searched config; compact tables replace the searched ones.
        rewind: `initial` as in the paper; `random` keeps the model's own fresh weights, `final` the search's last ones.
    """
    ticket.apply_(model, rewind=rewind)
    return train_model(
        model,
        data,
        config,
        seed=seed,
        folder=folder,
        stage=f"retrain {ticket.budget}" + ("" if soft_labels is None else ", soft labels"),
        soft_labels=soft_labels,
        watch=watch,
        progress=progress,
        should_stop=should_stop,
    )


def short_training(config: TrainingConfig) -> TrainingConfig:
    """A config for weights that are already trained: at most five epochs at a tenth of the learning rate.

    >>> short = short_training(TrainingConfig(batch_size=512))
    >>> short.max_epochs, short.batch_size, short.optimizer.learning_rate
    (5, 512, 0.0001)
    """
    optimizer = replace(config.optimizer, learning_rate=config.optimizer.learning_rate / 10)
    return replace(config, max_epochs=min(config.max_epochs, SHORT_EPOCHS), optimizer=optimizer)


def retrain_quantized(
    model: nn.Module,
    data: SplitBatches,
    value_type: ValueType,
    config: TrainingConfig | None = None,
    *,
    seed: int = 0,
    soft_labels: SoftLabels | None = None,
    progress: Progress | None = None,
) -> TrainedModel:
    """Quantization-aware training: continue a retrained model with its values rounded to 8 or 4 bits.

    If no epoch improves on plain rounding, judged on validation, the rounded model is returned.

    Args:
        model: its searched tables are compact. It is changed: its tables round their values.
        value_type: `int8` or `int4`.
        config: by default `short_training` of the default settings.
        soft_labels: those the model was retrained on, if any.
    """
    config = short_training(TrainingConfig()) if config is None else config
    quantize_aware_(model, value_type)
    rounded = {name: tensor.clone() for name, tensor in tensor_state(model).items()}
    start = evaluate(model, data.validation, feature_counts=data.feature_counts)
    trained = train_model(
        model,
        replace(data, test=None),
        config,
        seed=seed,
        stage=f"quantize {value_type}",
        soft_labels=soft_labels,
        progress=progress,
    )
    comparison = EarlyStopping(metric=config.early_stopping_metric)
    comparison.update(0, trained.fit.validation)
    if comparison.update(1, start):
        load_tensor_state_(model, rounded)
        trained = replace(trained, fit=replace(trained.fit, best_epoch=0, validation=start))
    return with_test_metrics(trained, data)
