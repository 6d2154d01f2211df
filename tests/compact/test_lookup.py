import sys

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from thresher.compact.layouts import VALUE_TYPES
from thresher.compact.lookup import look_up_by_numpy
from thresher.compact.table import CompactTable
from thresher.kernels import compiling


@st.composite
def tables(draw):
    """Tables of every layout: some rows full, some empty, some columns dropped."""
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    num_features, width = draw(st.sampled_from([(1, 5), (70, 64), (700, 1), (700, 300), (70_000, 7)]))
    mask = generator.random((num_features, width)) < draw(st.sampled_from([0.0, 0.002, 0.1, 0.5, 1.0]))
    if num_features == 70_000:
        mask[generator.random(num_features) < 0.999] = False
    mask[generator.random(num_features) < draw(st.sampled_from([0.0, 0.3]))] = True
    mask[:, generator.random(width) < draw(st.sampled_from([0.0, 0.5]))] = False
    mask[generator.random(num_features) < draw(st.sampled_from([0.0, 0.5]))] = False
    values = generator.standard_normal(mask.shape).astype(np.float32)
    return CompactTable.from_mask(mask, values, value_type=draw(st.sampled_from(VALUE_TYPES)))


@given(tables(), st.integers(0, 2**16))
def test_kernel_and_numpy_twin_agree_on_every_layout(table, seed):
    ids = np.random.default_rng(seed).integers(-2, table.num_features + 2, 50)
    vectors = np.zeros((50, table.embedding_dim), np.float32)
    bad = look_up_by_numpy(table.layout, table.arrays, ids, None, False, vectors)
    expected = np.zeros_like(vectors)
    inside = (ids >= 0) & (ids < table.num_features)
    expected[inside] = table.to_dense()[ids[inside]]
    np.testing.assert_array_equal(vectors, expected)
    np.testing.assert_array_equal(table.lookup(ids, out_of_range="zeros"), expected)
    assert bad == (-1 if inside.all() else np.flatnonzero(~inside)[0])


@given(tables(), st.integers(0, 2**16), st.sampled_from(["sum", "mean"]))
def test_bags_pool_the_vectors_of_their_ids(table, seed, pooling):
    generator = np.random.default_rng(seed)
    ids = generator.integers(0, table.num_features, 40)
    offsets = np.concatenate([[0], np.sort(generator.integers(0, 41, 9)), [40]])  # some bags are empty
    weight = torch.from_numpy(table.to_dense())
    expected = torch.nn.functional.embedding_bag(
        torch.from_numpy(ids), weight, torch.from_numpy(offsets), mode=pooling, include_last_offset=True
    ).numpy()
    np.testing.assert_allclose(table.lookup_bags(ids, offsets, pooling), expected, rtol=1e-5, atol=1e-5)
    pooled = np.zeros_like(expected)
    look_up_by_numpy(table.layout, table.arrays, ids, offsets, pooling == "mean", pooled)
    np.testing.assert_allclose(pooled, expected, rtol=1e-5, atol=1e-5)


def test_bags_accept_tensors_and_refuse_wrong_offsets():
    table = CompactTable.from_mask(np.ones((4, 2), bool), np.arange(8).reshape(4, 2))
    pooled = table.lookup_bags(torch.tensor([0, 1, 3]), torch.tensor([0, 2, 2, 3]))
    assert pooled.tolist() == [[1.0, 2.0], [0.0, 0.0], [6.0, 7.0]]
    for offsets in ([0, 2], [1, 3], [0, 5, 3], []):
        with pytest.raises(ValueError, match="offsets"):
            table.lookup_bags(np.array([0, 1, 3]), np.array(offsets, np.int64))
    with pytest.raises(IndexError, match="id 4"):
        table.lookup_bags(np.array([0, 4]), np.array([0, 2]))


@pytest.mark.parametrize("threads", [2, 3])
def test_a_large_batch_on_several_threads_gives_the_same(monkeypatch, threads):
    monkeypatch.setattr(compiling, "PARALLEL_CELLS", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    mask = np.random.default_rng(0).random((500, 16)) < 0.1
    table = CompactTable.from_mask(mask, np.random.default_rng(1).standard_normal(mask.shape))
    ids = np.random.default_rng(2).integers(0, 500, 1001)
    np.testing.assert_array_equal(table.lookup(ids), table.to_dense()[ids])
    ids[[700, 900]] = 500
    with pytest.raises(IndexError, match="id 500"):
        table.lookup(ids)
    assert table._look_up(ids, None, False, np.zeros((1001, 16), np.float32)) == 700


def test_without_numba_the_kernel_is_searched_once(monkeypatch):
    searches = []

    class WithoutKernel:
        def find_spec(self, name, path=None, target=None):
            if name == "thresher.kernels.compact_table":
                searches.append(name)
                raise ModuleNotFoundError("numba")

    monkeypatch.delitem(sys.modules, "thresher.kernels.compact_table", raising=False)
    monkeypatch.setattr(sys, "meta_path", [WithoutKernel(), *sys.meta_path])
    dense = np.arange(8, dtype=np.float32).reshape(4, 2)
    table = CompactTable.from_mask(np.ones((4, 2), bool), dense)
    for _ in range(3):
        np.testing.assert_array_equal(table.lookup(np.array([2, 1])), dense[[2, 1]])
    assert len(searches) == 1
