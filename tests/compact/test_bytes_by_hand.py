"""A ticket of five features and four dimensions, and what its table weighs, counted on paper."""

import numpy as np
import pytest
import torch
from torch import nn

from thresher.compact.convert import to_compact
from thresher.compact.embedding import CompactEmbedding
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


@pytest.mark.parametrize(
    ("rows", "num_parameters", "arrays"),
    [
        # all rows, a bit for each of the 20 cells: one word of 8 bytes, one rank of 4, six values of 4. A list of the
        # three rows with their cells in full would be 8 + 3 + 3 · 16 bytes, the dense table 80.
        (SCATTERED, 6, {"cell_bits": 8, "cell_ranks": 4, "values": 6 * 4}),
        # one row listed: where its group of 256 rows begins and ends, one byte for the row, four values
        (ONE_ROW, 4, {"row_starts": 2 * 4, "row_lows": 1, "values": 4 * 4}),
    ],
)
def test_what_a_pep_ticket_weighs(rows, num_parameters, arrays):
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
