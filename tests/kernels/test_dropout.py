"""Dropout drawn in lots: what torch's own promises, which serves as the twin wherever the draw does not."""

import pytest
import torch
from torch import Tensor, nn

from thresher.kernels.dropout import draw, drop_out
from thresher.models.layers import Dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_a_share_is_dropped_and_the_rest_scaled(rate):
    values = torch.randn(400, 500, generator=torch.Generator().manual_seed(0))
    dropped = drop_out(values, rate)
    assert (dropped == 0).float().mean().item() == pytest.approx(rate, abs=0.005)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], values[kept] / (1 - rate), rtol=2e-4, atol=0)


def test_entries_are_dropped_independently():
    kept = drop_out(torch.ones(200_000), 0.5) > 0
    for lag in (1, 2, 3, 4, 64):  # four numbers come from one draw
        assert (kept[lag:] == kept[:-lag]).float().mean().item() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_nothing_or_all_is_dropped(rate):
    values = torch.randn(7, 3)
    assert torch.equal(drop_out(values, rate), values * (1 - rate))


@pytest.mark.parametrize("shape", [(0, 4), (1,), (3, 5), (2, 3, 4)])
def test_any_number_of_entries_can_be_drawn(shape):
    assert draw(shape).shape == torch.Size(shape)
    assert drop_out(torch.ones(shape), 0.3).shape == torch.Size(shape)


def test_gradients_go_through_what_was_kept():
    values = torch.randn(40, 5, requires_grad=True)
    dropped = drop_out(values, 0.4)
    (gradient,) = torch.autograd.grad(dropped.sum(), values)
    torch.testing.assert_close(gradient * values.detach(), dropped.detach())


def test_the_seed_repeats_it():
    def dropped(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return drop_out(torch.ones(50, 4), 0.5)

    assert torch.equal(dropped(3), dropped(3))
    assert not torch.equal(dropped(3), dropped(4))


def test_the_module_is_torchs_and_drops_in_training_alone():
    module = Dropout(0.5)
    assert isinstance(module, nn.Dropout)
    values = torch.ones(100, 10)
    assert (module(values) == 0).any()
    assert torch.equal(module.eval()(values), values)
    assert str(module) == str(nn.Dropout(0.5))


def test_other_types_are_left_to_torch():
    """Their draws are torch's own, number by number."""
    values = torch.ones(1000, dtype=torch.float64)
    torch.manual_seed(2)
    dropped = drop_out(values, 0.5)
    torch.manual_seed(2)
    assert torch.equal(dropped, nn.functional.dropout(values, 0.5))
