"""The paper's three properties of g, and that each function's inverse is one."""

import pytest
import torch

from thresher.embeddings.threshold_function import THRESHOLD_FUNCTIONS

functions = pytest.mark.parametrize("g", THRESHOLD_FUNCTIONS.values(), ids=THRESHOLD_FUNCTIONS.keys())
RAW = torch.linspace(-30, 30, 1201, dtype=torch.float64)


@functions
def test_first_property_positive_from_zero_to_infinity(g):
    values = g(RAW)
    assert (values > 0).all()
    assert g(torch.tensor(-torch.inf)).item() == 0
    assert values[0] < 1e-12
    unbounded = g(torch.tensor(1e6)).item() > 1e5
    # the paper's own sigmoid ends at 1: the exception is known, and is why softplus is the default
    assert unbounded == (g.name != "sigmoid")
    assert g(torch.tensor(torch.inf)).item() == g.limit


@functions
def test_second_property_rising_with_bounded_slope(g):
    raw = RAW.clone().requires_grad_()
    g(raw).sum().backward()
    assert (raw.grad > 0).all()
    assert raw.grad.max() <= 1


@functions
@pytest.mark.parametrize("start", [-15.0, -150.0])
def test_third_property_slow_at_the_start(g, start):
    raw = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    g(raw).backward()
    assert raw.grad.item() < 1


@functions
def test_inverse_undoes_g(g):
    raw = torch.linspace(-20, 10, 301, dtype=torch.float64)
    torch.testing.assert_close(g.inverse(g(raw)), raw, rtol=1e-9, atol=1e-9)


@functions
def test_inverse_at_the_ends(g):
    assert g.inverse(torch.tensor(0.0)).item() == -torch.inf
    assert torch.isfinite(g.inverse(torch.tensor(1e-30)))


def test_softplus_inverse_survives_large_thresholds():
    assert THRESHOLD_FUNCTIONS["softplus"].inverse(torch.tensor(1000.0)).item() == 1000


def test_sigmoid_never_prunes_at_or_above_one():
    assert THRESHOLD_FUNCTIONS["sigmoid"].inverse(torch.tensor([1.0, 1.5])).tolist() == [torch.inf, torch.inf]
