"""Batches of tensors: from an `EncodedSplit` on disk (`Batches`) or from tensors in memory (`TensorBatches`)."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from thresher.data.batches.shuffle import BLOCK_ROWS, cut_batches, default_window, prefetched, shuffle_rows
from thresher.data.table import Bag, EncodedSplit
from thresher.errors import ConfigError, DataError

Columns = Tensor | Mapping[str, Tensor]
Rows = slice | NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Inputs of `model(*inputs)`, and labels.

    Inputs are `(ids,)`, `(ids, dense)` or, with multi-valued fields, `(ids, dense or None, bags)`: ids int32 `[B, F]`,
    dense float32 `[B, K]`, bags a tuple of `Bag`.
    """

    inputs: tuple[Any, ...]
    labels: Tensor  # float32 [B]
    weights: Tensor | None = None  # float32 [B]
    total_weight: float | None = None
    """Rows (or the sum of sample weights) of the whole batch, if this is the part of one process."""

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "Batch":
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        """In memory from which a GPU copies while the CPU continues."""
        return self._map(lambda part: part.pin_memory() if hasattr(part, "pin_memory") else part)

    def _map(self, change: Callable[[Any], Any]) -> "Batch":
        inputs = _map_tensors(self.inputs, change)
        return replace(self, inputs=inputs, labels=change(self.labels), weights=_map_tensors(self.weights, change))


class BatchSource(Protocol):
    """What training needs from a data set; implement it to train on your own data."""

    @property
    def num_rows(self) -> int: ...

    def __len__(self) -> int:
        """Batches per epoch."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, starting at batch `start`; the order of an epoch never changes."""


@runtime_checkable
class DistillableSource(BatchSource, Protocol):
    """A source for distillation: its rows can be read in order, and its labels replaced by soft labels."""

    def in_order(self, batch_size: int) -> BatchSource:
        """All rows in file order."""

    def with_labels(self, labels: NDArray[np.float32]) -> BatchSource:
        """The same batches with these labels, `[rows]` in file order."""


@runtime_checkable
class SharedSource(BatchSource, Protocol):
    """A source whose batches several processes can share."""

    def part(self, rank: int, size: int) -> BatchSource:
        """The part of each batch that belongs to process `rank` of `size`; together they are the batches of `self`."""


def shared_part(source: BatchSource, rank: int, size: int) -> BatchSource:
    """The part of each batch that belongs to process `rank` of `size`; raise if the source cannot be shared."""
    if isinstance(source, SharedSource):
        return source.part(rank, size)
    raise ConfigError(f"{type(source).__name__} cannot be shared by processes: it needs part(rank, size)")


def check_labels(labels: NDArray[np.float32], num_rows: int) -> None:
    """Raise unless there is one label per row."""
    if labels.shape != (num_rows,):
        raise ConfigError(f"labels have shape {list(labels.shape)}; expected one for each of the {num_rows:,} rows")


