import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thresher.kernels.distinct import find_distinct
from thresher.kernels.pruned_rows import PrunedRows
from thresher.kernels.rows import expand_rows
from thresher.kernels.threshold_lookup import threshold_lookup
from thresher.training.row_adam import RowAdam


@given(st.integers(0, 1000), st.lists(st.sampled_from([-9.0, -2.0, -1.0, 0.0, 1.0]), min_size=1, max_size=8))
def test_a_search_is_the_same_with_and_without_the_notes(seed, clocks):
    """Values, gradients and updates over a path of clocks that may also fall."""
    results = []
    for noted in (True, False):
        generator = torch.Generator().manual_seed(seed)
        weight = (torch.randn(12, 4, generator=generator) * 0.5).requires_grad_()
        deviation = torch.randn(12, 4, generator=generator).requires_grad_()
        optimizer = RowAdam([weight, deviation], lr=0.05, weight_decay=0.01)
        notes = PrunedRows(weight, deviation) if noted else None
        outputs = []
        for clock in clocks:
            ids = torch.randint(12, (5, 2), generator=generator)
            optimizer.zero_grad()
            rows, distinct = threshold_lookup(weight, deviation, clock, find_distinct(ids, 12), pruned_rows=notes)
            vectors = expand_rows(rows, distinct)  # [5, 2, 4]
            (vectors.sum(1).square().sum() + vectors.sum()).backward()
            optimizer.step()
            outputs.append(vectors.detach())
        results.append((*outputs, weight.detach(), deviation.detach()))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_pruned_rows_are_left_out_and_get_no_gradient():
    weight = torch.tensor([[1.0, 2.0], [0.01, 0.01], [3.0, 0.0]], requires_grad=True)
    deviation = torch.zeros(3, 2, requires_grad=True)
    notes = PrunedRows(weight, deviation)
    ids = torch.tensor([[0, 1], [1, 2]])
    first, _ = threshold_lookup(weight, deviation, 0.0, find_distinct(ids, 3), pruned_rows=notes)
    rows, distinct = threshold_lookup(weight, deviation, 0.5, find_distinct(ids, 3), pruned_rows=notes)
    assert (len(first), len(rows)) == (3, 2)
    assert distinct.ids.tolist() == [0, 2]
    vectors = expand_rows(rows, distinct)
    assert vectors[0, 1].tolist() == vectors[1, 0].tolist() == [0.0, 0.0]
    vectors.sum().backward()
    assert weight.grad._indices().tolist() == [[0, 2]]


@pytest.mark.parametrize("change", ["clock falls", "weight written", "deviation written"])
def test_notes_are_dropped_when_they_may_no_longer_hold(change):
    weight, deviation = torch.full((3, 2), 0.1), torch.zeros(3, 2)
    notes = PrunedRows(weight, deviation)
    distinct = find_distinct(torch.arange(3), 3)
    rows, _ = threshold_lookup(weight, deviation, 0.0, distinct, pruned_rows=notes)
    assert not rows.any()
    assert notes.leave_out(distinct, 0.0).num_ids == 0
    clock = -5.0 if change == "clock falls" else 0.0
    if change == "weight written":
        weight.mul_(50)
    if change == "deviation written":
        deviation.sub_(50)
    rows, live = threshold_lookup(weight, deviation, clock, distinct, pruned_rows=notes)
    assert live.num_ids == 3
    assert rows.all()


def test_a_row_that_was_live_again_meanwhile_is_looked_up():
    """The clock may fall: a row pruned at 0 lives at −9, grows, and must be seen when the clock is 0 again."""
    weight = torch.full((1, 2), 0.1, requires_grad=True)
    deviation = torch.zeros(1, 2)
    notes, distinct = PrunedRows(weight, deviation), find_distinct(torch.tensor([0]), 1)
    for clock, expected in ((0.0, 0), (-9.0, 1)):
        rows, _ = threshold_lookup(weight, deviation, clock, distinct, pruned_rows=notes)
        assert int(rows.count_nonzero()) == 2 * expected
    weight.detach().numpy()[:] = 5.0  # as the kernel of an update writes: no version is counted
    rows, live = threshold_lookup(weight, deviation, 0.0, distinct, pruned_rows=notes)
    assert live.num_ids == 1
    assert (rows > 4).all()
