import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from thresher.compact.encoding import Quantized
from thresher.compact.layouts import VALUE_TYPES
from thresher.compact.table import CompactTable
from thresher.compact.traceable import TraceableEmbedding


@given(
    st.sampled_from([(1, 1), (300, 1), (1000, 64), (700, 10), (100, 300)]),
    st.sampled_from([0.0, 0.005, 0.05, 0.4, 1.0]),
    st.sampled_from(VALUE_TYPES),
    st.integers(0, 2**16),
)
def test_traceable_lookups_equal_those_of_the_table(shape, density, value_type, seed):
    generator = np.random.default_rng(seed)
    mask = generator.random(shape) < density
    table = CompactTable.from_mask(mask, generator.standard_normal(shape), value_type=value_type)
    embedding = TraceableEmbedding([shape[0]], table)
    ids = torch.from_numpy(generator.integers(0, shape[0], (7, 3)))
    torch.testing.assert_close(embedding(ids), table.lookup(ids), rtol=1e-6, atol=1e-7)
    assert embedding.num_parameters() == mask.sum()
    assert embedding.storage_bytes() <= 1.3 * table.storage_bytes + 4096 + shape[0] / 4


@pytest.mark.parametrize("value_type", ["int8", "int4"])
def test_learned_scales_are_kept(value_type):
    codes = np.array([1, -1, 0, 2, 3] * 20, np.int8)
    quantized = Quantized(codes, np.full(-(-100 // (64 if value_type == "int8" else 32)), 0.3, np.float32))
    table = CompactTable.from_entries((100, 4), np.arange(100) * 4, quantized, value_type=value_type)
    embedding = TraceableEmbedding([100], table)
    torch.testing.assert_close(embedding(torch.arange(100)), table.lookup(torch.arange(100)))


@pytest.mark.parametrize("density", [0.005, 0.05, 1.0])
@pytest.mark.parametrize("value_type", ["fp32", "int8"])
@pytest.mark.parametrize("outside", [-1, 300, 511])
def test_an_id_outside_the_table_raises(density, value_type, outside):
    """Also negative ids, and ids in the padding of the last group."""
    generator = np.random.default_rng(1)
    mask = generator.random((300, 8)) < density
    table = CompactTable.from_mask(mask, generator.standard_normal((300, 8)), value_type=value_type)
    with pytest.raises(IndexError):
        TraceableEmbedding([300], table)(torch.tensor([[0, outside]]))
