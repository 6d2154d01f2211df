"""Attention over few fields: the kernels against the formula written out, also where weights are dropped."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from thresher.kernels.attention import FEW_FIELDS, attend


def attend_naively(query: Tensor, key: Tensor, value: Tensor, num_heads: int) -> Tensor:
    heads = []
    for q, k, v in zip(*(x.chunk(num_heads, dim=2) for x in (query, key, value)), strict=True):
        heads.append(torch.softmax(q @ k.transpose(1, 2), dim=2) @ v)
    return torch.cat(heads, dim=2)


def random_inputs(num_rows: int, num_fields: int, width: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(num_rows, num_fields, width, generator=generator).requires_grad_() for _ in range(3)]


@given(
    num_rows=st.integers(0, 5),
    num_fields=st.integers(1, FEW_FIELDS + 2),
    num_heads=st.integers(1, 3),
    head_width=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_output_and_gradients_are_those_of_the_formula(num_rows, num_fields, num_heads, head_width, seed):
    inputs = random_inputs(num_rows, num_fields, num_heads * head_width, seed)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    attended, expected = attend(*inputs, num_heads), attend_naively(*exact, num_heads)
    torch.testing.assert_close(attended, expected.float(), rtol=1e-4, atol=1e-5)
    direction = torch.randn(attended.shape, generator=torch.Generator().manual_seed(seed))
    got = torch.autograd.grad(attended, inputs, direction)
    wanted = torch.autograd.grad(expected, exact, direction.double())
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b.float(), rtol=1e-3, atol=1e-4)


def test_gradients_with_dropout_are_those_of_the_weights_that_were_kept():
    inputs = random_inputs(3, 5, 8)
    direction = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1))

    def value_at(*tensors: Tensor) -> Tensor:
        torch.manual_seed(7)  # the same weights are dropped each time
        return (attend(*tensors, 2, dropout=0.4) * direction).sum()

    gradients = torch.autograd.grad(value_at(*inputs), inputs)
    for at, gradient in enumerate(gradients):
        step = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(at))
        ends = []
        for sign in (1, -1):
            moved = [x.detach() + (sign * 1e-2 * step if k == at else 0) for k, x in enumerate(inputs)]
            ends.append(value_at(*moved).item())
        assert (ends[0] - ends[1]) / 2e-2 == pytest.approx((gradient * step).sum().item(), rel=2e-3, abs=2e-3)


@pytest.mark.parametrize("dropout", [0.1, 0.4, 0.9])
def test_dropout_drops_its_share_and_keeps_the_mean(dropout):
    num_rows, num_fields = 2000, 4
    query, key = torch.zeros(2, num_rows, num_fields, 4)  # all weights are 1/4
    value = torch.eye(num_fields).expand(num_rows, num_fields, num_fields).contiguous()
    weights = attend(query, key, value, 1, dropout=dropout)  # [rows, i, j]
    assert (weights == 0).float().mean().item() == pytest.approx(dropout, abs=0.01)
    assert weights.mean().item() == pytest.approx(1 / num_fields, rel=0.1 if dropout > 0.5 else 0.02)
    kept = weights[weights != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / num_fields / (1 - dropout)), rtol=1e-4, atol=0)


def test_dropout_is_repeated_by_its_seed_and_differs_without():
    inputs = random_inputs(4, 6, 8)

    def attended(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return attend(*inputs, 2, dropout=0.5)

    assert torch.equal(attended(3), attended(3))
    assert not torch.equal(attended(3), attended(4))


def test_few_and_many_fields_are_attended_alike():
    """A field more than the kernels take, which nobody attends to: its score is far below all others."""
    query, key, value = (x.detach() for x in random_inputs(3, FEW_FIELDS, 8))
    query[..., 0] = 1
    more_key = torch.cat([key, torch.zeros(3, 1, 8)], dim=1)
    more_key[:, -1, 0] = -1000
    more_query, more_value = (torch.cat([x, torch.ones(3, 1, 8)], dim=1) for x in (query, value))
    by_torch = attend(more_query, more_key, more_value, 1)[:, :-1]
    torch.testing.assert_close(attend(query, key, value, 1), by_torch, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_nan_is_not_hidden(at):
    inputs = [x.detach() for x in random_inputs(2, 3, 4)]
    inputs[at][0, 1, 2] = torch.nan
    attended = attend(*inputs, 1)
    assert attended[0].isnan().any()
    assert not attended[1].isnan().any()


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_second_derivatives_are_those_of_first_ones(dropout):
    inputs = [x.detach().requires_grad_() for x in random_inputs(2, 3, 4)]

    def penalty(*tensors: Tensor) -> Tensor:
        torch.manual_seed(5)
        first = torch.autograd.grad(attend(*tensors, 2, dropout=dropout).square().sum(), tensors, create_graph=True)
        return sum((gradient.square().sum() for gradient in first), torch.zeros(()))

    gradients = torch.autograd.grad(penalty(*inputs), inputs)
    for at, gradient in enumerate(gradients):
        step = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(at))
        ends = []
        for sign in (1, -1):
            moved = [
                (x + (sign * 3e-3 * step if k == at else 0)).detach().requires_grad_() for k, x in enumerate(inputs)
            ]
            ends.append(penalty(*moved).item())
        assert (ends[0] - ends[1]) / 6e-3 == pytest.approx((gradient * step).sum().item(), rel=2e-2, abs=2e-2)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own attention has no rule for it
def test_gradients_of_each_row_under_vmap():
    inputs = [x.detach() for x in random_inputs(4, 3, 4)]

    def of_one(*row: Tensor) -> Tensor:
        return attend(*(x[None] for x in row), 2).square().sum()

    one_by_one = torch.func.vmap(torch.func.grad(of_one, argnums=(0, 1, 2)))(*inputs)
    tracked = [x.requires_grad_() for x in inputs]
    together = torch.autograd.grad(attend(*tracked, 2).square().sum(), tracked)
    for a, b in zip(one_by_one, together, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_other_layouts_and_types_are_attended_alike():
    inputs = [x.detach() for x in random_inputs(2, 5, 8)]
    expected = attend(*inputs, 2)
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs]
    torch.testing.assert_close(attend(*turned, 2), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(attend(*(x.double() for x in inputs), 2).float(), expected, rtol=1e-4, atol=1e-5)


def test_a_dropout_of_almost_all_is_no_division_by_zero():
    assert attend(*(x.detach() for x in random_inputs(2, 3, 4)), 2, dropout=0.9999999).isfinite().all()
