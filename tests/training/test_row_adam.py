import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from thresher.errors import ConfigError, NonFiniteError
from thresher.training.row_adam import RowAdam


def sparse_grad(shape, rows, values):
    return torch.sparse_coo_tensor(torch.tensor([rows]), torch.as_tensor(values), shape, check_invariants=True)


def random_steps(num_steps, N, D, *, share=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num_steps):
        rows = torch.randperm(N, generator=generator)[: max(1, round(share * N))]
        yield rows, torch.randn(len(rows), D, generator=generator)


@pytest.mark.parametrize("weight_decay", [0.0, 1e-2])
def test_equals_dense_adam_when_every_row_is_touched_at_every_step(weight_decay):
    start = torch.randn(7, 5)
    ours, dense = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    row_adam = RowAdam([ours], lr=0.05, weight_decay=weight_decay)
    adam = torch.optim.Adam([dense], lr=0.05, weight_decay=weight_decay)
    for rows, values in random_steps(20, 7, 5):
        ours.grad = sparse_grad((7, 5), rows.tolist(), values)
        dense.grad = ours.grad.to_dense()
        row_adam.step()
        adam.step()
    torch.testing.assert_close(ours, dense, rtol=1e-4, atol=1e-5)


def test_without_decay_rows_are_where_dense_adam_has_them_however_long_they_were_absent():
    start = torch.randn(30, 4)
    ours, dense = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    row_adam, adam = RowAdam([ours], lr=0.01), torch.optim.Adam([dense], lr=0.01)
    for rows, values in [*random_steps(300, 30, 4, share=1.0), *random_steps(200, 30, 4, share=0.1, seed=1)]:
        ours.grad = sparse_grad((30, 4), rows.tolist(), values)
        dense.grad = ours.grad.to_dense()
        row_adam.step()
        adam.step()
    assert (ours - dense).abs().max() > 0.01  # rows that are absent now have not spent their momentum
    row_adam.catch_up()
    torch.testing.assert_close(ours, dense, rtol=0, atol=1e-3)


def test_dense_gradients_get_torchs_own_adam():
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    theirs = copy.deepcopy(ours)
    row_adam = RowAdam(ours.parameters(), lr=0.01, weight_decay=1e-3)
    adam = torch.optim.Adam(theirs.parameters(), lr=0.01, weight_decay=1e-3)
    for _ in range(5):
        inputs = torch.randn(8, 3)
        for model, optimizer in ((ours, row_adam), (theirs, adam)):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_absent_rows_are_not_touched():
    table = nn.Parameter(torch.randn(5, 3))
    before = table.detach().clone()
    optimizer = RowAdam([table], lr=0.1, weight_decay=0.1)
    table.grad = sparse_grad((5, 3), [1, 3], torch.ones(2, 3))
    optimizer.step()
    changed = (table.detach() != before).any(1)
    assert changed.tolist() == [False, True, False, True, False]


def test_a_row_whose_gradient_is_zero_counts_as_absent():
    table = nn.Parameter(torch.ones(3, 2))
    optimizer = RowAdam([table], lr=0.1, weight_decay=0.1)
    table.grad = sparse_grad((3, 2), [0, 1], [[1.0, 0.0], [0.0, 0.0]])
    optimizer.step()
    assert table[1].tolist() == [1.0, 1.0]
    assert optimizer.state[table]["touched_at"].tolist() == [[1], [0], [0]]


@pytest.mark.parametrize(("max_decay_steps", "caught_up"), [(1000, 10), (4, 4)])
def test_decay_of_skipped_steps_is_caught_up_to_the_limit(max_decay_steps, caught_up):
    decay, value, gradient = 0.01, 2.0, 0.3
    table = nn.Parameter(torch.full((2, 1), value))
    optimizer = RowAdam([table], lr=0.0, weight_decay=decay, betas=(0.0, 0.0), max_decay_steps=max_decay_steps)
    for step in range(1, 11):
        rows = [1] if step < 10 else [0, 1]
        table.grad = sparse_grad((2, 1), rows, torch.full((len(rows), 1), gradient))
        optimizer.step()
    # with β₂ = 0 the second moment is the square of the last gradient, decay included
    last = optimizer.state[table]["exp_avg_sq"].sqrt().flatten()
    torch.testing.assert_close(last, torch.tensor([gradient + decay * caught_up * value, gradient + decay * value]))


