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
RULE = f"""Methods are compared seed by seed on test AUC. A method is *better* (*worse*) if all seeds agree on the sign
of the difference, a paired t-test rejects equality at the 5 % level (two-sided), and the mean difference on the
validation split has the same sign. The last condition is dropped if one of the two methods learns its sizes on the
validation rows (DartsEmb, AutoDim, DNIS, NIS), and for two variants of one method. Otherwise there is *no significant
difference*; with three seeds, a true difference of 0.002 can stay undetected. By chance, about one in forty comparisons
of equal methods would be called better. Results with one or two seeds have no test: they are listed separately and
count if every seed agrees and the mean difference is at least {MIN_DIFFERENCE}."""


def paired_differences(points: Iterable[FrontierPoint], others: Iterable[FrontierPoint]) -> list[float]:
    """Return test AUC of `points` minus `others` for each common seed."""
    own, other = ({str(p.seed): p.test_auc for p in side if p.test_auc is not None} for side in (points, others))
    return differences_by_seed(own, other)


def validation_difference(points: Sequence[FrontierPoint], others: Sequence[FrontierPoint]) -> float:
    """Return the mean validation AUC of `points` minus `others` over the common seeds."""
    own, other = ({str(point.seed): point.validation_auc for point in side} for side in (points, others))
    return fmean(differences_by_seed(own, other))


def is_better_method(points: Sequence[FrontierPoint], others: Sequence[FrontierPoint]) -> bool:
    """Return whether a method is better on test and, unless one of the two trains on it, on validation."""
    learned = any(learns_on_validation(side[0].label) for side in (points, others))
    return is_better(paired_differences(points, others)) and (learned or validation_difference(points, others) > 0)


def learns_on_validation(label: str) -> bool:
    """Return whether a method's search trains on the validation rows."""
    method = registered_embeddings().get(label)
    return method is not None and method.embedding.search_algorithm in ("bilevel", "controller")


def differences_by_seed(own: Mapping[str, float], other: Mapping[str, float]) -> list[float]:
    """Return `own` minus `other` for each common seed."""
    return [own[seed] - other[seed] for seed in sorted(own.keys() & other.keys())]


def signed(differences: Sequence[float]) -> str:
    """Format the mean difference with its sign, ± standard deviation, and the number of seeds."""
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
    """Two variants of one method at the budgets of the first, paired by seed.

    Attributes:
        rows: table rows: budget, test AUC of both variants, first minus second.
        differences: budget → difference of each seed.
    """

    rows: Sequence[Sequence[str]]
    differences: Mapping[str, list[float]]

    @classmethod
    def of(cls, points: Sequence[FrontierPoint], others: Sequence[FrontierPoint]) -> "PairedComparison":
        """Compare at every budget of `points`."""
        rows, differences = [], {}
        for budget in dict.fromkeys(str(point.budget) for point in points):
            sides = [[point for point in side if point.budget == budget] for side in (points, others)]
            differences[budget] = paired_differences(*sides)
            rows.append([budget, *(mean_sd(aucs_of(side)) for side in sides), signed(differences[budget])])
        return cls(rows, differences)

    def summary(self, subject: str) -> str:
        """State at which sizes the first variant, called `subject`, is better or worse."""
        shared = {budget: each for budget, each in self.differences.items() if each}
        better = [budget for budget, each in shared.items() if is_better(each)]
        worse = [budget for budget, each in shared.items() if is_worse(each)]
        text = f"{subject} is better at {', '.join(better) or 'no size'} and worse at {', '.join(worse) or 'no size'}."
        return text if shared else "The two variants have no seed in common."
