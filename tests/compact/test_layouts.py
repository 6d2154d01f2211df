import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thresher.compact.layouts import compact_bytes, layout_of_mask
from thresher.compact.table import CompactTable


@st.composite
def masks(draw):
    shape = draw(st.tuples(st.integers(1, 700), st.integers(1, 300)))
    density = draw(st.sampled_from([0.0, 0.001, 0.02, 0.2, 0.6, 0.97, 1.0]))
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    mask = generator.random(shape) < density
    mask[:, generator.random(shape[1]) < draw(st.sampled_from([0.0, 0.5]))] = False
    mask[generator.random(shape[0]) < draw(st.sampled_from([0.0, 0.9]))] = False
    return mask


@given(masks())
def test_predicted_bytes_are_the_bytes_of_the_arrays_and_never_more_than_dense(mask):
    table = CompactTable.from_mask(mask, np.arange(mask.size).reshape(mask.shape))  # no two rows repeat
    assert compact_bytes(mask) == table.storage_bytes == table.layout.storage_bytes
    assert compact_bytes(torch.from_numpy(mask)) == table.storage_bytes
    assert table.storage_bytes <= max(4 * mask.size, 1)


@given(masks(), st.integers(0, 2**16))
def test_every_layout_gives_back_mask_values_and_rows(mask, seed):
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(mask.shape).astype(np.float32)
    table = CompactTable.from_mask(mask, values)
    dense = np.where(mask, values, 0)
    np.testing.assert_array_equal(table.mask(), mask)
    np.testing.assert_array_equal(table.to_dense(), dense)
    ids = generator.integers(0, len(mask), (5, 3))
    np.testing.assert_array_equal(table.lookup(ids), dense[ids])
    assert table.num_parameters == mask.sum()


@pytest.mark.parametrize(
    ("num_features", "density", "row_index", "content"),
    [
        (300, 1.0, "all", "padded"),
        (300, 0.3, "all", "masks"),
        (3000, 0.01, "bitmap", "columns"),
        (30000, 0.0005, "list8", "columns"),
        (300000, 0.00001, "list16", "columns"),
    ],
)
def test_each_density_gets_the_layout_made_for_it(num_features, density, row_index, content):
    mask = torch.rand(num_features, 64, generator=torch.Generator().manual_seed(0)) < density
    layout = layout_of_mask(mask)
    assert (layout.row_index, layout.content) == (row_index, content)


@pytest.mark.parametrize(("density", "times_entropy"), [(0.001, 1.6), (0.01, 1.3), (0.05, 1.3), (0.2, 1.3)])
def test_bytes_stay_near_the_entropy_bound(density, times_entropy):
    mask = np.random.default_rng(0).random((100_000, 64)) < density
    entropy_bits = -(density * np.log2(density) + (1 - density) * np.log2(1 - density))
    bound = 4 * mask.sum() + mask.size * entropy_bits / 8
    assert bound <= compact_bytes(mask) <= times_entropy * bound


def test_columns_in_which_nothing_was_kept_cost_nothing():
    narrow = np.random.default_rng(0).random((2000, 8)) < 0.5
    wide = np.zeros((2000, 256), np.bool_)
    wide[:, ::32] = narrow
    assert compact_bytes(wide) == compact_bytes(narrow) + 2 * 8
