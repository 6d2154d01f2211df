import pytest
import torch
from hypothesis import given, strategies as st
from torch.nn import functional

from thresher.errors import NonFiniteError
from thresher.kernels import threshold_lookup as module
from thresher.kernels.distinct import find_distinct
from thresher.kernels.rows import expand_rows
from thresher.kernels.threshold_lookup import PrunedRows, threshold_lookup
from thresher.training.row_adam import RowAdam

CLOCKS = [-torch.inf, -300.0, -15.0, -3.0, 0.0, 2.0, 50.0]


@st.composite
def lookups(draw):
    """Weight `[N, D]`, deviation, deviation rows or None, ids, clock, function."""
    N, D = draw(st.integers(1, 30)), draw(st.sampled_from([1, 2, 5, 16, 33]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    weight = torch.randn(N, D, generator=generator)
    weight[torch.rand(N, D, generator=generator) < 0.1] = 0.0
    columns = draw(st.sampled_from([1, D]))
    num_groups = draw(st.sampled_from([None, 1, 3]))
    deviation = torch.randn(num_groups or N, columns, generator=generator)
    ids = torch.randint(N, draw(st.sampled_from([(0, 3), (1, 1), (4, 3), (7,)])), generator=generator)
    groups = None if num_groups is None else torch.randint(num_groups, (N,), generator=generator)
    return weight, deviation, groups, ids, draw(st.sampled_from(CLOCKS)), draw(st.sampled_from(["softplus", "sigmoid"]))


def run(lookup, forward, backward):
    weight, deviation, groups, ids, clock, function = lookup
    distinct = find_distinct(ids, weight.shape[0])
    used = distinct.ids if groups is None else groups[distinct.ids]
    rows, is_pruned, forward_finite = forward(weight, deviation, clock, distinct.ids, used, function)
    grad = torch.randn(rows.shape, generator=torch.Generator().manual_seed(7))
    values, deviation_values, backward_finite = backward(grad, rows, deviation, clock, used, function, True)
    assert forward_finite
    assert backward_finite
    assert torch.equal(is_pruned, (rows == 0).all(1))
    return rows, values, deviation_values


@given(lookups())
def test_kernel_and_twin_agree(lookup):
    ours = run(lookup, module._forward_by_kernel, module._backward_by_kernel)
    twin = run(lookup, module._forward_by_torch, module._backward_by_torch)
    for a, b in zip(ours, twin, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@given(lookups())
def test_values_and_gradients_are_those_of_thresholding_the_whole_table(lookup):
    weight, deviation, groups, ids, clock, function = lookup
    weight, deviation = weight.requires_grad_(), deviation.requires_grad_()
    g = functional.softplus if function == "softplus" else torch.sigmoid
    threshold = g(clock + (deviation if groups is None else deviation[groups]))
    whole = weight if clock == -torch.inf else torch.sign(weight) * torch.relu(weight.abs() - threshold)
    distinct = find_distinct(ids, weight.shape[0])
    upstream = torch.randn(distinct.num_ids, weight.shape[1], generator=torch.Generator().manual_seed(3))
    expected_rows = whole[distinct.ids]
    expected = torch.autograd.grad((expected_rows * upstream).sum(), (weight, deviation), allow_unused=True)

    used = None if groups is None else groups[distinct.ids]
    rows, _ = threshold_lookup(weight, deviation, clock, distinct, used, function=function)
    (rows * upstream).sum().backward()
    torch.testing.assert_close(rows, expected_rows, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weight.grad.to_dense(), expected[0])
    if clock == -torch.inf:
        assert deviation.grad is None
    else:
        torch.testing.assert_close(deviation.grad.to_dense(), expected[1], rtol=1e-4, atol=1e-5)


def test_gradients_are_row_sparse_and_hold_only_the_rows_of_the_batch():
    weight, deviation = torch.randn(100, 4, requires_grad=True), torch.zeros(100, 4, requires_grad=True)
    distinct = find_distinct(torch.tensor([[7, 3], [3, 99]]), 100)
    threshold_lookup(weight, deviation, -2.0, distinct)[0].sum().backward()
    for grad in (weight.grad, deviation.grad):
        assert grad.is_sparse
        assert grad._indices().tolist() == [[3, 7, 99]]
        assert grad._values().shape == (3, 4)


def test_a_fixed_deviation_gets_no_gradient():
    weight, deviation = torch.randn(5, 4, requires_grad=True), torch.zeros(5, 4)
    threshold_lookup(weight, deviation, -2.0, find_distinct(torch.tensor([1]), 5))[0].sum().backward()
    assert weight.grad is not None


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", ["weight", "deviation"])
@pytest.mark.parametrize("contiguous", [True, False])
def test_non_finite_rows_are_refused_only_when_looked_up(bad, where, contiguous):
    clock = -1.0
    tables = {"weight": torch.randn(5, 8), "deviation": torch.randn(5, 8)}
    tables[where][2, 5] = bad
    if not contiguous:  # the twin's case
        tables["weight"] = tables["weight"].T.contiguous().T
    threshold_lookup(tables["weight"], tables["deviation"], clock, find_distinct(torch.tensor([0, 1, 4]), 5))
    with pytest.raises(NonFiniteError, match="NaN or infinity"):
        threshold_lookup(tables["weight"], tables["deviation"], clock, find_distinct(torch.tensor([1, 2]), 5))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("clock", [-3.0, 100.0])
def test_non_finite_gradients_are_refused_even_at_pruned_entries(bad, clock):
    weight, deviation = torch.randn(5, 8, requires_grad=True), torch.zeros(5, 8, requires_grad=True)
    rows, _ = threshold_lookup(weight, deviation, clock, find_distinct(torch.tensor([1, 2]), 5))
    grad = torch.zeros_like(rows)
    grad[1, 3] = bad
    with pytest.raises(NonFiniteError, match="gradient"):
        rows.backward(grad)
    assert weight.grad is None


@given(st.integers(0, 1000), st.lists(st.sampled_from([-9.0, -2.0, -1.0, 0.0, 1.0]), min_size=1, max_size=8))
def test_training_is_the_same_with_and_without_pruned_rows(seed, clocks):
    """Values, gradients and updates over a path of clocks that may also fall."""
    results = []
    for recorded in (True, False):
        generator = torch.Generator().manual_seed(seed)
        weight = (torch.randn(12, 4, generator=generator) * 0.5).requires_grad_()
        deviation = torch.randn(12, 4, generator=generator).requires_grad_()
        optimizer = RowAdam([weight, deviation], lr=0.05, weight_decay=0.01)
        pruned_rows = PrunedRows(weight, deviation) if recorded else None
        outputs = []
        for clock in clocks:
            ids = torch.randint(12, (5, 2), generator=generator)
            optimizer.zero_grad()
            rows, distinct = threshold_lookup(weight, deviation, clock, find_distinct(ids, 12), pruned_rows=pruned_rows)
            vectors = expand_rows(rows, distinct)  # [5, 2, 4]
            (vectors.sum(1).square().sum() + vectors.sum()).backward()
            optimizer.step()
            outputs.append(vectors.detach())
        results.append((*outputs, weight.detach(), deviation.detach()))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_pruned_rows_are_removed_and_get_no_gradient():
    weight = torch.tensor([[1.0, 2.0], [0.01, 0.01], [3.0, 0.0]], requires_grad=True)
    deviation = torch.zeros(3, 2, requires_grad=True)
    pruned_rows = PrunedRows(weight, deviation)
    ids = torch.tensor([[0, 1], [1, 2]])
    first, _ = threshold_lookup(weight, deviation, 0.0, find_distinct(ids, 3), pruned_rows=pruned_rows)
    rows, distinct = threshold_lookup(weight, deviation, 0.5, find_distinct(ids, 3), pruned_rows=pruned_rows)
    assert (len(first), len(rows)) == (3, 2)
    assert distinct.ids.tolist() == [0, 2]
    vectors = expand_rows(rows, distinct)
    assert vectors[0, 1].tolist() == vectors[1, 0].tolist() == [0.0, 0.0]
    vectors.sum().backward()
    assert weight.grad._indices().tolist() == [[0, 2]]


@pytest.mark.parametrize("change", ["clock falls", "weight written", "deviation written"])
def test_records_are_dropped_after_a_change(change):
    weight, deviation = torch.full((3, 2), 0.1), torch.zeros(3, 2)
    pruned_rows = PrunedRows(weight, deviation)
    distinct = find_distinct(torch.arange(3), 3)
    rows, _ = threshold_lookup(weight, deviation, 0.0, distinct, pruned_rows=pruned_rows)
    assert not rows.any()
    assert pruned_rows.remove_from(distinct, 0.0).num_ids == 0
    clock = -5.0 if change == "clock falls" else 0.0
    if change == "weight written":
        weight.mul_(50)
    if change == "deviation written":
        deviation.sub_(50)
    rows, live = threshold_lookup(weight, deviation, clock, distinct, pruned_rows=pruned_rows)
    assert live.num_ids == 3
    assert rows.all()


def test_a_row_that_was_active_meanwhile_is_looked_up():
    """The clock may fall: a row pruned at 0 lives at −9, grows, and must be seen when the clock is 0 again."""
    weight = torch.full((1, 2), 0.1, requires_grad=True)
    deviation = torch.zeros(1, 2)
    pruned_rows, distinct = PrunedRows(weight, deviation), find_distinct(torch.tensor([0]), 1)
    for clock, expected in ((0.0, 0), (-9.0, 1)):
        rows, _ = threshold_lookup(weight, deviation, clock, distinct, pruned_rows=pruned_rows)
        assert int(rows.count_nonzero()) == 2 * expected
    weight.detach().numpy()[:] = 5.0  # as an update kernel writes: without a new version
    rows, live = threshold_lookup(weight, deviation, 0.0, distinct, pruned_rows=pruned_rows)
    assert live.num_ids == 1
    assert (rows > 4).all()
