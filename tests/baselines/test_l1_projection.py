"""L1 projection: exact against a quadratic solver, budgets met, its cost recorded, resume."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from thresher.baselines.l1_projection import (
    L1ProjectionConfig,
    L1ProjectionEmbedding,
    ProjectionSearch,
    project_l1_ball,
    radius_keeping,
)
from thresher.compact.layouts import compact_bytes
from thresher.errors import ConfigError
from thresher.search.schedule import Schedule
from thresher.training.checkpoint import read_history

CONFIG = L1ProjectionConfig(embedding_dim=8, projection_steps=10)
vectors = st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=40).map(lambda v: torch.tensor(v))


def by_bisection(values, radius):
    """Another way to the same point: the threshold at which the norm is the radius."""
    magnitudes = values.double().abs()
    low, high = 0.0, float(magnitudes.max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (magnitudes - middle).clamp_min(0).sum() > radius else (low, middle)
    return torch.sign(values) * (magnitudes - high).clamp_min(0)


@given(vectors, st.floats(0, 60))
def test_the_projection_is_exact(values, radius):
    projected = project_l1_ball(values, radius).double()
    norm = float(values.abs().double().sum())
    if norm <= radius:
        assert torch.equal(projected, values.double())
        return
    assert float(projected.abs().sum()) == pytest.approx(radius, abs=1e-4)
    torch.testing.assert_close(projected, by_bisection(values, radius).double(), atol=1e-5, rtol=1e-5)
    # the nearest point of a convex set: no other of its points lies on the near side
    for other in (torch.zeros_like(projected), radius * torch.nn.functional.one_hot(torch.tensor(0), len(values))):
        assert float(((values - projected) * (other - projected)).sum()) <= 1e-3


@given(vectors, st.integers(1, 40))
def test_the_radius_leaves_as_many_entries_as_asked(values, num_kept):
    magnitudes = np.unique(values.abs().numpy())
    if (
        len(magnitudes) < len(values)
        or (len(magnitudes) > 1 and np.diff(magnitudes).min() < 1e-4)
        or magnitudes[0] == 0
    ):
        return  # ties cannot be told apart
    kept = int(project_l1_ball(values, radius_keeping(values, num_kept)).count_nonzero())
    assert kept == min(num_kept, len(values))


def test_budgets_are_met_noise_is_pruned_and_the_cost_is_recorded(planted, tmp_path):
    tickets = planted.search(CONFIG, ["20%", "100", "1KB"], folder=tmp_path)
    found = {str(ticket.budget): ticket for ticket in tickets}
    assert found["20%"].num_parameters == int(0.2 * planted.num_features * 8)
    assert found["100"].num_parameters == 100
    signal, noise = planted.kept_by_kind(found["20%"].sizes()["embedding"])
    assert signal > 2 * noise
    pruned = [record for record in read_history(tmp_path / "history.jsonl") if record["num_kept"] < 1_000]
    assert pruned
    assert all(record["projection_seconds"] > 0 for record in pruned)


def test_a_search_killed_in_an_epoch_ends_the_same(planted, killed_and_resumed):
    resumed = killed_and_resumed(CONFIG, ["20%", "100"], killed_in=4)
    whole = planted.search(CONFIG, ["20%", "100"])
    for one, other in zip(whole, resumed, strict=True):
        assert torch.equal(one.masks["embedding"], other.masks["embedding"])
        assert torch.equal(one.final.values["embedding"], other.final.values["embedding"])


def projection_search(search, *, every):
    schedule = Schedule.of(search.task.config, 10)
    return ProjectionSearch(search.task, search.tables, replace(schedule, every=every))


def test_a_projection_is_written_into_the_table_and_unseen_rows_use_up_nothing(untrained):
    search = untrained(L1ProjectionConfig(embedding_dim=4), warmup_epochs=0)
    table = search.table
    table.seen[0] = False
    table.weight.data[0] = 100.0
    projection = projection_search(search, every=20)
    for _ in range(20):
        projection.step()
    assert table.weight[0].count_nonzero() == 0
    assert table.weight[1:].count_nonzero() == 8


def test_a_byte_budgets_ticket_keeps_nothing_that_was_projected_away_before(untrained):
    """An entry takes fewer bytes than the plan guesses, so that what is 0 by now would fit, too."""
    search = untrained(
        L1ProjectionConfig(embedding_dim=16), budgets="1500B,600B,200B", num_rows=50, warmup_epochs=0, plan_epochs=4
    )
    projection, held = projection_search(search, every=2), {}
    for _ in range(40):
        before, num_tickets = search.table.weight != 0, len(projection.tickets_so_far)
        projection.step()
        held.update({str(ticket.budget): before for ticket in projection.tickets_so_far[num_tickets:]})
    assert projection.finished
    for ticket in projection.tickets_so_far:
        mask = ticket.masks["table"]
        assert not (mask & ~held[str(ticket.budget)]).any()
        assert 0.95 * ticket.budget.amount < compact_bytes(mask) <= ticket.budget.amount


def test_counts_and_bytes_of_the_searched_table():
    table = L1ProjectionEmbedding((3, 2), L1ProjectionConfig(embedding_dim=2))
    with torch.no_grad():
        table.weight[1] = 0
    assert table.num_parameters() == 8
    assert table.storage_bytes() == 10 * 4
    table(torch.tensor([2]))
    assert table.scores()[0, 0] == -torch.inf
    assert table.scores()[2].tolist() == table.weight[2].abs().tolist()
    with pytest.raises(ConfigError, match="projection_steps"):
        L1ProjectionConfig(projection_steps=0)
