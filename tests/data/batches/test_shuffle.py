"""Orders of an epoch: complete, repeatable, resumable, dealt fairly to shards, and well mixed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from thresher.data.batches.shuffle import BLOCK_ROWS, FileOrder, Order, WholeShuffle, WindowShuffle, build_order
from thresher.errors import ConfigError


def no_one(first_rows: NDArray[np.int64], num_rows: int) -> None:
    pass


def order_of(order: Order, epoch: int = 0, batch_size: int = 100, start: int = 0) -> NDArray[np.int64]:
    parts = order.rows(epoch, batch_size, start)
    rows = [np.arange(p.start, p.stop) if isinstance(p, slice) else p for p in parts]
    return np.concatenate(rows) if rows else np.empty(0, np.int64)


def orders(num_rows: int, shard: tuple[int, int] = (0, 1)) -> list[Order]:
    return [
        FileOrder(num_rows, shard),
        WholeShuffle(num_rows, 0, shard),
        WindowShuffle(num_rows, 0, 4 * BLOCK_ROWS, shard, no_one),
    ]


@given(st.integers(1, 30_000), st.integers(1, 5_000), st.integers(0, 3))
@settings(max_examples=25)
def test_every_row_once_and_resumable(num_rows: int, batch_size: int, epoch: int) -> None:
    for order in orders(num_rows):
        rows = order_of(order, epoch, batch_size)
        assert np.array_equal(np.sort(rows), np.arange(num_rows))
        start = len(rows) // batch_size // 2
        assert np.array_equal(order_of(order, epoch, batch_size, start), rows[start * batch_size :])


@pytest.mark.parametrize("count", [2, 3, 7])
def test_shards_share_an_epoch_without_overlap(count: int) -> None:
    num_rows = 40 * BLOCK_ROWS + 17
    for kind in range(3):
        shards = [orders(num_rows, (at, count))[kind] for at in range(count)]
        rows = [order_of(shard, 1) for shard in shards]
        together = np.concatenate(rows)
        assert len(np.unique(together)) == len(together)
        assert [len(part) for part in rows] == [shard.num_rows for shard in shards]
        if kind == 0:
            assert np.array_equal(np.sort(together), np.arange(num_rows))
        else:  # equally many, so that no worker waits for the others at the end
            assert len({len(part) for part in rows}) == 1
            assert num_rows - len(together) < (count if kind == 1 else count * BLOCK_ROWS)


def test_a_window_mixes_rows_from_all_over_the_split() -> None:
    num_rows, window = 400 * BLOCK_ROWS, 40 * BLOCK_ROWS
    rows = order_of(WindowShuffle(num_rows, 0, window, (0, 1), no_one), batch_size=1024)
    batches = rows.reshape(-1, 1024)
    # each batch looks like a sample of the whole: its mean row number is near the middle, its spread is full
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
    other = order_of(WindowShuffle(num_rows, 0, window, (0, 1), no_one), epoch=1)
    assert (rows == other).mean() < 0.001


def test_blocks_are_announced_before_they_are_needed() -> None:
    told: list[int] = []
    order = WindowShuffle(40 * BLOCK_ROWS, 0, 8 * BLOCK_ROWS, (0, 1), lambda rows, _: told.extend(rows.tolist()))
    seen: set[int] = set()
    for batch in order.rows(0, 512, 0):
        assert not isinstance(batch, slice)
        seen |= set((batch // BLOCK_ROWS * BLOCK_ROWS).tolist())
        assert seen <= set(told)
    assert sorted(told) == [at * BLOCK_ROWS for at in range(40)]


def test_small_splits_are_shuffled_whole_and_large_ones_in_windows() -> None:
    assert isinstance(build_order(1000, 156, None, None, (0, 1), no_one), FileOrder)
    assert isinstance(build_order(1_000_000, 156, 0, None, (0, 1), no_one), WholeShuffle)
    assert isinstance(build_order(40_000_000, 156, 0, None, (0, 1), no_one), WindowShuffle)
    with pytest.raises(ConfigError, match="too narrow"):
        build_order(1_000_000, 156, 0, 100, (0, 1), no_one)
