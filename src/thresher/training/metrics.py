"""Metrics of a split, in numpy: AUC, logloss, calibration, and AUC on the rows with rare features."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thresher.errors import ThresherError

RARE_SHARE = 10  # one row in ten counts as rare


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Metrics of one split; all means are weighted by the sample weights."""

    auc: float
    logloss: float
    mean_prediction: float  # mean probability; compared with `mean_label` it shows the calibration
    mean_label: float
    rare_auc: float | None  # over `rare_rows`; None if they are all of one class or no counts were given
    num_rows: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Metrics":
        return cls(**values)


def auc(labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Area under the ROC curve: the share of (positive, negative) pairs ranked correctly; a tie counts half.

    Predictions are logits or probabilities. The weight of a pair is the product of its rows' weights.
    """
    positive, scores, row_weights = _checked(labels, predictions, weights)
    value = _auc(positive, scores, row_weights)
    if value is None:
        label = int(positive.any())
        raise ThresherError(f"AUC needs rows of both classes; all {len(scores)} rows with a weight have label {label}")
    return value


def auc_standard_error(auc: float, num_positive: int, num_negative: int) -> float:
    """Standard error of an AUC over samples of rows (Hanley & McNeil, 1982).

    >>> round(auc_standard_error(0.75, 100, 100), 4)
    0.0344
    """
    two_positives = auc / (2 - auc)  # both of two positives ranked above one negative
    two_negatives = 2 * auc * auc / (1 + auc)
    spread = auc * (1 - auc)
    spread += (num_positive - 1) * (two_positives - auc * auc) + (num_negative - 1) * (two_negatives - auc * auc)
    return sqrt(max(spread, 0.0) / (num_positive * num_negative))


def standard_error(metrics: Metrics) -> float:
    """Standard error of the AUC of a split."""
    num_positive = round(metrics.mean_label * metrics.num_rows)
    return auc_standard_error(metrics.auc, num_positive, metrics.num_rows - num_positive)


def auc_difference(
    labels: ArrayLike, predictions: ArrayLike, others: ArrayLike, weights: ArrayLike | None = None
) -> tuple[float, float]:
    """AUC of `predictions` minus that of `others` on the same rows, and its standard error (DeLong et al., 1988).

    Much of the error of two AUCs is common to both, so this one is smaller than `auc_standard_error`.
    """
    positive, scores, row_weights = _checked(labels, predictions, weights)
    _, other_scores, _ = _checked(labels, others, weights)
    auc(positive, scores, row_weights)  # raises if there is one class only
    weights_of = np.ones(len(positive)) if row_weights is None else row_weights
    shares = _shares_ranked_right(positive, scores, weights_of)
    other_shares = _shares_ranked_right(positive, other_scores, weights_of)
    difference, variance = 0.0, 0.0
    for rows in (positive, ~positive):
        one, row_weight = shares[rows] - other_shares[rows], weights_of[rows]
        mean = np.average(one, weights=row_weight)
        difference = float(mean)  # the mean over either class is the difference
        variance += float((row_weight**2) @ (one - mean) ** 2) / float(row_weight.sum()) ** 2
    return difference, sqrt(variance)


def _shares_ranked_right(
    positive: NDArray[np.bool_], scores: NDArray[Any], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """For each row, the share of the other class's rows that it is ranked correctly against; a tie counts half."""
    shares = np.empty(len(scores))
    for rows, sign in ((positive, 1.0), (~positive, -1.0)):
        others = sign * scores[~rows]
        order = np.argsort(others)
        below = np.concatenate(([0.0], np.cumsum(weights[~rows][order])))
        own, others = sign * scores[rows], others[order]
        wins = below[np.searchsorted(others, own, "left")] + below[np.searchsorted(others, own, "right")]
        shares[rows] = wins / (2 * below[-1])
    return shares


def logloss(labels: ArrayLike, logits: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Mean binary cross-entropy in nats, computed from logits: probabilities are not rounded to 0 or 1."""
    positive, scores, row_weights = _checked(labels, logits, weights)
    z = scores.astype(np.float64)
    losses = np.maximum(z, 0.0) - z * positive + np.log1p(np.exp(-np.abs(z)))
    return float(np.average(losses, weights=row_weights))


def rare_rows(row_counts: ArrayLike) -> NDArray[np.int64]:
    """Row numbers of the tenth with the lowest counts (of a row's rarest feature in training); ties: earlier rows."""
    counts = np.asarray(row_counts)
    num_rare = -(-len(counts) // RARE_SHARE)
    return np.sort(np.argsort(counts, kind="stable")[:num_rare]).astype(np.int64)


def compute_metrics(
    labels: ArrayLike, logits: ArrayLike, *, weights: ArrayLike | None = None, row_counts: ArrayLike | None = None
) -> Metrics:
    """All metrics of a split from its labels and logits; `row_counts` as in `rare_rows`."""
    positive, scores, row_weights = _checked(labels, logits, weights)
    rare_auc = None
    if row_counts is not None:
        rare = rare_rows(row_counts)
        rare_auc = _auc(positive[rare], scores[rare], None if row_weights is None else row_weights[rare])
    probabilities = 0.5 * (1.0 + np.tanh(0.5 * scores.astype(np.float64)))
    return Metrics(
        auc=auc(positive, scores, row_weights),
        logloss=logloss(positive, scores, row_weights),
        mean_prediction=float(np.average(probabilities, weights=row_weights)),
        mean_label=float(np.average(positive, weights=row_weights)),
        rare_auc=rare_auc,
        num_rows=len(scores),
    )


def _auc(positive: NDArray[np.bool_], scores: NDArray[Any], weights: NDArray[np.float64] | None) -> float | None:
    """AUC by ranks; None if one class is missing. Sorting both classes separately is faster than one argsort."""
    if weights is None:
        positives, negatives = np.sort(scores[positive]), np.sort(scores[~positive])
        if not len(positives) or not len(negatives):
            return None
        # Twice the number of (positive, negative) pairs in the right order, a tie counting half: exact in int64.
        twice = int(np.searchsorted(negatives, positives, "left").sum(dtype=np.int64))
        twice += int(np.searchsorted(negatives, positives, "right").sum(dtype=np.int64))
        return twice / (2 * len(positives) * len(negatives))
    up, down = np.argsort(scores[positive]), np.argsort(scores[~positive])
    positives, negatives = scores[positive][up], scores[~positive][down]
    positive_weights = weights[positive][up]
    below = np.concatenate(([0.0], np.cumsum(weights[~positive][down])))  # weight of the first k negatives
    total = positive_weights.sum() * below[-1]
    if total == 0.0:
        return None
    wins = below[np.searchsorted(negatives, positives, "left")] + below[np.searchsorted(negatives, positives, "right")]
    return float(positive_weights @ wins / (2.0 * total))


def _checked(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None
) -> tuple[NDArray[np.bool_], NDArray[Any], NDArray[np.float64] | None]:
    """The inputs as flat arrays: labels as bool, predictions in their own precision, weights in float64."""
    truth, scores = np.asarray(labels).reshape(-1), np.asarray(predictions).reshape(-1)
    if len(truth) != len(scores):
        raise ThresherError(f"{len(truth)} labels but {len(scores)} predictions; there must be one of each per row")
    if not len(truth):
        raise ThresherError("metrics need at least one row; the split is empty")
    positive = truth.astype(bool)
    if not np.array_equal(positive, truth):
        raise ThresherError(f"labels must be 0 or 1; found {truth[positive != truth][0]}")
    if not np.isfinite(scores).all():
        bad = f"{int((~np.isfinite(scores)).sum())} of {len(scores)} predictions are NaN or infinite"
        raise ThresherError(f"{bad}: the model has diverged. Lower the learning rate, or check the dense columns")
    if weights is None:
        return positive, scores, None
    row_weights = np.asarray(weights, dtype=np.float64).reshape(-1)
    if len(row_weights) != len(truth):
        raise ThresherError(f"{len(truth)} rows but {len(row_weights)} sample weights; there must be one per row")
    if not np.isfinite(row_weights).all() or (row_weights < 0).any() or not row_weights.any():
        raise ThresherError("sample weights must be finite and not negative, and at least one must be above 0")
    return positive, scores, row_weights