class Batches:
    """Batches of one split. The last batch of an epoch may be smaller.

    Args:
        seed: of the shuffling, a new order each epoch; None keeps file order.
        window: rows to shuffle at a time; default: all rows up to 1 GiB of ids, else as many as fit in 256 MiB. A
            window is made of blocks from the whole split, so that the disk is read in long pieces.
        prefetch: batches to compute ahead in a background thread; 0 for none.
    """

    def __init__(
        self,
        split: EncodedSplit,
        batch_size: int,
        *,
        seed: int | None = None,
        window: int | None = None,
        prefetch: int = 0,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; it must be at least 1")
        if window is None:
            window = default_window(split.num_rows, 4 * max(split.ids.shape[1], 1))
        if seed is not None and window < min(split.num_rows, 2 * BLOCK_ROWS):
            raise ConfigError(f"window is {window} rows; a shuffle window needs at least {2 * BLOCK_ROWS}")
        self.split, self.batch_size, self.seed, self.window, self.prefetch = split, batch_size, seed, window, prefetch
        self._part: tuple[int, int] | None = None

    @property
    def num_rows(self) -> int:
        return self.split.num_rows

    def __len__(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        batches = (self._batch(rows) for rows in self._rows(epoch, start * self.batch_size))
        return prefetched(batches, self.prefetch) if self.prefetch else batches

    def part(self, rank: int, size: int) -> "Batches":
        """The part of each batch that belongs to process `rank` of `size`; only its rows are read."""
        found = Batches(self.split, self.batch_size, seed=self.seed, window=self.window, prefetch=self.prefetch)
        found._part = (rank, size)
        return found

    def in_order(self, batch_size: int) -> "Batches":
        return Batches(self.split, batch_size, prefetch=self.prefetch)

    def with_labels(self, labels: NDArray[np.float32]) -> "Batches":
        check_labels(labels, self.split.num_rows)
        split = replace(self.split, labels=labels)
        return Batches(split, self.batch_size, seed=self.seed, window=self.window, prefetch=self.prefetch)

    def _rows(self, epoch: int, first: int) -> Iterator[Rows]:
        """The rows of each batch, from the epoch's row number `first` on."""
        num_rows, size = self.num_rows, self.batch_size
        if self.seed is None:
            return (slice(at, min(at + size, num_rows)) for at in range(first, num_rows, size))
        return cut_batches(shuffle_rows(num_rows, self.seed, epoch, self.window, self._read_ahead, skip=first), size)

    def _read_ahead(self, first_rows: NDArray[np.int64], num_rows: int) -> None:
        """Ask the operating system to read blocks before they are needed."""
        split = self.split
        for array in (split.ids, split.labels, split.dense, split.weights):
            if isinstance(array, np.memmap) and array.filename is not None and hasattr(os, "posix_fadvise"):
                row_bytes = array.itemsize * int(np.prod(array.shape[1:]))
                with Path(array.filename).open("rb") as file:
                    for row in first_rows.tolist():
                        place, size = array.offset + row * row_bytes, num_rows * row_bytes
                        os.posix_fadvise(file.fileno(), place, size, os.POSIX_FADV_WILLNEED)

    def _batch(self, rows: Rows) -> Batch:
        split, total = self.split, None
        if self._part is not None:
            all_weights = None if split.weights is None else _gather(split.weights, rows)
            num_rows = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
            total = float(num_rows) if all_weights is None else float(all_weights.sum())
            first, last = part_of(num_rows, *self._part)
            start = rows.start if isinstance(rows, slice) else 0
            rows = slice(start + first, start + last) if isinstance(rows, slice) else rows[first:last]
        ids, dense = _gather(split.ids, rows), None if split.dense is None else _gather(split.dense, rows)
        inputs: tuple[Any, ...] = (ids,) if dense is None else (ids, dense)
        if split.bags:
            inputs = (ids, dense, tuple(_gather_bag(bag, rows) for bag in split.bags))
        weights = None if split.weights is None else _gather(split.weights, rows)
        return Batch(inputs, _gather(split.labels, rows).float(), weights, total)


class TensorBatches:
    """A `BatchSource` over tensors in memory, for user-defined models.

    Args:
        inputs: a tuple with the arguments of `model(*inputs)`, each a tensor or a dict of tensors; the first dimension
            is the row. `(x,)` if there is one argument.
        labels: 0 or 1, `[rows]` or `[rows, 1]`.
        seed: of the shuffling, a new order each epoch; None keeps the order of the rows.
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
        if isinstance(inputs, Tensor | Mapping):
            kind = "tensor" if isinstance(inputs, Tensor) else "dict"
            raise DataError(
                f"inputs is a {kind}; expected a tuple with one entry for each argument of the model. Write (inputs,) "
                "if the model takes it as one argument."
            )
        self.inputs, self.labels, self.weights = tuple(inputs), labels.float().reshape(-1), weights
        for part in self.inputs:
            for column in (part,) if isinstance(part, Tensor) else part.values():
                if len(column) != self.num_rows:
                    raise DataError(f"an input has {len(column):,} rows, but there are {self.num_rows:,} labels")
        if weights is not None and weights.shape != self.labels.shape:
            raise DataError(f"weights have shape {list(weights.shape)}; expected [{self.num_rows}]: one per row")
        if not bool(((self.labels >= 0) & (self.labels <= 1)).all()):
            raise DataError("some labels are outside 0…1 or NaN; labels must lie between 0 and 1")
        if weights is not None and not bool(((weights >= 0) & weights.isfinite()).all()):
            raise DataError("some weights are negative, infinite or NaN; weights must be 0 or more")
        if batch_size < 1:
            raise DataError(f"batch_size is {batch_size}; it must be at least 1")
        self.batch_size, self.seed = batch_size, seed
        self._part: tuple[int, int] | None = None

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    def __len__(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def part(self, rank: int, size: int) -> "TensorBatches":
        """The part of each batch that belongs to process `rank` of `size`."""
        found = TensorBatches(self.inputs, self.labels, self.batch_size, weights=self.weights, seed=self.seed)
        found._part = (rank, size)
        return found

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
            rows, total = slice(first, min(first + self.batch_size, self.num_rows)), None
            if self._part is not None:
                whole = rows if order is None else order[rows].to(self.labels.device)
                total = float(rows.stop - first if self.weights is None else self.weights[whole].sum())
                begin, end = part_of(rows.stop - first, *self._part)
                rows = slice(first + begin, first + end)
            taken = rows if order is None else order[rows].to(self.labels.device)
            weights = None if self.weights is None else self.weights[taken]
            inputs = (x[taken] if isinstance(x, Tensor) else {k: v[taken] for k, v in x.items()} for x in self.inputs)
            yield Batch(tuple(inputs), self.labels[taken], weights, total)


def part_of(num_rows: int, rank: int, size: int) -> tuple[int, int]:
    """The first row of a batch that belongs to a process, and the first that does not any more."""
    return num_rows * rank // size, num_rows * (rank + 1) // size


def _gather(array: NDArray[Any], rows: Rows) -> Tensor:
    values = np.array(array[rows]) if isinstance(rows, slice) else np.take(array, rows, axis=0)
    return torch.from_numpy(values)


def _gather_bag(bag: Bag, rows: Rows) -> Bag:
    if isinstance(rows, slice):
        rows = np.arange(rows.start, rows.stop)
    starts, ends = bag.offsets[rows], bag.offsets[rows + 1]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(ends - starts, out=offsets[1:])
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], ends - starts)
    values = np.take(bag.values, places) if len(places) else np.empty(0, np.int32)
    return replace(bag, values=torch.from_numpy(values), offsets=torch.from_numpy(offsets))


def _map_tensors(part: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(part, tuple):
        return tuple(_map_tensors(one, change) for one in part)
    if isinstance(part, Mapping):
        return {name: _map_tensors(one, change) for name, one in part.items()}
    if isinstance(part, Bag):
        return replace(part, values=change(part.values), offsets=change(part.offsets))
    return None if part is None else change(part)
