import pytest
import torch
from hypothesis import given, strategies as st

from thresher.kernels import row_adam_step as module
from thresher.kernels.row_adam_step import RowAdamSettings, RowAdamState

settings = st.builds(
    RowAdamSettings,
    learning_rate=st.sampled_from([1e-3, 0.1]),
    betas=st.sampled_from([(0.9, 0.999), (0.0, 0.9), (0.5, 0.0)]),
    epsilon=st.sampled_from([1e-8, 1e-3]),
    weight_decay=st.sampled_from([0.0, 1e-5, 0.1]),
    max_decay_steps=st.sampled_from([1, 3, 1000]),
    gradient_scale=st.sampled_from([1.0, 0.25]),
)


def new_state(weight, per_row, momentum=True):
    second = torch.zeros(weight.shape[0], 1) if per_row else torch.zeros_like(weight)
    first = torch.zeros_like(weight) if momentum else torch.zeros(weight.shape[0], 0)
    return RowAdamState(first, second, torch.zeros(weight.shape[0], 1, dtype=torch.int32))


@given(
    settings=settings,
    seed=st.integers(0, 1000),
    N=st.integers(1, 30),
    D=st.sampled_from([1, 3, 16, 40]),
    per_row=st.booleans(),
    num_rows=st.integers(0, 8),
)
def test_kernel_and_twin_take_the_same_steps(settings, seed, N, D, per_row, num_rows):
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(N, D, generator=generator)
    gradients = []
    for _ in range(4):
        rows = torch.randperm(N, generator=generator)[:num_rows].sort().values
        gradient = torch.randn(len(rows), D, generator=generator)
        gradient[torch.rand(len(rows), generator=generator) < 0.2] = 0.0
        gradients.append((rows, gradient))
    results = []
    for update in (module._update_by_kernel, module._update_by_torch):
        weight = start.clone()
        state = new_state(weight, per_row, momentum=settings.betas[0] > 0)
        for step, (rows, gradient) in zip((3, 4, 7, 5000), gradients, strict=True):
            assert update(weight, rows, gradient, state, step, settings) == 0
        results.append((weight, state.exp_avg, state.exp_avg_sq, state.touched_at))
    for ours, twin in zip(*results, strict=True):
        torch.testing.assert_close(ours, twin, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("update", [module._update_by_kernel, module._update_by_torch])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("per_row", [False, True])
def test_rows_with_a_non_finite_gradient_are_counted_and_not_updated(update, bad, per_row):
    weight = torch.ones(4, 8)
    state = new_state(weight, per_row)
    gradient = torch.ones(2, 8)
    gradient[1, 7] = bad
    plain = RowAdamSettings(learning_rate=0.1, betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0.0, max_decay_steps=1)
    assert update(weight, torch.tensor([0, 2]), gradient, state, 1, plain) == 1
    assert weight[2].tolist() == [1.0] * 8
    assert state.touched_at.tolist() == [[1], [0], [0], [0]]
    torch.testing.assert_close(weight[0], torch.full((8,), 0.9))
