"""prune_model(): the whole search on a model we did not write, in our loop. Your own loop: `attach_` and `Searcher`.

Not here: raw files and bundles (`thresher.pipeline`); a foreign model brings its batches and is saved by its owner.
"""

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from thresher.attach import AttachedTable, attach_, compact_
from thresher.attach.find import Where
from thresher.data.batches import Batch, TeachableSource, check_labels
from thresher.data.split_batches import SplitBatches
from thresher.embeddings.base import BYTES_PER_VALUE
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError, DataError
from thresher.retrain import Trained, retrain_ticket, tested, train_model
from thresher.search.config import SearchConfig
from thresher.search.find_tickets import find_tickets
from thresher.tickets.budget import Budget
from thresher.tickets.ticket import Ticket
from thresher.training.fit import TrainingConfig
from thresher.training.loop import predict
from thresher.training.progress import Progress
from thresher.training.teaching import Lesson, Teaching, best_teaching, check_share, teachings

Columns = Tensor | Mapping[str, Tensor]
MANY_OUTPUTS = 32
"""So many logits of a trained model do not all lie between 0 and 1."""


class TensorBatches:
    """A `BatchSource` over tensors in memory, for models with inputs of their own.

    Args:
        inputs: what `model(*inputs)` takes, each a tensor or a dict of tensors, row by row.
        labels: 0 or 1, `[rows]` or `[rows, 1]`.
        weights: of the rows, `[rows]`.
        seed: of the shuffling, another order each epoch; None keeps the order of the rows.
    """

    def __init__(
        self,
        inputs: Sequence[Columns],
        labels: Tensor,
        batch_size: int,
        *,
        weights: Tensor | None = None,
        seed: int | None = None,
    ) -> None:
        self.inputs, self.labels, self.weights = tuple(inputs), labels.float().reshape(-1), weights
        for part in self.inputs:
            for column in (part,) if isinstance(part, Tensor) else part.values():
                if len(column) != self.num_rows:
                    raise DataError(f"an input has {len(column):,} rows, the labels have {self.num_rows:,}")
        if weights is not None and weights.shape != self.labels.shape:
            raise DataError(f"weights are {list(weights.shape)}; one for each of the {self.num_rows:,} rows is needed")
        if not bool(((self.labels >= 0) & (self.labels <= 1)).all()):
            raise DataError("labels must lie between 0 and 1; some do not, or are NaN")
        if batch_size < 1:
            raise DataError(f"batch_size is {batch_size}; it must be at least 1")
        self.batch_size, self.seed = batch_size, seed

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    def __len__(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def in_order(self, batch_size: int) -> "TensorBatches":
        return TensorBatches(self.inputs, self.labels, batch_size, weights=self.weights)

    def with_labels(self, labels: NDArray[np.float32]) -> "TensorBatches":
        check_labels(labels, self.num_rows)
        given = torch.tensor(labels).to(self.labels.device)
        return TensorBatches(self.inputs, given, self.batch_size, weights=self.weights, seed=self.seed)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        order = None
        if self.seed is not None:
            order = torch.from_numpy(np.random.default_rng([self.seed, epoch]).permutation(self.num_rows))
        for first in range(start * self.batch_size, self.num_rows, self.batch_size):
            rows = slice(first, first + self.batch_size)
            taken = rows if order is None else order[rows].to(self.labels.device)
            weights = None if self.weights is None else self.weights[taken]
            yield Batch(tuple(_take(part, taken) for part in self.inputs), self.labels[taken], weights)


def _take(columns: Columns, rows: slice | Tensor) -> Columns:
    return columns[rows] if isinstance(columns, Tensor) else {name: column[rows] for name, column in columns.items()}


@dataclass(frozen=True)
class PrunedModels:
    """A foreign model at several sizes.

    Attributes:
        tables: the tables that were searched.
        dense: the model trained as it is, for comparison; None if that was not asked for.
        pruned: budget as written → the model retrained at that size, with compact tables.
        teaching: the part of the labels that the dense model made up in the search, and in retraining.
    """

    tables: list[AttachedTable]
    dense: Trained | None
    pruned: Mapping[str, Trained]
    teaching: Teaching


def prune_model(
    model: nn.Module,
    data: SplitBatches,
    budgets: str | Iterable[str | int | Budget],
    config: PepConfig | None = None,
    *,
    where: Where | None = None,
    min_features: int = 0,
    search: SearchConfig | None = None,
    training: TrainingConfig | None = None,
    with_dense: bool = True,
    teacher_share: float | None = None,
    teach_search: bool | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> PrunedModels:
    """Search a model's embedding tables once and retrain it at each budget; the model given is left as it is.

    Args:
        model: gives logits `[B]` or `[B, 1]` for `model(*batch.inputs)`; its weights now are the initial ones.
        data: any batches the model takes, for training and validation, and for a test at the end.
        budgets: parameters (`30k`), shares (`5%`) or bytes (`1MB`) over all its searched tables together.
        where: which tables, as for `attach_`; so is `min_features`.
        with_dense: train the unpruned model too.
        teacher_share: the part of each training label that the unpruned model's prediction makes up in retraining; by
            default 0 or 1, whichever retrains the smallest budget to the higher validation AUC, and 0 where there is no
            unpruned model or the batches cannot be relabelled (`TensorBatches` can).
        teach_search: whether it has the same part in the search; by default that is tried, too, where a teacher helps.
        folder: histories, tickets and checkpoints go there; work found there is taken up again.
    """
    check_share(0.0 if teacher_share is None else teacher_share)
    if teacher_share and not with_dense:
        raise ConfigError(f"teacher_share is {teacher_share}, but there is no teacher: leave with_dense = True")
    if teacher_share is None and not (with_dense and isinstance(data.train, TeachableSource)):
        teacher_share = 0.0
    ways = teachings(teacher_share, teach_search)
    folder, untested, lesson = None if folder is None else Path(folder), replace(data, test=None), None

    def attached() -> tuple[nn.Module, list[AttachedTable]]:
        copied = _copy(model)
        return copied, attach_(copied, config, where=where, min_features=min_features)

    def find(teaching: Teaching) -> Sequence[Ticket]:
        into = _under(folder, f"tickets/taught-{teaching.search:g}" if teaching.search else "tickets")
        lesson_of_it = lesson if teaching.search else None
        return find_tickets(
            attached()[0], data, budgets, search, seed=seed, folder=into, lesson=lesson_of_it, progress=progress
        )

    def retrain(ticket: Ticket, teaching: Teaching, data: SplitBatches) -> Trained:
        into = _under(folder, f"retrained/{ticket.budget.slug}/{teaching}")
        lesson_of_it = lesson if teaching.retraining else None
        return retrain_ticket(
            ticket, _copy(model), data, training, seed=seed, folder=into, lesson=lesson_of_it, progress=progress
        )

    tables = attached()[1]  # before anything long: impossible settings are told at once
    found: dict[float, Sequence[Ticket]] = {} if ways[0].search else {0.0: find(ways[0])}
    dense = None
    if with_dense:
        dense = train_model(_copy(model), data, training, seed=seed, folder=_under(folder, "dense"), progress=progress)
        _warn_of_probabilities(dense.model, data)
        num_parameters = sum(table.num_features * table.embedding_dim for table in tables)
        dense = replace(dense, num_parameters=num_parameters, storage_bytes=num_parameters * BYTES_PER_VALUE)
        if share := ways[-1].retraining:
            lesson = Lesson.by(dense.model, data.train, share, progress=progress)
    tried: dict[tuple[Teaching, Budget], Trained] = {}

    def validation_auc(teaching: Teaching) -> float:
        tickets = found.get(teaching.search) or found.setdefault(teaching.search, find(teaching))
        smallest = min(tickets, key=lambda ticket: ticket.num_parameters)
        trained = tried[teaching, smallest.budget] = retrain(smallest, teaching, untested)
        return trained.fit.validation.auc

    teaching = ways[0] if len(ways) == 1 else best_teaching(ways, validation_auc)[0]
    pruned = {}
    for ticket in found.get(teaching.search) or find(teaching):
        trained = tried.get((teaching, ticket.budget)) or retrain(ticket, teaching, untested)
        trained = tested(trained.model, data, trained.fit)
        sizes = compact_(trained.model)  # one table held by two modules counts once
        pruned[str(ticket.budget)] = replace(
            trained,
            num_parameters=sum(size.num_parameters for size in sizes),
            storage_bytes=sum(size.storage_bytes for size in sizes),
        )
    return PrunedModels(tables, dense, pruned, teaching)


def _warn_of_probabilities(model: nn.Module, data: SplitBatches) -> None:
    """Many models of other libraries end in a sigmoid; training would put another one on top, and learn badly."""
    for _, outputs in predict(model, data.validation):
        if len(outputs) >= MANY_OUTPUTS and float(outputs.min()) >= 0.0 and float(outputs.max()) <= 1.0:
            warnings.warn(
                f"{type(model).__qualname__} gives numbers between 0 and 1 only, which look like probabilities, where "
                "logits are expected; wrap it: torch.logit(model(…), eps=1e-6)",
                stacklevel=3,
            )
        break


def _copy(model: nn.Module) -> nn.Module:
    """Our optimizer takes dense gradients of plain tables, also of those made for `SparseAdam`."""
    copied = copy.deepcopy(model)
    for module in copied.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = False
    return copied


def _under(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else folder / name
