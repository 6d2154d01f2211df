"""TensorBatches: batches of tensors in memory, for models that bring inputs of their own."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from thresher.data.batches.batches import Batch, check_labels
from thresher.errors import DataError

Columns = Tensor | Mapping[str, Tensor]


class TensorBatches:
    """A `BatchSource` over tensors in memory, for models with inputs of their own.

    Args:
        inputs: what `model(*inputs)` takes, each a tensor or a dict of tensors, row by row.
        labels: 0 or 1, `[rows]` or `[rows, 1]`.
        weights: of the rows, `[rows]`, 0 or more.
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
        if weights is not None and not bool(((weights >= 0) & weights.isfinite()).all()):
            raise DataError("weights must be 0 or more; some are negative, infinite or NaN")
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
