"""The order of the rows of an epoch (file order, one permutation, or blocks shuffled in windows), and prefetching.

An order depends only on (number of rows, seed, epoch, window), so an epoch can be resumed at any batch.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from thresher.errors import ConfigError

WHOLE_BYTES = 1 << 30
WINDOW_BYTES = 1 << 28
BLOCK_ROWS = 1024
"""Rows of a block. Blocks are dealt to windows; within a window all rows are shuffled."""

T = TypeVar("T")
_END = object()
Rows = slice | NDArray[np.int64]
ReadAhead = Callable[[NDArray[np.int64], int], None]
"""Called with the first rows of blocks that are needed soon, and the number of rows of a block."""


class Order(Protocol):
    """The rows of an epoch, batch by batch."""

    def rows(self, epoch: int, batch_size: int, start: int) -> Iterator[Rows]:
        """The rows of each batch, starting at batch `start`."""


def build_order(num_rows: int, row_bytes: int, seed: int | None, window: int | None, read_ahead: ReadAhead) -> Order:
    """The order for a split; see `Batches` for the arguments."""
    if seed is None:
        return FileOrder(num_rows)
    if window is None:
        window = num_rows if num_rows * row_bytes <= WHOLE_BYTES else WINDOW_BYTES // row_bytes
    if window >= num_rows:
        return WholeShuffle(num_rows, seed)
    if window < 2 * BLOCK_ROWS:
        raise ConfigError(f"window is {window} rows; a shuffle window needs at least {2 * BLOCK_ROWS}")
    return WindowShuffle(num_rows, seed, window, read_ahead)


class FileOrder:
    """Rows in the order of the file."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows

    def rows(self, epoch: int, batch_size: int, start: int) -> Iterator[Rows]:
        for first in range(start * batch_size, self.num_rows, batch_size):
            yield slice(first, min(first + batch_size, self.num_rows))


class WholeShuffle:
    """One permutation of all rows, a new one each epoch."""

    def __init__(self, num_rows: int, seed: int) -> None:
        self.num_rows, self.seed = num_rows, seed

    def rows(self, epoch: int, batch_size: int, start: int) -> Iterator[Rows]:
        order = np.random.default_rng([self.seed, epoch]).permutation(self.num_rows)
        for first in range(start * batch_size, self.num_rows, batch_size):
            yield order[first : first + batch_size]


class WindowShuffle:
    """Blocks of rows in a random order; `window` rows of them at a time are shuffled together."""

    def __init__(self, num_rows: int, seed: int, window: int, read_ahead: ReadAhead) -> None:
        self.num_rows, self.seed, self._read_ahead = num_rows, seed, read_ahead
        self._num_blocks = -(-num_rows // BLOCK_ROWS)
        self._window_blocks = window // BLOCK_ROWS

    def rows(self, epoch: int, batch_size: int, start: int) -> Iterator[Rows]:
        rest = np.empty(0, np.int64)
        for order in self._windows(epoch, start * batch_size):
            rest = np.concatenate([rest, order])
            full = len(rest) // batch_size * batch_size
            for first in range(0, full, batch_size):
                yield rest[first : first + batch_size]
            rest = rest[full:]
        if len(rest):
            yield rest

    def _windows(self, epoch: int, skip: int) -> Iterator[NDArray[np.int64]]:
        """The shuffled rows of each window, without the first `skip` rows of the epoch."""
        blocks = np.random.default_rng([self.seed, epoch]).permutation(self._num_blocks)
        width = self._window_blocks
        for number, first in enumerate(range(0, len(blocks), width)):
            if number == 0 or skip == 0:
                soon = blocks[first + width : first + 2 * width] if number else blocks[: 2 * width]
                self._read_ahead(np.sort(soon) * BLOCK_ROWS, BLOCK_ROWS)
            chosen = np.sort(blocks[first : first + width])
            rows = (chosen[:, None] * BLOCK_ROWS + np.arange(BLOCK_ROWS)).ravel()
            rows = rows[rows < self.num_rows]
            skipped = min(skip, len(rows))
            skip -= skipped
            if skipped < len(rows):
                # a longer key than [seed, epoch]: another random stream than that of the blocks
                generator = np.random.default_rng([self.seed, epoch, 0, number])
                yield generator.permutation(rows)[skipped:]


def prefetched(items: Iterator[T], depth: int) -> Iterator[T]:
    """The same items in the same order, up to `depth` of them computed ahead in a background thread.

    An exception raised by `items` is raised here, after the items before it.
    """
    worker = ThreadPoolExecutor(1, thread_name_prefix="thresher-prefetch")
    try:
        ahead = deque(worker.submit(next, items, _END) for _ in range(depth))
        while (item := ahead.popleft().result()) is not _END:
            ahead.append(worker.submit(next, items, _END))
            yield item  # type: ignore[misc]
    finally:
        worker.shutdown(cancel_futures=True)
