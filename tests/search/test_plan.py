from hypothesis import given
from hypothesis import strategies as st

from thresher.search.plan import Plan


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
