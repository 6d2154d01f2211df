"""What readers of results should know beside the numbers, as sentences, and which methods are ahead at a budget."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Literal

from thresher.report.frontier import Frontier, FrontierPoint

ERRORS_OF_A_GAIN = 2.0
"""A gain below this many standard errors is noise: chance exceeds it in one of twenty cases."""
FEW_LABELS = 100
"""With fewer validation rows of a class, the standard error of an AUC is above 0.02."""
TOO_GOOD = 0.99
"""Real clicks are predicted with an AUC of 0.6 to 0.9."""
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""97.5 % quantiles of Student's t for 1, 2, … degrees of freedom."""
TEST_TEXT = (
    "Test: paired t-test at 5 % over the seeds that both methods have, not corrected for the number of methods. "
    "With one seed in common nothing can be said."
)


def remarks(frontier: Frontier) -> list[str]:
    """What the table's columns are measured against, whether embeddings gain anything, and what was not converged."""
    found = []
    if frontier.dense is not None and frontier.dense.num_parameters:
        base = f"Shares are of the dense model's {frontier.dense.num_parameters:,} parameters."
        has_bundles = any(point.bundle_bytes is not None for point in frontier.points)
        found.append(base + (" Bundle bytes: everything that a prediction loads." if has_bundles else ""))
    dense = [] if frontier.dense is None else [frontier.dense]
    for sentence in (embedding_gain([*dense, *frontier.points]), below_floor([*dense, *frontier.points])):
        found += [sentence] if sentence else []
    found += data_doubts(frontier)
    if any(point.still_improving for point in (*dense, *frontier.points)):
        found.append("† still improving when training ended (training.max_epochs, of tickets retraining.max_epochs).")
    return found


def embedding_gain(points: Sequence[FrontierPoint]) -> str | None:
    """A sentence if the best model gains less than the noise over the model without an embedding; None otherwise."""
    best = max(points, key=lambda point: point.validation_auc, default=None)
    if best is None or best.floor_gain is None or best.floor_gain_error is None or is_measurable(best):
        return None
    return (
        f"Embeddings add nothing measurable here: validation AUC of the best model ({best.budget or best.label}) is "
        f"{best.floor_gain:+.4f} from that without an embedding, with a standard error of {best.floor_gain_error:.4f}."
    )


def below_floor(points: Sequence[FrontierPoint]) -> str | None:
    """A sentence that names the models that are measurably worse than the model without an embedding; None if none."""
    worse = [
        f"{point.budget or point.label} ({point.floor_gain:+.4f})"
        for point in points
        if point.floor_gain is not None and point.floor_gain < -ERRORS_OF_A_GAIN * (point.floor_gain_error or 0.0)
    ]
    if not worse:
        return None
    return (
        f"Worse than the model without an embedding, which is also smaller: {', '.join(worse)} of validation AUC. Do "
        "not use these; longer training (effort, training.max_epochs) may help."
    )


def data_doubts(frontier: Frontier) -> list[str]:
    """Doubts about the data: many bad rows, too few rows to measure an AUC, or fields that seem to hold the label."""
    found = []
    if bad_rows := frontier.metadata.get("bad_rows"):
        found.append(str(bad_rows).removeprefix("Warning: "))
    labels = frontier.metadata.get("validation_labels", {})
    if labels and min(labels.values()) < FEW_LABELS:
        found.append(
            f"Validation has only {labels['positive']:,} positive and {labels['negative']:,} negative rows. AUCs of so "
            "few rows differ by chance; choose no size by them."
        )
    if frontier.floor is not None and frontier.floor.validation_auc > TOO_GOOD:
        found.append(
            f"Validation AUC without an embedding is {frontier.floor.validation_auc:.4f}: does a field hold the label, "
            "or what is known only after it? Drop such fields."
        )
    return found


def rival_wins(points: Sequence[FrontierPoint], method: str, rival: str) -> str | None:
    """A sentence if a rival that searches nothing is at least as good as a method at a budget; None otherwise."""
    wins = []
    for budget in dict.fromkeys(point.budget for point in points if point.label == rival and point.budget):
        means = [_mean_test_auc(points, label, budget) for label in (rival, method)]
        if None not in means and means[0] >= means[1]:  # type: ignore[operator]
            wins.append(f"{budget} ({means[0]:.4f} against {means[1]:.4f})")
    if not wins or method == rival:
        return None
    return (
        f"A narrower table of frequent features alone ({rival}), without a search, is at least as good as {method} at "
        f"equal bytes: {', '.join(wins)}."
    )


def _mean_test_auc(points: Sequence[FrontierPoint], label: str, budget: str) -> float | None:
    aucs = [point.test_auc for point in points if (point.label, point.budget) == (label, budget)]
    known = [auc for auc in aucs if auc is not None]
    return fmean(known) if known else None


def is_measurable(point: FrontierPoint) -> bool:
    """Whether a model's gain over the floor is more than noise."""
    return (point.floor_gain or 0.0) > ERRORS_OF_A_GAIN * (point.floor_gain_error or 0.0)


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
