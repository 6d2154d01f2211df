from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from thresher.data.batches.batches import Batches, BatchSource
from thresher.data.table import Bag, EncodedSplit
from thresher.errors import ConfigError


def split(rows: int, *, extras: bool = False) -> EncodedSplit:
    return EncodedSplit(
        name="train",
        ids=np.arange(rows * 3, dtype=np.int32).reshape(rows, 3),
        labels=(np.arange(rows) % 2).astype(np.uint8),
        dense=np.arange(rows, dtype=np.float32).reshape(rows, 1) if extras else None,
        weights=np.arange(rows, dtype=np.float32) if extras else None,
    )


def rows_of(batches: BatchSource, epoch: int, start: int = 0) -> list[int]:
    return [int(row) // 3 for batch in batches.epoch(epoch, start) for row in batch.inputs[0][:, 0]]


def test_file_order_without_a_seed_and_last_batch_kept() -> None:
    batches = Batches(split(10), 4)
    assert len(batches) == 3
    assert rows_of(batches, 0) == list(range(10))
    assert [len(batch.labels) for batch in batches.epoch(0)] == [4, 4, 2]


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 5), st.integers(0, 3))
def test_an_epoch_is_a_permutation_that_depends_on_seed_and_epoch(rows: int, size: int, seed: int, epoch: int) -> None:
    batches = Batches(split(rows), size, seed=seed)
    order = rows_of(batches, epoch)
    assert sorted(order) == list(range(rows))
    assert rows_of(Batches(split(rows), size, seed=seed), epoch) == order
    for start in range(len(batches) + 1):
        assert rows_of(batches, epoch, start) == order[start * size :]


def test_epochs_and_seeds_differ() -> None:
    orders = {tuple(rows_of(Batches(split(50), 8, seed=seed), epoch)) for seed in (0, 1) for epoch in (0, 1)}
    assert len(orders) == 4


def test_ids_labels_dense_and_weights_are_of_the_same_row() -> None:
    for batch in Batches(split(20, extras=True), 6, seed=1).epoch(0):
        ids, dense = batch.inputs
        assert ids.dtype == torch.int32
        assert batch.labels.dtype == torch.float32
        row = ids[:, 0] // 3
        assert torch.equal(dense[:, 0].int(), row)
        assert torch.equal(batch.labels, (row % 2).float())
        assert batch.weights is not None
        assert torch.equal(batch.weights.int(), row)
        assert batch.to("cpu").inputs[0].shape == ids.shape


def test_bags_follow_their_rows() -> None:
    lengths = np.array([0, 2, 1, 3, 0, 1])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = np.repeat(np.arange(6), lengths).astype(np.int32)
    rows = split(6)
    rows = replace(rows, bags=(Bag(field=3, pooling="mean", values=values, offsets=offsets),))
    for seed in (None, 0):
        for batch in Batches(rows, 4, seed=seed).epoch(0):
            ids, dense, (bag,) = batch.to("cpu").inputs
            assert dense is None
            assert (bag.field, bag.pooling, bag.values.dtype) == (3, "mean", torch.int32)
            for at, row in enumerate(ids[:, 0] // 3):
                assert bag.values[bag.offsets[at] : bag.offsets[at + 1]].tolist() == [int(row)] * int(lengths[row])


def test_prefetched_batches_have_the_same_rows(tmp_path: Path) -> None:
    whole = split(10_000)
    np.save(tmp_path / "ids.npy", whole.ids)
    mapped = replace(whole, ids=np.load(tmp_path / "ids.npy", mmap_mode="r"))
    expected = rows_of(Batches(whole, 128, seed=3, window=3_000), 1)
    assert sorted(expected) == list(range(10_000))
    assert rows_of(Batches(mapped, 128, seed=3, window=3_000, prefetch=3), 1) == expected


def test_batch_size_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        Batches(split(3), 0)


def test_a_window_has_at_least_two_blocks() -> None:
    with pytest.raises(ConfigError, match="at least 2048"):
        Batches(split(5000), 4, seed=0, window=100)
