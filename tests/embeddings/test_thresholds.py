"""Eq. 8 and Eq. 11 against their definition and finite differences; the paper's three properties of `g`."""

import pytest
import torch
from hypothesis import given, strategies as st
from torch.autograd import gradcheck

from thresher.embeddings.thresholds import THRESHOLD_FUNCTIONS, keep_mask, soft_threshold

finite = st.floats(-10, 10, width=32)
functions = pytest.mark.parametrize("g", THRESHOLD_FUNCTIONS.values(), ids=THRESHOLD_FUNCTIONS.keys())
RAW = torch.linspace(-30, 30, 1201, dtype=torch.float64)


@given(finite, st.floats(0, 10, width=32))
def test_soft_threshold_is_equation_8(value, threshold):
    v, t = torch.tensor(value), torch.tensor(threshold)
    expected = 0.0 if abs(value) <= threshold else (abs(v) - t).item() * (1 if value > 0 else -1)
    assert soft_threshold(v, t).item() == expected
    assert keep_mask(v, t).item() == (soft_threshold(v, t).item() != 0)


def test_gradients_agree_with_finite_differences():
    values = torch.tensor([[0.5, -0.9, 0.05], [-0.3, 0.02, 1.4]], dtype=torch.float64, requires_grad=True)
    for shape in ((1, 1), (1, 3), (2, 1), (2, 3)):
        threshold = torch.full(shape, 0.1, dtype=torch.float64, requires_grad=True)
        assert gradcheck(soft_threshold, (values, threshold))


def test_kept_entries_pass_their_gradient_and_pruned_entries_get_none():
    values = torch.tensor([0.5, -0.5, 0.1, -0.1, 0.0], requires_grad=True)
    upstream = torch.tensor([2.0, 3.0, 5.0, 7.0, 11.0])
    soft_threshold(values, torch.tensor(0.2)).backward(upstream)
    assert values.grad.tolist() == [2.0, 3.0, 0.0, 0.0, 0.0]


def test_gradient_of_the_threshold():
    threshold = torch.tensor(0.2, requires_grad=True)
    soft_threshold(torch.tensor([0.5, -0.5, 0.1]), threshold).backward(torch.tensor([2.0, 3.0, 5.0]))
    assert threshold.grad.item() == -2.0 + 3.0


def test_threshold_zero_changes_nothing():
    values = torch.randn(100)
    assert torch.equal(soft_threshold(values, torch.tensor(0.0)), values)


@functions
def test_g_is_positive_and_unbounded(g):
    values = g(RAW)
    assert (values > 0).all()
    assert g(torch.tensor(-torch.inf)).item() == 0
    assert values[0] < 1e-12
    unbounded = g(torch.tensor(1e6)).item() > 1e5
    # the paper's sigmoid is bounded by 1, which is why softplus is the default
    assert unbounded == (g.name != "sigmoid")
    assert g(torch.tensor(torch.inf)).item() == (torch.inf if unbounded else 1)


@functions
def test_g_is_increasing_with_bounded_slope(g):
    raw = RAW.clone().requires_grad_()
    g(raw).sum().backward()
    assert (raw.grad > 0).all()
    assert raw.grad.max() <= 1


@functions
@pytest.mark.parametrize("start", [-15.0, -150.0])
def test_slope_is_below_one_at_the_start(g, start):
    raw = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    g(raw).backward()
    assert raw.grad.item() < 1


@functions
def test_inverse_of_g(g):
    raw = torch.linspace(-20, 10, 301, dtype=torch.float64)
    torch.testing.assert_close(g.inverse(g(raw)), raw, rtol=1e-9, atol=1e-9)


@functions
def test_inverse_at_the_ends(g):
    assert g.inverse(torch.tensor(0.0)).item() == -torch.inf
    assert torch.isfinite(g.inverse(torch.tensor(1e-30)))


def test_softplus_inverse_does_not_overflow():
    assert THRESHOLD_FUNCTIONS["softplus"].inverse(torch.tensor(1000.0)).item() == 1000


def test_sigmoid_never_prunes_at_or_above_one():
    assert THRESHOLD_FUNCTIONS["sigmoid"].inverse(torch.tensor([1.0, 1.5])).tolist() == [torch.inf, torch.inf]
