"""EncodedSplit → batches of tensors, shuffled by seed, resumable. Row order is a pure function of (seed, epoch)."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from thresher.data.batches.prefetch import prefetched
from thresher.data.batches.shuffle import Order, build_order
from thresher.data.schema import Pooling
from thresher.data.table import BagColumn, EncodedSplit
from thresher.errors import ConfigError


@dataclass(frozen=True)
class Bag:
    """One multi-valued field of a batch: row i holds the features `values[offsets[i]:offsets[i + 1]]`, maybe none."""

    field: int  # its number in `schema.fields`
    values: Tensor  # int32 [total], global feature ids
    offsets: Tensor  # int64 [B + 1]
    pooling: Pooling

    def to(self, device: torch.device | str) -> "Bag":
        return replace(self, values=self.values.to(device), offsets=self.offsets.to(device))


@dataclass(frozen=True)
class Batch:
    """What a model takes and what it should answer: `model(*inputs)` against `labels`."""

    inputs: tuple[Any, ...]
    """`(ids,)`, `(ids, dense)` or, with multi-valued fields, `(ids, dense or None, bags)`.

    ids int32 [B, F], dense float32 [B, K], bags a tuple of `Bag`.
    """
    labels: Tensor  # float32 [B]
    weights: Tensor | None = None  # float32 [B]

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(
            tuple(_move(part, device) for part in self.inputs),
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


@runtime_checkable
class TeachableSource(BatchSource, Protocol):
    """A source that can be gone through in the order of its rows, and given other labels for them."""

    def in_order(self, batch_size: int) -> BatchSource:
        """All rows in their own order."""

    def with_labels(self, labels: NDArray[np.float32]) -> BatchSource:
        """The same batches with the labels `[rows]` in the place of their own."""


def check_labels(labels: NDArray[np.float32], num_rows: int) -> None:
    """Raise unless there is one label per row."""
    if labels.shape != (num_rows,):
        raise ConfigError(f"the labels have the shape {list(labels.shape)}; there are {num_rows:,} rows, one for each")


class Batches:
    """Batches of one split. Without a seed the rows come in file order; the last, shorter batch is always kept.

    Args:
        split: the rows, memory-mapped.
        batch_size: rows of a batch.
        seed: shuffles anew in each epoch. A split that is small enough is shuffled as a whole; a larger one in windows
            of `window` rows, each made of blocks from all over the split, so that the disk is read in long pieces.
        window: rows to shuffle at a time; by default all of them up to 1 GiB of ids, else what fits 256 MiB.
        shard: (number, count): this worker's share of every epoch. With a seed all shards have equally many rows.
        prefetch: batches to make ahead in a thread; 0 makes them when they are asked for.
    """

    def __init__(
        self,
        split: EncodedSplit,
        batch_size: int,
        *,
        seed: int | None = None,
        window: int | None = None,
        shard: tuple[int, int] = (0, 1),
        prefetch: int = 0,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; it must be at least 1")
        if not 0 <= shard[0] < shard[1]:
            raise ConfigError(f"shard is {shard}; it must be (number, count) with 0 <= number < count")
        self.split, self.batch_size, self.seed, self.prefetch = split, batch_size, seed, prefetch
        self.window, self.shard = window, shard
        row_bytes = 4 * max(split.ids.shape[1], 1)
        self._order: Order = build_order(split.num_rows, row_bytes, seed, window, shard, self._read_ahead)

    @property
    def num_rows(self) -> int:
        """Rows of an epoch, of this shard."""
        return self._order.num_rows

    def __len__(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        made = (self._batch(rows) for rows in self._order.rows(epoch, self.batch_size, start))
        return prefetched(made, self.prefetch) if self.prefetch else made

    def in_order(self, batch_size: int) -> "Batches":
        return Batches(self.split, batch_size, prefetch=self.prefetch)

    def with_labels(self, labels: NDArray[np.float32]) -> "Batches":
        check_labels(labels, self.split.num_rows)
        return Batches(
            replace(self.split, labels=labels),
            self.batch_size,
            seed=self.seed,
            window=self.window,
            shard=self.shard,
            prefetch=self.prefetch,
        )

    def _read_ahead(self, first_rows: NDArray[np.int64], num_rows: int) -> None:
        """Ask the disk for blocks that are soon needed, in long pieces instead of page by page."""
        split = self.split
        for array in (split.ids, split.labels, split.dense, split.weights):
            if isinstance(array, np.memmap) and array.filename is not None and hasattr(os, "posix_fadvise"):
                row_bytes = array.itemsize * int(np.prod(array.shape[1:]))
                with Path(array.filename).open("rb") as file:
                    for row in first_rows.tolist():
                        place, size = array.offset + row * row_bytes, num_rows * row_bytes
                        os.posix_fadvise(file.fileno(), place, size, os.POSIX_FADV_WILLNEED)

    def _batch(self, rows: slice | NDArray[np.int64]) -> Batch:
        split = self.split
        ids, dense = _gather(split.ids, rows), None if split.dense is None else _gather(split.dense, rows)
        inputs: tuple[Any, ...] = (ids,) if dense is None else (ids, dense)
        if split.bags:
            inputs = (ids, dense, tuple(_gather_bag(bag, rows) for bag in split.bags))
        weights = None if split.weights is None else _gather(split.weights, rows)
        return Batch(inputs, _gather(split.labels, rows).float(), weights)


def _gather(array: NDArray[Any], rows: slice | NDArray[np.int64]) -> Tensor:
    taken = np.array(array[rows]) if isinstance(rows, slice) else np.take(array, rows, axis=0)
    return torch.from_numpy(taken)


def _gather_bag(bag: BagColumn, rows: slice | NDArray[np.int64]) -> Bag:
    if isinstance(rows, slice):
        rows = np.arange(rows.start, rows.stop)
    starts, ends = bag.offsets[rows], bag.offsets[rows + 1]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(ends - starts, out=offsets[1:])
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], ends - starts)
    values = np.take(bag.values, places) if len(places) else np.empty(0, np.int32)
    return Bag(bag.field, torch.from_numpy(values), torch.from_numpy(offsets), bag.pooling)


def _move(part: Any, device: torch.device | str) -> Any:
    if isinstance(part, tuple):
        return tuple(_move(one, device) for one in part)
    return None if part is None else part.to(device)
