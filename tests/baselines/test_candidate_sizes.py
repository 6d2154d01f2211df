"""AutoDim: parameters and bytes by hand, while it is searched, once its widths are fixed, and as it is stored."""

import pytest
import torch

from thresher.baselines.candidate_sizes import AutoDimConfig, AutoDimEmbedding
from thresher.compact.method_table import to_table

RUNS = 2 * (4 + 1 + 4)  # one run per field: first id int32, group uint8, first row int32


@pytest.mark.parametrize(
    ("choices", "sizes", "num_parameters"),
    [
        ((1, 2), (2, 4), 3 * 2 + 2 * 4 + 2 * 4),  # tables 3×2 and 2×4; the first is projected by 2×4, the second as is
        ((0, 0), (1, 1), 3 * 1 + 2 * 1 + 1 * 4),  # one width, one projection 1×4 for both
        ((2, 2), (4, 4), 5 * 4),  # full width: no projection
        ((0, 1), (1, 2), 3 * 1 + 2 * 2 + 1 * 4 + 2 * 4),
    ],
)
def test_parameters_and_bytes_by_hand(choices, sizes, num_parameters):
    torch.manual_seed(0)
    table = AutoDimEmbedding((3, 2), AutoDimConfig(embedding_dim=4, candidate_sizes=(1, 2, 4)))
    with torch.no_grad():
        table.size_logits[range(2), choices] = 1.0
    assert table.chosen_sizes() == sizes
    assert table.num_parameters() == num_parameters
    assert table.storage_bytes() == 4 * num_parameters + RUNS
    fixed = table.fixed(sizes)
    assert (fixed.num_parameters(), fixed.storage_bytes()) == (num_parameters, 4 * num_parameters + RUNS)
    stored = to_table(fixed)
    assert (stored.num_parameters, stored.storage_bytes) == (num_parameters, 4 * num_parameters + RUNS)
