"""EncodedSplit → batches of tensors, shuffled by seed, resumable. Row order is a pure function of (seed, epoch)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from thresher.data.encoded_table import EncodedSplit
from thresher.errors import ConfigError


@dataclass(frozen=True)
class Batch:
    """What a model takes and what it should answer: `model(*inputs)` against `labels`."""

    inputs: tuple[Any, ...]
    """`(ids,)` or `(ids, dense)`: ids int32 [B, F], dense float32 [B, K]."""
    labels: Tensor  # float32 [B]
    weights: Tensor | None = None  # float32 [B]

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(
            tuple(part.to(device) for part in self.inputs),
            self.labels.to(device),
            None if self.weights is None else self.weights.to(device),
        )


class BatchSource(Protocol):
    """Anything with these three trains; foreign data too."""

    @property
    def num_rows(self) -> int: ...

    def __len__(self) -> int:
        """Batches per epoch."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, always in the same order, from batch `start` on."""


class Batches:
    """Batches of one split. Without a seed the rows come in file order; the last, shorter batch is always kept."""

    def __init__(self, split: EncodedSplit, batch_size: int, *, seed: int | None = None) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; it must be at least 1")
        self.split, self.batch_size, self.seed = split, batch_size, seed

    @property
    def num_rows(self) -> int:
        return self.split.num_rows

    def __len__(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        order = None if self.seed is None else epoch_order(self.num_rows, self.seed, epoch)
        for first in range(start * self.batch_size, self.num_rows, self.batch_size):
            last = min(first + self.batch_size, self.num_rows)
            yield self._batch(slice(first, last) if order is None else order[first:last])

    def _batch(self, rows: slice | NDArray[np.int64]) -> Batch:
        split = self.split
        ids = _gather(split.ids, rows)
        inputs = (ids,) if split.dense is None else (ids, _gather(split.dense, rows))
        weights = None if split.weights is None else _gather(split.weights, rows)
        return Batch(inputs, _gather(split.labels, rows).float(), weights)


def epoch_order(num_rows: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The rows of a split in the order of one epoch."""
    return np.random.default_rng([seed, epoch]).permutation(num_rows)


def _gather(array: NDArray[Any], rows: slice | NDArray[np.int64]) -> Tensor:
    taken = np.array(array[rows]) if isinstance(rows, slice) else np.take(array, rows, axis=0)
    return torch.from_numpy(taken)