def test_catch_up_applies_what_is_due_and_only_once():
    table = nn.Parameter(torch.ones(3, 2))
    optimizer = RowAdam([table], lr=1e-2, weight_decay=0.1)
    for rows in ([0, 1], [1], [1]):
        table.grad = sparse_grad((3, 2), rows, torch.full((len(rows), 2), 1e-6))
        optimizer.step()
    before, version = table.detach().clone(), table._version
    optimizer.catch_up()
    assert (table[0] < before[0]).all()  # two steps were due
    assert table[1].tolist() == before[1].tolist()  # nothing was
    assert table[2].tolist() == [1.0, 1.0]  # never touched
    assert table._version > version
    after = table.detach().clone()
    optimizer.catch_up()
    assert torch.equal(table, after)


def test_a_late_row_moves_as_far_as_by_dense_adam():
    """Its first gradient counts against a second moment that has hardly begun, and its momentum is spent in the end."""
    sizes = {}
    for name, optimizer_class in (("rows", RowAdam), ("dense", torch.optim.Adam)):
        table = nn.Parameter(torch.zeros(2, 1))
        optimizer = optimizer_class([table], lr=0.1)
        for step in range(1, 701):
            grad = sparse_grad((2, 1), [1] if step == 500 else [0], [[1.0]])
            table.grad = grad.to_dense() if name == "dense" else grad
            optimizer.step()
        if name != "dense":
            optimizer.catch_up()
        sizes[name] = -table[1].item()
    assert sizes["rows"] == pytest.approx(sizes["dense"], rel=0.02)


def test_repeated_ids_are_summed_first():
    once, twice = nn.Parameter(torch.ones(4, 2)), nn.Parameter(torch.ones(4, 2))
    once.grad = sparse_grad((4, 2), [1, 3], [[3.0, 1.0], [2.0, 2.0]])
    twice.grad = sparse_grad((4, 2), [3, 1, 1], [[2.0, 2.0], [1.0, 1.0], [2.0, 0.0]])
    for table in (once, twice):
        RowAdam([table], lr=0.1).step()
    assert torch.equal(once, twice)


def test_gradient_of_a_sparse_embedding_is_taken_as_it_is():
    table = nn.Embedding(10, 3, sparse=True)
    optimizer = RowAdam(table.parameters(), lr=0.1)
    functional.embedding(torch.tensor([2, 5, 5]), table.weight, sparse=True).sum().backward()
    before = table.weight.detach().clone()
    optimizer.step()
    assert (table.weight.detach() != before).any(1).nonzero().flatten().tolist() == [2, 5]


def test_a_closure_is_called_with_gradients_and_its_loss_returned():
    table = nn.Embedding(4, 2, sparse=True)
    optimizer, before = RowAdam(table.parameters(), lr=0.1), table.weight.detach().clone()

    def closure():
        loss = table(torch.tensor([1, 2])).square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == pytest.approx(before[1:3].square().sum().item())
    assert (table.weight.detach() != before).any(1).nonzero().flatten().tolist() == [1, 2]


def test_clipping_is_by_the_norm_of_all_gradients_together():
    def steps(max_grad_norm, by_hand):
        table, network = nn.Parameter(torch.ones(4, 2)), nn.Parameter(torch.ones(3))
        optimizer = RowAdam([table, network], lr=0.1, eps=1.0, max_grad_norm=max_grad_norm)
        table.grad = sparse_grad((4, 2), [0, 2], torch.full((2, 2), 3.0))
        network.grad = torch.full((3,), 4.0)
        if by_hand is not None:
            norm = (4 * 9 + 3 * 16) ** 0.5
            table.grad, network.grad = table.grad * (by_hand / norm), network.grad * (by_hand / norm)
        optimizer.step()
        return torch.cat((table.detach().flatten(), network.detach()))

    torch.testing.assert_close(steps(0.5, None), steps(None, 0.5))
    torch.testing.assert_close(steps(1e6, None), steps(None, None))
    assert not torch.allclose(steps(0.5, None), steps(None, None))


