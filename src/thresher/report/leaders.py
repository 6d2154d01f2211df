"""Who is ahead at a budget: the highest mean over seeds, and which methods are distinguishable from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Literal

T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""97.5 % quantiles of Student's t for 1, 2, … degrees of freedom."""

TEST_TEXT = (
    "Test: paired t-test at 5 % over the seeds that both methods have, not corrected for the number of methods. "
    "With one seed in common nothing can be said."
)


@dataclass(frozen=True, kw_only=True)
class Leader:
    """The method with the highest mean; `level` cannot be distinguished from it, `behind` is below it."""

    method: str
    mean: float
    level: tuple[str, ...]
    behind: tuple[str, ...]


def find_leader(values: Mapping[str, Mapping[int, float]]) -> Leader:
    """The leader, given method → seed → value (higher is better).

    >>> find_leader({"a": {0: 0.80, 1: 0.81}, "b": {0: 0.70, 1: 0.71}, "c": {0: 0.9, 1: 0.60}}).behind
    ('b',)
    """
    first = max(values, key=lambda method: fmean(values[method].values()))
    verdicts = {method: _compare(values[first], seeds) for method, seeds in values.items() if method != first}
    return Leader(
        method=first,
        mean=fmean(values[first].values()),
        level=tuple(method for method, verdict in verdicts.items() if verdict == "level"),
        behind=tuple(method for method, verdict in verdicts.items() if verdict == "behind"),
    )


def _compare(leader: Mapping[int, float], other: Mapping[int, float]) -> Literal["level", "behind"]:
    differences = [leader[seed] - other[seed] for seed in sorted(leader.keys() & other.keys())]
    return "behind" if paired_interval(differences)[0] > 0 else "level"


def paired_interval(differences: Sequence[float]) -> tuple[float, float]:
    """95 % confidence interval of the mean difference; unbounded for fewer than two seeds."""
    if len(differences) < 2:
        return float("-inf"), float("inf")
    quantile = T_975[len(differences) - 2] if len(differences) <= len(T_975) + 1 else 2.131
    margin = quantile * stdev(differences) / sqrt(len(differences))
    return fmean(differences) - margin, fmean(differences) + margin
