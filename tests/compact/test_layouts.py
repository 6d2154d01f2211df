import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from thresher.compact.embedding import CompactEmbedding
from thresher.compact.layouts import compact_bytes, layout_of_mask
from thresher.compact.method_table import to_compact
from thresher.compact.table import CompactTable
from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.search.budget import Budget
from thresher.search.ticket import MaskTicket, Provenance, kept_weights

SCATTERED = (
    (1, 0, 0, 1),
    (0, 0, 0, 0),
    (0, 1, 0, 0),
    (1, 1, 0, 1),
    (0, 0, 0, 0),
)  # cells 0, 3, 9, 12, 13, 15
ONE_ROW = ((0, 0, 0, 0), (0, 0, 0, 0), (1, 1, 1, 1), (0, 0, 0, 0), (0, 0, 0, 0))


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
def test_predicted_bytes_are_the_bytes_of_the_arrays_and_hardly_more_than_dense(mask):
    table = CompactTable.from_mask(mask, np.arange(mask.size).reshape(mask.shape))
    assert compact_bytes(mask) == table.storage_bytes == table.layout.storage_bytes
    assert compact_bytes(torch.from_numpy(mask)) == table.storage_bytes
    assert table.storage_bytes <= 4 * mask.size * (1 + 9 / 256) + 12  # one bit per cell, and ranks


@given(masks(), st.integers(0, 2**16))
def test_every_layout_reproduces_mask_values_and_rows(mask, seed):
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
        (300, 1.0, "all", "full"),
        (300, 0.3, "all", "masks"),
        (3000, 0.01, "bitmap", "columns"),
        (30000, 0.0005, "list8", "columns"),
        (300000, 0.00001, "list16", "columns"),
    ],
)
def test_the_layout_follows_the_density(num_features, density, row_index, content):
    mask = torch.rand(num_features, 64, generator=torch.Generator().manual_seed(0)) < density
    layout = layout_of_mask(mask)
    assert (layout.row_index, layout.content) == (row_index, content)


@pytest.mark.parametrize(("density", "times_entropy"), [(0.001, 1.6), (0.01, 1.3), (0.05, 1.3), (0.2, 1.3)])
def test_bytes_stay_near_the_entropy_bound(density, times_entropy):
    mask = np.random.default_rng(0).random((100_000, 64)) < density
    entropy_bits = -(density * np.log2(density) + (1 - density) * np.log2(1 - density))
    bound = 4 * mask.sum() + mask.size * entropy_bits / 8
    assert bound <= compact_bytes(mask) <= times_entropy * bound


def test_empty_columns_cost_nothing():
    narrow = np.random.default_rng(0).random((2000, 8)) < 0.5
    wide = np.zeros((2000, 256), np.bool_)
    wide[:, ::32] = narrow
    assert compact_bytes(wide) == compact_bytes(narrow) + 2 * 8


@pytest.mark.parametrize(
    ("rows", "num_parameters", "arrays"),
    [
        # all rows, a bit for each of the 20 cells: one word of 8 bytes, one rank of 4, six values of 4
        (SCATTERED, 6, {"cell_bits": 8, "cell_ranks": 4, "values": 6 * 4}),
        # one listed row: start and end of its group of 256 rows, one byte for the row, four values
        (ONE_ROW, 4, {"row_starts": 2 * 4, "row_lows": 1, "values": 4 * 4}),
    ],
)
def test_bytes_of_a_pep_ticket_by_hand(rows, num_parameters, arrays):
    torch.manual_seed(0)
    mask = torch.tensor(rows, dtype=torch.bool)
    model = nn.ModuleDict({"embedding": PepEmbedding((2, 3), PepConfig(embedding_dim=4))})
    weights = kept_weights(model, {"embedding": mask})
    dense = torch.where(mask, model["embedding"].weight.detach(), 0)
    ticket = MaskTicket(
        Budget.parse(str(num_parameters)), {"embedding": mask}, weights, weights, Provenance("pep", 0, 0, 0)
    )
    assert ticket.apply_(model) == ["embedding"]
    embedding = model["embedding"]
    assert isinstance(embedding, CompactEmbedding)
    assert embedding.num_parameters() == num_parameters
    assert embedding.storage_bytes() == sum(arrays.values())
    table = to_compact(embedding)
    assert {name: array.nbytes for name, array in table.arrays.items()} == arrays
    assert table.storage_bytes == sum(arrays.values())
    np.testing.assert_array_equal(table.to_dense(), dense.numpy())


def test_the_bits_of_the_scattered_mask():
    mask = torch.tensor(SCATTERED, dtype=torch.bool)
    table = to_compact(CompactEmbedding.from_mask((2, 3), mask, torch.arange(20.0).view(5, 4)))
    assert table.arrays["cell_bits"].tolist() == [2**0 + 2**3 + 2**9 + 2**12 + 2**13 + 2**15]
    assert table.arrays["cell_ranks"].tolist() == [0]
    assert table.arrays["values"].tolist() == [0.0, 3.0, 9.0, 12.0, 13.0, 15.0]