@pytest.mark.parametrize("second_moment", ["entry", "row"])
def test_a_loaded_state_resumes_exactly(second_moment):
    def build():
        torch.manual_seed(1)
        parameters = [nn.Parameter(torch.randn(6, 3)), nn.Parameter(torch.randn(4))]
        return parameters, RowAdam(parameters, lr=0.05, weight_decay=0.01, second_moment=second_moment)

    def advance(parameters, optimizer, seed):
        for rows, values in random_steps(3, 6, 3, share=0.5, seed=seed):
            parameters[0].grad = sparse_grad((6, 3), rows.tolist(), values)
            parameters[1].grad = torch.ones(4)
            optimizer.step()

    parameters, optimizer = build()
    advance(parameters, optimizer, seed=0)
    resumed_parameters, resumed = build()
    for mine, saved in zip(resumed_parameters, parameters, strict=True):
        mine.data.copy_(saved)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert resumed.state[resumed_parameters[0]]["touched_at"].dtype == torch.int32
    advance(parameters, optimizer, seed=1)
    advance(resumed_parameters, resumed, seed=1)
    for mine, saved in zip(resumed_parameters, parameters, strict=True):
        assert torch.equal(mine, saved)


def test_one_second_moment_per_row_saves_a_table():
    table = nn.Parameter(torch.randn(50, 16))
    optimizer = RowAdam([table], second_moment="row")
    table.grad = sparse_grad((50, 16), [3], torch.randn(1, 16))
    optimizer.step()
    state = optimizer.state[table]
    assert state["exp_avg_sq"].shape == (50, 1)
    assert sum(value.numel() for value in state.values() if isinstance(value, torch.Tensor)) == 50 * (16 + 1 + 1)


def test_without_momentum_no_first_moments_are_kept_and_steps_are_adams():
    start = torch.randn(6, 3)
    ours, dense = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    optimizer, adam = RowAdam([ours], lr=0.1, betas=(0.0, 0.9)), torch.optim.Adam([dense], lr=0.1, betas=(0.0, 0.9))
    for rows, values in random_steps(6, 6, 3, share=0.5):
        ours.grad = sparse_grad((6, 3), rows.tolist(), values)
        dense.grad = ours.grad.to_dense()
        optimizer.step()
        adam.step()
    assert optimizer.state[ours]["exp_avg"].numel() == 0
    torch.testing.assert_close(ours, dense, rtol=1e-4, atol=1e-5)
    saved = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(saved)
    optimizer.catch_up()
    torch.testing.assert_close(ours, dense, rtol=1e-4, atol=1e-5)


def test_a_bad_gradient_is_refused_by_name():
    table = nn.Parameter(torch.randn(50, 16))
    table.grad = sparse_grad((50, 16), [3, 4], torch.full((2, 16), torch.nan))
    with pytest.raises(NonFiniteError, match=r"gradient of 2 rows of a table \[50, 16\]"):
        RowAdam([table]).step()


@pytest.mark.parametrize(
    "setting", [{"lr": -1}, {"weight_decay": float("inf")}, {"betas": (1.0, 0.9)}, {"max_decay_steps": 0}]
)
def test_settings_are_checked_and_named(setting):
    with pytest.raises(ConfigError, match=next(iter(setting))):
        RowAdam([nn.Parameter(torch.zeros(2, 2))], **setting)


def test_groups_keep_their_own_settings():
    tables = [nn.Parameter(torch.zeros(2, 1)) for _ in range(2)]
    optimizer = RowAdam([{"params": tables[:1], "lr": 0.1}, {"params": tables[1:], "lr": 0.3}])
    for table in tables:
        table.grad = sparse_grad((2, 1), [0], [[1.0]])
    optimizer.step()
    assert [table[0].item() for table in tables] == pytest.approx([-0.1, -0.3])
