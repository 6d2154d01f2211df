"""Who is ahead: by the paired differences over seeds, and never by a single seed."""

import pytest
from scipy import stats

from thresher.report.remarks import T_975, find_leader, paired_interval


def test_quantiles_and_interval_are_those_of_the_t_distribution():
    assert pytest.approx([stats.t.ppf(0.975, n) for n in range(1, 16)], abs=6e-4) == list(T_975)
    differences = [0.001, 0.004, 0.002, 0.003]
    own = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert paired_interval(differences) == pytest.approx((own.low, own.high), rel=1e-3)


def test_pairs_decide_where_seeds_vary_together():
    values = {"a": {0: 0.80, 1: 0.85, 2: 0.90}, "b": {0: 0.79, 1: 0.8401, 2: 0.8902}, "c": {0: 0.9, 1: 0.70, 2: 0.94}}
    leader = find_leader(values)
    assert (leader.method, leader.behind, leader.level) == ("a", ("b",), ("c",))


def test_one_seed_decides_nothing():
    assert find_leader({"a": {0: 0.9}, "b": {0: 0.5}}).level == ("b",)
    assert find_leader({"a": {0: 0.9, 1: 0.9}, "b": {2: 0.5, 3: 0.5}}).level == ("b",)
