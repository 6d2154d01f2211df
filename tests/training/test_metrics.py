import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from thresher.errors import ThresherError
from thresher.training.metrics import (
    Metrics,
    auc,
    auc_difference,
    auc_standard_error,
    compute_metrics,
    logloss,
    rare_rows,
)


@st.composite
def rows(draw, weighted=False):
    """Labels of both classes, predictions with many ties, weights some of which are 0."""
    n = draw(st.integers(2, 60))
    labels = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(lambda y: len(set(y)) == 2))
    levels = st.one_of(st.integers(-3, 3).map(float), st.floats(-50, 50, allow_subnormal=False))
    predictions = draw(st.lists(levels, min_size=n, max_size=n))
    weights = draw(st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.5]), min_size=n, max_size=n))
    return np.array(labels), np.array(predictions), np.array(weights)


@given(rows())
def test_auc_is_scikit_learns(data):
    labels, predictions, _ = data
    assert auc(labels, predictions) == pytest.approx(roc_auc_score(labels, predictions), abs=1e-9)


@given(rows())
def test_weighted_auc_is_scikit_learns(data):
    labels, predictions, weights = data
    if weights[labels == 1].sum() == 0 or weights[labels == 0].sum() == 0:
        with pytest.raises(ThresherError, match=r"both classes|above 0"):
            auc(labels, predictions, weights)
    else:
        expected = roc_auc_score(labels, predictions, sample_weight=weights)
        assert auc(labels, predictions, weights) == pytest.approx(expected, abs=1e-9)


@given(rows())
def test_whole_weights_are_repeated_rows(data):
    labels, predictions, weights = data
    times = np.ceil(weights).astype(int)
    if times[labels == 1].sum() and times[labels == 0].sum():
        repeated = auc(np.repeat(labels, times), np.repeat(predictions, times))
        assert auc(labels, predictions, times) == pytest.approx(repeated, abs=1e-12)
        repeated = logloss(np.repeat(labels, times), np.repeat(predictions, times))
        assert logloss(labels, predictions, times) == pytest.approx(repeated)


@pytest.mark.parametrize(("positives", "negatives"), [(60, 240), (200, 50)])
def test_the_standard_error_is_what_samples_of_rows_vary_by(positives, negatives):
    draw = np.random.default_rng(0)
    labels = np.r_[np.ones(positives), np.zeros(negatives)]
    # exponential scores are the case Hanley and McNeil's formula is exact for
    found = [
        auc(labels, np.r_[draw.exponential(3.0, positives), draw.exponential(1.0, negatives)]) for _ in range(1500)
    ]
    assert auc_standard_error(float(np.mean(found)), positives, negatives) == pytest.approx(np.std(found), rel=0.1)


@given(rows())
def test_logloss_is_scikit_learns(data):
    labels, logits, weights = data
    logits = logits / 4  # scikit-learn clips probabilities near 0 and 1
    weights = weights + 0.1
    expected = log_loss(labels, 1 / (1 + np.exp(-logits)), sample_weight=weights)
    assert logloss(labels, logits, weights) == pytest.approx(expected, rel=1e-9)


def test_logloss_of_extreme_logits_stays_exact():
    assert logloss([1, 0], [1000.0, -1000.0]) == 0.0
    assert logloss([1, 0], [-1000.0, 1000.0]) == 1000.0


def test_a_million_float32_rows_with_ties_are_exact():
    rng = np.random.default_rng(0)
    labels = rng.random(1_000_000) < 0.3
    logits = np.round(rng.normal(size=1_000_000) + labels, 3).astype(np.float32)
    assert auc(labels, logits) == pytest.approx(roc_auc_score(labels, logits), abs=1e-9)


def test_one_class_is_an_error():
    with pytest.raises(ThresherError, match="both classes; all 3 rows with a weight have label 1"):
        auc([1, 1, 1], [0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("labels", "predictions", "weights", "message"),
    [
        ([], [], None, "empty"),
        ([0, 1], [0.5], None, "2 labels but 1 predictions"),
        ([0, 2], [0.5, 0.1], None, "0 or 1; found 2"),
        ([0, 1], [0.5, float("nan")], None, "1 of 2 predictions are NaN"),
        ([0, 1], [0.5, 0.1], [1.0], "2 rows but 1 sample weights"),
        ([0, 1], [0.5, 0.1], [1.0, -1.0], "not negative"),
        ([0, 1], [0.5, 0.1], [0.0, 0.0], "at least one must be above 0"),
    ],
)
def test_invalid_inputs_are_refused(labels, predictions, weights, message):
    with pytest.raises(ThresherError, match=message):
        auc(labels, predictions, weights)


def test_rare_rows_are_a_tenth_rounded_up_ties_to_the_earlier_row():
    counts = np.array([9, 5, 1, 5, 5, 9, 9, 9, 9, 9, 9])  # 11 rows: two are rare
    assert rare_rows(counts).tolist() == [1, 2]
    assert rare_rows([4]).tolist() == [0]


def test_metrics_of_a_split():
    rng = np.random.default_rng(1)
    labels, logits, weights = rng.integers(0, 2, 100), rng.normal(size=100), rng.random(100)
    row_counts = rng.integers(0, 50, 100)
    metrics = compute_metrics(labels, logits, weights=weights, row_counts=row_counts)
    rare = rare_rows(row_counts)
    assert metrics.rare_auc == pytest.approx(auc(labels[rare], logits[rare], weights[rare]))
    assert metrics.mean_prediction == pytest.approx(np.average(1 / (1 + np.exp(-logits)), weights=weights))
    assert metrics.mean_label == pytest.approx(np.average(labels, weights=weights))
    assert metrics.num_rows == 100
    assert Metrics.from_json(metrics.to_json()) == metrics


def test_rare_auc_is_absent_without_counts_or_with_one_class():
    labels, logits = np.array([0] * 10 + [1] * 10), np.arange(20.0)
    assert compute_metrics(labels, logits).rare_auc is None
    assert compute_metrics(labels, logits, row_counts=np.arange(20)).rare_auc is None


@pytest.mark.parametrize("weighted", [False, True])
def test_error_of_a_difference_of_aucs_is_that_of_resampled_rows(weighted):
    rng = np.random.default_rng(0)
    labels = rng.random(2_000) < 0.3
    common = labels + rng.normal(size=2_000)  # most of the error of both is common
    first, second = common + 0.3 * rng.normal(size=2_000), common + 0.6 * rng.normal(size=2_000)
    weights = rng.uniform(0.5, 2.0, 2_000) if weighted else None
    difference, error = auc_difference(labels, first, second, weights)
    assert difference == pytest.approx(auc(labels, first, weights) - auc(labels, second, weights))
    drawn = []
    for _ in range(400):
        rows = rng.integers(0, 2_000, 2_000)
        own = None if weights is None else weights[rows]
        drawn.append(auc(labels[rows], first[rows], own) - auc(labels[rows], second[rows], own))
    assert error == pytest.approx(np.std(drawn), rel=0.15)
    assert error < auc_standard_error(0.75, int(labels.sum()), int((~labels).sum()))
