"""Differences over seeds: one side minus another, when they count, and in words.

Pure functions of frontier points and of AUCs. A difference counts where all seeds agree on its sign, and chance would
hardly make it (Student's t, one case in twenty); with fewer seeds than `min(STUDENT)` where it is at least `LEVEL`,
told apart. Between methods validation has to agree, too: seeds share one test split, so they do not show what it owes
to its rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from paper.experiments import aucs_of
from paper.page import mean_sd
from thresher.embeddings.method_registry import registered_embeddings
from thresher.report.frontier import FrontierPoint

LEVEL = 0.001
"""Test AUCs closer than this differ no more than seeds do."""
STUDENT = {3: 4.303, 4: 3.182, 5: 2.776}
"""Seeds → the t that chance exceeds in one of twenty cases, on both sides."""
RULE = f"""Methods are compared seed by seed. One is *ahead* where it is so with every seed, on average by more than
chance would make of seeds that vary as these do (Student's t, one case in twenty), and on average on the validation
split, too, which has other rows (not asked where one of the two learned its sizes on those rows: DartsEmb, AutoDim,
DNIS, NIS; nor of two ways of one method). *Level* are all others: the seeds do not tell them apart, and with three of
them a difference of 0.002 may go untold. Of many comparisons one in forty would be *ahead* by chance. What rests on one
seed or two has no such test: it is told apart, and counts where every seed says so and the mean is at least
{LEVEL}."""


def paired(points: Iterable[FrontierPoint], others: Iterable[FrontierPoint]) -> list[float]:
    """Test AUC of one method's points minus another's, for each seed both have."""
    own, other = ({str(p.seed): p.test_auc for p in side if p.test_auc is not None} for side in (points, others))
    return by_seed(own, other)


def on_validation(points: Sequence[FrontierPoint], others: Sequence[FrontierPoint]) -> float:
    """Mean validation AUC of one method's points minus another's, over the seeds both have."""
    own, other = ({str(point.seed): point.validation_auc for point in side} for side in (points, others))
    return fmean(by_seed(own, other))


def is_above(points: Sequence[FrontierPoint], others: Sequence[FrontierPoint]) -> bool:
    """Whether one method is ahead of another on test, and validation, unless one learned from it, says so, too."""
    learned = any(learns_on_validation(side[0].label) for side in (points, others))
    return is_ahead(paired(points, others)) and (learned or on_validation(points, others) > 0)


def learns_on_validation(label: str) -> bool:
    """Whether a method's search trains on the validation rows."""
    method = registered_embeddings().get(label)
    return method is not None and method.embedding.search_algorithm in ("bilevel", "controller")


def by_seed(own: Mapping[str, float], other: Mapping[str, float]) -> list[float]:
    """Seed → AUC of one side minus that of another, for each seed both have."""
    return [own[seed] - other[seed] for seed in sorted(own.keys() & other.keys())]


def signed(differences: Sequence[float]) -> str:
    """Mean difference with its sign, ± standard deviation, and over how many seeds."""
    return mean_sd(differences, sign="+")


def is_ahead(differences: Sequence[float]) -> bool:
    mean, num_seeds = fmean(differences), len(differences)
    if min(differences) <= 0:
        return False
    if num_seeds < min(STUDENT):
        return mean >= LEVEL
    return mean >= STUDENT[min(num_seeds, max(STUDENT))] * stdev(differences) / sqrt(num_seeds)


def is_behind(differences: Sequence[float]) -> bool:
    return is_ahead([-difference for difference in differences])


@dataclass(frozen=True)
class SideBySide:
    """Two ways of one method at the budgets of the first, paired over seeds.

    Attributes:
        rows: of a table: budget, test AUC of both, the first minus the second.
        differences: budget → those of each seed.
    """

    rows: Sequence[Sequence[str]]
    differences: Mapping[str, list[float]]

    @classmethod
    def of(cls, points: Sequence[FrontierPoint], others: Sequence[FrontierPoint]) -> "SideBySide":
        """At every budget that `points` have."""
        rows, differences = [], {}
        for budget in dict.fromkeys(str(point.budget) for point in points):
            sides = [[point for point in side if point.budget == budget] for side in (points, others)]
            differences[budget] = paired(*sides)
            rows.append([budget, *(mean_sd(aucs_of(side)) for side in sides), signed(differences[budget])])
        return cls(rows, differences)

    def in_words(self, subject: str) -> str:
        """At which sizes the first way, called `subject`, is ahead, and at which behind."""
        shared = {budget: each for budget, each in self.differences.items() if each}
        ahead = [budget for budget, each in shared.items() if is_ahead(each)]
        behind = [budget for budget, each in shared.items() if is_behind(each)]
        told = f"{subject} is ahead at {', '.join(ahead) or 'no size'}, behind at {', '.join(behind) or 'none'}."
        return told if shared else "They have no seed in common."
