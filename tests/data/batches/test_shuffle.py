"""Orders of an epoch are complete, repeatable, resumable and well mixed."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from thresher.data.batches.shuffle import BLOCK_ROWS, cut_batches, default_window, prefetched, shuffle_rows


def no_read_ahead(first_rows: NDArray[np.int64], num_rows: int) -> None:
    pass


def order_of(num_rows: int, window: int, epoch: int = 0, batch_size: int = 100, start: int = 0) -> NDArray[np.int64]:
    windows = shuffle_rows(num_rows, 0, epoch, window, no_read_ahead, skip=start * batch_size)
    return np.concatenate([np.empty(0, np.int64), *cut_batches(windows, batch_size)])


@given(st.integers(1, 30_000), st.integers(1, 5_000), st.integers(0, 3))
@settings(max_examples=25)
def test_every_row_once_and_resumable(num_rows: int, batch_size: int, epoch: int) -> None:
    for window in (num_rows, 4 * BLOCK_ROWS):
        rows = order_of(num_rows, window, epoch, batch_size)
        assert np.array_equal(np.sort(rows), np.arange(num_rows))
        start = len(rows) // batch_size // 2
        assert np.array_equal(order_of(num_rows, window, epoch, batch_size, start), rows[start * batch_size :])


def test_a_window_mixes_rows_from_all_over_the_split() -> None:
    num_rows, window = 400 * BLOCK_ROWS, 40 * BLOCK_ROWS
    rows = order_of(num_rows, window, batch_size=1024)
    batches = rows.reshape(-1, 1024)
    # each batch is like a sample of the whole split: mean row number near the middle, full spread
    means, spreads = batches.mean(axis=1) / num_rows, batches.std(axis=1) / num_rows
    assert abs(means.mean() - 0.5) < 0.001
    assert means.std() < 0.06  # 40 blocks a window give 0.046; in file order it would be 0.29
    assert np.allclose(spreads.mean(), 12**-0.5, atol=0.01)
    # neighbours in the file are not neighbours in the epoch
    place = np.empty(num_rows, np.int64)
    place[rows] = np.arange(num_rows)
    apart = np.abs(np.diff(place))
    assert np.median(apart) > 10_000
    assert (apart < 1024).mean() < 0.06
    other = order_of(num_rows, window, epoch=1)
    assert (rows == other).mean() < 0.001


def test_blocks_are_read_ahead_before_they_are_needed() -> None:
    read_ahead: list[int] = []
    windows = shuffle_rows(40 * BLOCK_ROWS, 0, 0, 8 * BLOCK_ROWS, lambda rows, _: read_ahead.extend(rows.tolist()))
    seen: set[int] = set()
    for batch in cut_batches(windows, 512):
        seen |= set((batch // BLOCK_ROWS * BLOCK_ROWS).tolist())
        assert seen <= set(read_ahead)
    assert sorted(read_ahead) == [at * BLOCK_ROWS for at in range(40)]


def test_small_splits_are_shuffled_whole_and_large_ones_in_windows() -> None:
    assert default_window(1_000_000, 156) == 1_000_000
    assert 2 * BLOCK_ROWS < default_window(40_000_000, 156) < 40_000_000


def test_prefetched_items_are_the_same_in_the_same_order() -> None:
    assert list(prefetched(iter(range(100)), 3)) == list(range(100))


def test_a_prefetched_error_is_raised_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("here")

    found = prefetched(items(), 2)
    assert next(found) == 1
    with pytest.raises(ValueError, match="here"):
        next(found)


def test_closing_early_stops_the_thread() -> None:
    before = threading.active_count()
    found = prefetched(iter(range(1_000_000)), 2)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_items_are_computed_ahead() -> None:
    made = threading.Event()

    def items() -> Iterator[int]:
        yield 0
        made.set()
        yield 1

    found = prefetched(items(), 1)
    next(found)
    assert made.wait(5)
    assert next(found) == 1
