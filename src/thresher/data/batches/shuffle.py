"""In which order an epoch takes the rows: file order, a permutation, or blocks mixed in windows; whole or one shard.

An order is a function of (number of rows, seed, epoch, window, shard) alone, so an epoch can be taken up anywhere.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from thresher.errors import ConfigError

WHOLE_BYTES = 1 << 30
WINDOW_BYTES = 1 << 28
BLOCK_ROWS = 1024
"""Rows that stay together when blocks are dealt to windows; within a window all rows are mixed."""

Rows = slice | NDArray[np.int64]
Announce = Callable[[NDArray[np.int64], int], None]
"""Told the first rows of blocks that are soon needed, and how many rows a block has."""


class Order(Protocol):
    """The rows of an epoch, batch by batch."""

    num_rows: int

    def rows(self, epoch: int, batch_size: int, start: int) -> Iterator[Rows]:
        """The rows of each batch, from batch `start` on."""


def build_order(
    num_rows: int, row_bytes: int, seed: int | None, window: int | None, shard: tuple[int, int], announce: Announce
) -> Order:
    """The order for a split: see `Batches`."""
    if seed is None:
        return FileOrder(num_rows, shard)
    if window is None:
        window = num_rows if num_rows * row_bytes <= WHOLE_BYTES else WINDOW_BYTES // row_bytes
    if window >= num_rows:
        return WholeShuffle(num_rows, seed, shard)
    if window < 2 * BLOCK_ROWS:
        raise ConfigError(f"a shuffle window of {window} rows is too narrow; at least {2 * BLOCK_ROWS} are needed")
    return WindowShuffle(num_rows, seed, window, shard, announce)


class FileOrder:
    """Rows as they lie; a shard is one contiguous part."""

    def __init__(self, num_rows: int, shard: tuple[int, int]) -> None:
        at, count = shard
        self._first, self._last = num_rows * at // count, num_rows * (at + 1) // count
        self.num_rows = self._last - self._first

    def rows(self, epoch: int, batch_size: int, start: int) -> Iterator[Rows]:
        for first in range(self._first + start * batch_size, self._last, batch_size):
            yield slice(first, min(first + batch_size, self._last))


class WholeShuffle:
    """All rows in one permutation; shards take turns, and rows that do not go round are left out of that epoch."""

    def __init__(self, num_rows: int, seed: int, shard: tuple[int, int]) -> None:
        self._total, self._seed, self._shard = num_rows, seed, shard
        self.num_rows = num_rows // shard[1]

    def rows(self, epoch: int, batch_size: int, start: int) -> Iterator[Rows]:
        order = np.random.default_rng([self._seed, epoch]).permutation(self._total)
        order = order[self._shard[0] :: self._shard[1]][: self.num_rows]
        for first in range(start * batch_size, self.num_rows, batch_size):
            yield order[first : first + batch_size]


class WindowShuffle:
    """Blocks of rows in a random order, `window` rows of them at a time mixed with one another."""

    def __init__(self, num_rows: int, seed: int, window: int, shard: tuple[int, int], announce: Announce) -> None:
        self._total, self._seed, self._shard, self._announce = num_rows, seed, shard, announce
        self._blocks = -(-num_rows // BLOCK_ROWS)
        self._window_blocks = window // BLOCK_ROWS
        # the last block may be short: with several shards it is left out with the blocks that do not go round
        self.num_rows = num_rows if shard[1] == 1 else num_rows // BLOCK_ROWS // shard[1] * BLOCK_ROWS

    def rows(self, epoch: int, batch_size: int, start: int) -> Iterator[Rows]:
        done, rest = start * batch_size, np.empty(0, np.int64)
        for order in self._windows(epoch, done):
            rest = np.concatenate([rest, order])
            whole = len(rest) // batch_size * batch_size
            for first in range(0, whole, batch_size):
                yield rest[first : first + batch_size]
            rest = rest[whole:]
        if len(rest):
            yield rest

    def _windows(self, epoch: int, skip: int) -> Iterator[NDArray[np.int64]]:
        """The rows of each window in their order, without the first `skip` rows."""
        at, count = self._shard
        blocks = np.random.default_rng([self._seed, epoch]).permutation(self._blocks)
        if count > 1:
            blocks = blocks[blocks < self._total // BLOCK_ROWS][at::count][: self.num_rows // BLOCK_ROWS]
        width = self._window_blocks
        for number, first in enumerate(range(0, len(blocks), width)):
            chosen = np.sort(blocks[first : first + width])
            if number == 0 or skip == 0:
                soon = blocks[first + width : first + 2 * width] if number else blocks[: 2 * width]
                self._announce(np.sort(soon) * BLOCK_ROWS, BLOCK_ROWS)
            rows = (chosen[:, None] * BLOCK_ROWS + np.arange(BLOCK_ROWS)).ravel()
            rows = rows[rows < self._total]
            passed = min(skip, len(rows))
            skip -= passed
            if passed < len(rows):
                generator = np.random.default_rng([self._seed, epoch, at, number])
                yield generator.permutation(rows)[passed:]
