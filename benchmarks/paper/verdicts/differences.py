"""Paired differences between two methods over seeds, and the test that decides which method is better.

The functions work on frontier points and on AUCs. A difference is significant if all seeds agree on its sign and a
paired two-sided t-test rejects equality at the 5 % level. With fewer than `min(T_QUANTILES)` seeds there is no test:
the mean difference must be at least `MIN_DIFFERENCE`, and such results are reported separately. Between methods the
validation split must agree on the sign, because all seeds share one test split.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from paper.experiments import aucs_of
from paper.markdown import mean_sd
from thresher.embeddings.method_registry import registered_embeddings
from thresher.report.frontier import FrontierPoint

MIN_DIFFERENCE = 0.001
"""The smallest difference of test AUC that is reported without a t-test."""
T_QUANTILES = {3: 4.303, 4: 3.182, 5: 2.776}
"""Number of seeds → critical value of Student's t, two-sided at the 5 % level."""
RULE = f"""Methods are compared seed by seed. One is *ahead* where it is so with every seed, on average by more than
chance would make of seeds that vary as these do (Student's t, one case in twenty), and on average on the validation
split, too, which has other rows (not asked where one of the two learned its sizes on those rows: DartsEmb, AutoDim,
DNIS, NIS; nor of two ways of one method). *Level* are all others: the seeds do not tell them apart, and with three of
them a difference of 0.002 may go untold. Of many comparisons one in forty would be *ahead* by chance. What rests on one
seed or two has no such test: it is told apart, and counts where every seed says so and the mean is at least
{MIN_DIFFERENCE}."""


def paired_differences(points: Iterable[FrontierPoint], others: Iterable[FrontierPoint]) -> list[float]:
    """Test AUC of one method's points minus another's, for each seed both have."""
    own, other = ({str(p.seed): p.test_auc for p in side if p.test_auc is not None} for side in (points, others))
    return differences_by_seed(own, other)


def validation_difference(points: Sequence[FrontierPoint], others: Sequence[FrontierPoint]) -> float:
    """Mean validation AUC of one method's points minus another's, over the seeds both have."""
    own, other = ({str(point.seed): point.validation_auc for point in side} for side in (points, others))
    return fmean(differences_by_seed(own, other))


def is_better_method(points: Sequence[FrontierPoint], others: Sequence[FrontierPoint]) -> bool:
    """Whether one method is ahead of another on test, and validation, unless one learned from it, says so, too."""
    learned = any(learns_on_validation(side[0].label) for side in (points, others))
    return is_better(paired_differences(points, others)) and (learned or validation_difference(points, others) > 0)


def learns_on_validation(label: str) -> bool:
    """Whether a method's search trains on the validation rows."""
    method = registered_embeddings().get(label)
    return method is not None and method.embedding.search_algorithm in ("bilevel", "controller")


def differences_by_seed(own: Mapping[str, float], other: Mapping[str, float]) -> list[float]:
    """Seed → AUC of one side minus that of another, for each seed both have."""
    return [own[seed] - other[seed] for seed in sorted(own.keys() & other.keys())]


def signed(differences: Sequence[float]) -> str:
    """Mean difference with its sign, ± standard deviation, and over how many seeds."""
    return mean_sd(differences, sign="+")


def is_better(differences: Sequence[float]) -> bool:
    mean, num_seeds = fmean(differences), len(differences)
    if min(differences) <= 0:
        return False
    if num_seeds < min(T_QUANTILES):
        return mean >= MIN_DIFFERENCE
    return mean >= T_QUANTILES[min(num_seeds, max(T_QUANTILES))] * stdev(differences) / sqrt(num_seeds)


def is_worse(differences: Sequence[float]) -> bool:
    return is_better([-difference for difference in differences])


@dataclass(frozen=True)
class PairedComparison:
    """Two ways of one method at the budgets of the first, paired over seeds.

    Attributes:
        rows: of a table: budget, test AUC of both, the first minus the second.
        differences: budget → those of each seed.
    """

    rows: Sequence[Sequence[str]]
    differences: Mapping[str, list[float]]

    @classmethod
    def of(cls, points: Sequence[FrontierPoint], others: Sequence[FrontierPoint]) -> "PairedComparison":
        """At every budget that `points` have."""
        rows, differences = [], {}
        for budget in dict.fromkeys(str(point.budget) for point in points):
            sides = [[point for point in side if point.budget == budget] for side in (points, others)]
            differences[budget] = paired_differences(*sides)
            rows.append([budget, *(mean_sd(aucs_of(side)) for side in sides), signed(differences[budget])])
        return cls(rows, differences)

    def in_words(self, subject: str) -> str:
        """At which sizes the first way, called `subject`, is ahead, and at which behind."""
        shared = {budget: each for budget, each in self.differences.items() if each}
        ahead = [budget for budget, each in shared.items() if is_better(each)]
        behind = [budget for budget, each in shared.items() if is_worse(each)]
        told = f"{subject} is ahead at {', '.join(ahead) or 'no size'}, behind at {', '.join(behind) or 'none'}."
        return told if shared else "They have no seed in common."
