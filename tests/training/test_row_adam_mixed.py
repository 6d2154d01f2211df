"""RowAdam with a table whose gradient is sparse in some steps and dense in others."""

import pytest
import torch
from torch import nn

from thresher.training.row_adam import RowAdam


def steps_of(kinds, make_optimizer):
    torch.manual_seed(0)
    table = nn.Parameter(torch.randn(6, 3))
    optimizer = make_optimizer([table])
    draw = torch.Generator().manual_seed(1)
    for kind in kinds:
        gradient = torch.randn(6, 3, generator=draw)
        table.grad = gradient.to_sparse(1) if kind == "sparse" else gradient
        optimizer.step()
    return table.detach()


@pytest.mark.parametrize("kinds", [("sparse", "dense", "sparse"), ("dense", "sparse", "dense", "dense")])
def test_gradients_of_all_rows_in_either_form_take_the_steps_of_adam(kinds):
    expected = steps_of(["dense"] * len(kinds), lambda params: torch.optim.Adam(params, lr=0.1))
    torch.testing.assert_close(steps_of(kinds, lambda params: RowAdam(params, lr=0.1)), expected)


def test_a_second_moment_per_row_survives_a_change_of_form():
    table = steps_of(("dense", "sparse", "dense"), lambda params: RowAdam(params, lr=0.1, second_moment="row"))
    assert table.isfinite().all()
