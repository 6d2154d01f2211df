"""Eq. 8 and Eq. 11, checked against their definition and against finite differences."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from thresher.embeddings.soft_threshold import count_kept, keep_mask, soft_threshold

finite = st.floats(-10, 10, width=32)


@given(finite, st.floats(0, 10, width=32))
def test_equation_8_entry_by_entry(value, threshold):
    v, t = torch.tensor(value), torch.tensor(threshold)
    expected = 0.0 if abs(value) <= threshold else (abs(v) - t).item() * (1 if value > 0 else -1)
    assert soft_threshold(v, t).item() == expected
    assert keep_mask(v, t).item() == (soft_threshold(v, t).item() != 0)


def test_gradients_agree_with_finite_differences():
    values = torch.tensor([[0.5, -0.9, 0.05], [-0.3, 0.02, 1.4]], dtype=torch.float64, requires_grad=True)
    for shape in ((1, 1), (1, 3), (2, 1), (2, 3)):
        threshold = torch.full(shape, 0.1, dtype=torch.float64, requires_grad=True)
        assert gradcheck(soft_threshold, (values, threshold))


def test_equation_11_kept_entries_pass_their_gradient_unchanged_and_pruned_ones_get_none():
    values = torch.tensor([0.5, -0.5, 0.1, -0.1, 0.0], requires_grad=True)
    upstream = torch.tensor([2.0, 3.0, 5.0, 7.0, 11.0])
    soft_threshold(values, torch.tensor(0.2)).backward(upstream)
    assert values.grad.tolist() == [2.0, 3.0, 0.0, 0.0, 0.0]


def test_threshold_gets_minus_the_sign_times_the_gradient_of_the_kept_entries():
    threshold = torch.tensor(0.2, requires_grad=True)
    soft_threshold(torch.tensor([0.5, -0.5, 0.1]), threshold).backward(torch.tensor([2.0, 3.0, 5.0]))
    assert threshold.grad.item() == -2.0 + 3.0


def test_zero_threshold_changes_no_bit():
    values = torch.randn(100)
    assert torch.equal(soft_threshold(values, torch.tensor(0.0)), values)


def test_count_kept():
    assert count_kept(torch.tensor([[0.1, -0.3], [0.2, 0.0]]), torch.tensor([[0.15, 0.15]])) == 2
