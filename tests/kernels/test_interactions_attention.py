import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from thresher.kernels.interactions import FEW_FIELDS, attend, draw, drop_out
from thresher.models.layers import Dropout


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
def test_attention_dropout_drops_its_share_and_keeps_the_mean(dropout):
    num_rows, num_fields = 2000, 4
    query, key = torch.zeros(2, num_rows, num_fields, 4)  # all weights are 1/4
    value = torch.eye(num_fields).expand(num_rows, num_fields, num_fields).contiguous()
    weights = attend(query, key, value, 1, dropout=dropout)  # [rows, i, j]
    assert (weights == 0).float().mean().item() == pytest.approx(dropout, abs=0.01)
    assert weights.mean().item() == pytest.approx(1 / num_fields, rel=0.1 if dropout > 0.5 else 0.02)
    kept = weights[weights != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / num_fields / (1 - dropout)), rtol=1e-4, atol=0)


def test_attention_dropout_follows_the_seed():
    inputs = random_inputs(4, 6, 8)

    def attended(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return attend(*inputs, 2, dropout=0.5)

    assert torch.equal(attended(3), attended(3))
    assert not torch.equal(attended(3), attended(4))


def test_few_and_many_fields_give_the_same():
    """A field more than the kernels take, with a score far below all others."""
    query, key, value = (x.detach() for x in random_inputs(3, FEW_FIELDS, 8))
    query[..., 0] = 1
    more_key = torch.cat([key, torch.zeros(3, 1, 8)], dim=1)
    more_key[:, -1, 0] = -1000
    more_query, more_value = (torch.cat([x, torch.ones(3, 1, 8)], dim=1) for x in (query, value))
    by_torch = attend(more_query, more_key, more_value, 1)[:, :-1]
    torch.testing.assert_close(attend(query, key, value, 1), by_torch, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_nan_propagates(at):
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


def test_other_layouts_and_types_give_the_same():
    inputs = [x.detach() for x in random_inputs(2, 5, 8)]
    expected = attend(*inputs, 2)
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs]
    torch.testing.assert_close(attend(*turned, 2), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(attend(*(x.double() for x in inputs), 2).float(), expected, rtol=1e-4, atol=1e-5)


def test_a_dropout_of_almost_1_does_not_divide_by_zero():
    assert attend(*(x.detach() for x in random_inputs(2, 3, 4)), 2, dropout=0.9999999).isfinite().all()


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
def test_rates_of_0_and_1(rate):
    values = torch.randn(7, 3)
    assert torch.equal(drop_out(values, rate), values * (1 - rate))


@pytest.mark.parametrize("shape", [(0, 4), (1,), (3, 5), (2, 3, 4)])
def test_draws_of_any_shape(shape):
    assert draw(shape).shape == torch.Size(shape)
    assert drop_out(torch.ones(shape), 0.3).shape == torch.Size(shape)


def test_gradients_of_dropout():
    values = torch.randn(40, 5, requires_grad=True)
    dropped = drop_out(values, 0.4)
    (gradient,) = torch.autograd.grad(dropped.sum(), values)
    torch.testing.assert_close(gradient * values.detach(), dropped.detach())


def test_dropout_follows_the_seed():
    def dropped(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return drop_out(torch.ones(50, 4), 0.5)

    assert torch.equal(dropped(3), dropped(3))
    assert not torch.equal(dropped(3), dropped(4))


def test_the_module_drops_only_in_training():
    module = Dropout(0.5)
    assert isinstance(module, nn.Dropout)
    values = torch.ones(100, 10)
    assert (module(values) == 0).any()
    assert torch.equal(module.eval()(values), values)
    assert str(module) == str(nn.Dropout(0.5))


def test_other_types_use_torchs_dropout():
    values = torch.ones(1000, dtype=torch.float64)
    torch.manual_seed(2)
    dropped = drop_out(values, 0.5)
    torch.manual_seed(2)
    assert torch.equal(dropped, nn.functional.dropout(values, 0.5))
