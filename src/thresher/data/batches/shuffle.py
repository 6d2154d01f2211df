"""The shuffled rows of an epoch, which depend only on (number of rows, seed, epoch, window), and prefetching."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

WHOLE_BYTES = 1 << 30
WINDOW_BYTES = 1 << 28
BLOCK_ROWS = 1024

T = TypeVar("T")
_END = object()
ReadAhead = Callable[[NDArray[np.int64], int], None]  # (first rows of blocks that are needed soon, rows of a block)


def default_window(num_rows: int, row_bytes: int) -> int:
    """Rows to shuffle at a time: all rows up to `WHOLE_BYTES`, else as many as fit in `WINDOW_BYTES`."""
    return num_rows if num_rows * row_bytes <= WHOLE_BYTES else WINDOW_BYTES // row_bytes


def shuffle_rows(
    num_rows: int, seed: int, epoch: int, window: int, read_ahead: ReadAhead, *, skip: int = 0
) -> Iterator[NDArray[np.int64]]:
    """The rows of an epoch without the first `skip`: blocks in a random order, `window` rows at a time shuffled."""
    if window >= num_rows:
        yield np.random.default_rng([seed, epoch]).permutation(num_rows)[skip:]
        return
    blocks = np.random.default_rng([seed, epoch]).permutation(-(-num_rows // BLOCK_ROWS))
    width = window // BLOCK_ROWS
    for number, first in enumerate(range(0, len(blocks), width)):
        if number == 0 or skip == 0:
            soon = blocks[first + width : first + 2 * width] if number else blocks[: 2 * width]
            read_ahead(np.sort(soon) * BLOCK_ROWS, BLOCK_ROWS)
        chosen = np.sort(blocks[first : first + width])
        rows = (chosen[:, None] * BLOCK_ROWS + np.arange(BLOCK_ROWS)).ravel()
        rows = rows[rows < num_rows]
        skipped = min(skip, len(rows))
        skip -= skipped
        if skipped < len(rows):
            # a longer key than [seed, epoch]: another random stream than that of the blocks
            yield np.random.default_rng([seed, epoch, 0, number]).permutation(rows)[skipped:]


def cut_batches(windows: Iterator[NDArray[np.int64]], batch_size: int) -> Iterator[NDArray[np.int64]]:
    """The rows of each batch; the last one may be smaller."""
    rest = np.empty(0, np.int64)
    for rows in windows:
        rest = np.concatenate([rest, rows]) if len(rest) else rows
        full = len(rest) // batch_size * batch_size
        for first in range(0, full, batch_size):
            yield rest[first : first + batch_size]
        rest = rest[full:]
    if len(rest):
        yield rest


def prefetched(items: Iterator[T], depth: int) -> Iterator[T]:
    """The same items (and exceptions) in the same order, up to `depth` of them computed ahead in a thread."""
    worker = ThreadPoolExecutor(1, thread_name_prefix="thresher-prefetch")
    try:
        ahead = deque(worker.submit(next, items, _END) for _ in range(depth))
        while (item := ahead.popleft().result()) is not _END:
            ahead.append(worker.submit(next, items, _END))
            yield item  # type: ignore[misc]
    finally:
        worker.shutdown(cancel_futures=True)
