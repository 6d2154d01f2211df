import math

import pytest
from hypothesis import given, strategies as st

from thresher.errors import ConfigError
from thresher.search.schedule import Plan, Schedule, SearchConfig


@given(st.integers(2, 10**8), st.integers(1, 10**4), st.data())
def test_falls_geometrically_and_ends_at_the_smallest_budget(num_entries, num_steps, data):
    smallest = data.draw(st.integers(1, num_entries))
    plan = Plan(num_entries, smallest, num_steps)
    assert plan.num_kept(0) == num_entries
    assert plan.num_kept(num_steps) == plan.num_kept(num_steps + 100) == smallest
    step = data.draw(st.integers(0, num_steps - 1))
    assert smallest <= plan.num_kept(step + 1) <= plan.num_kept(step) <= num_entries


def test_equal_ratios():
    plan = Plan(1_000_000, 1_000, 30)
    assert [plan.num_kept(step) for step in (10, 20, 30)] == [100_000, 10_000, 1_000]


@pytest.mark.parametrize(
    ("settings", "warmup_steps", "plan_steps", "every", "num_epochs"),
    [
        ({"warmup_epochs": 2, "plan_epochs": 3}, 20, 30, 7, 5),
        ({"warmup_epochs": 0, "plan_epochs": 0.26}, 0, 3, 7, 1),
        ({"plan_epochs": 1.5}, 90, 15, 7, 11),  # validation may end the warm-up before its ninth epoch
        ({"warmup_epochs": 1, "plan_epochs": 0.01}, 10, 1, 7, 2),
        ({"warmup_epochs": 1, "plan_epochs": 2000}, 10, 20_000, 20, 2001),  # pruned a thousand times
    ],
)
def test_epochs_in_steps(settings, warmup_steps, plan_steps, every, num_epochs):
    found = Schedule.of(SearchConfig(clock_steps=7, max_warmup_epochs=9, **settings), steps_per_epoch=10)
    assert found == Schedule(warmup_steps=warmup_steps, plan_steps=plan_steps, every=every)
    assert found.num_steps == warmup_steps + plan_steps
    assert found.num_epochs(10) == num_epochs


@given(st.integers(2, 10**8), st.data())
def test_a_plan_by_halvings_does_not_depend_on_the_smallest_budget(num_entries, data):
    config = SearchConfig(start="dense", halving_epochs=data.draw(st.floats(0.01, 5)))
    small, smaller = sorted(data.draw(st.lists(st.integers(1, num_entries), min_size=2, max_size=2)), reverse=True)
    plans = []
    for smallest in (small, smaller):
        schedule = Schedule.of(config, 50, num_halvings=math.log2(num_entries / smallest))
        assert schedule.warmup_steps == 0
        plans.append((schedule, Plan(num_entries, smallest, schedule.plan_steps, schedule.halving_steps)))
    (short, first), (longer, second) = plans
    assert short.every == longer.every
    assert short.plan_steps <= longer.plan_steps
    for step in range(0, short.plan_steps + 1, short.every):
        assert first.num_kept(step) == second.num_kept(step)
    assert short.plan_steps % short.every == 0  # the last tickets are cut at a step at which longer plans prune, too
    assert first.num_kept(short.plan_steps) <= small
    assert second.num_kept(longer.plan_steps) <= smaller


def test_two_lengths_of_a_plan_are_refused():
    with pytest.raises(ConfigError, match=r"plan_epochs and search.halving_epochs are mutually exclusive"):
        SearchConfig(plan_epochs=3, halving_epochs=1)
    with pytest.raises(ConfigError, match="learning_rate_factor is 0; it must be above 0"):
        SearchConfig(learning_rate_factor=0)
