import numpy as np
import pytest

from thresher.cli.auc_doubts import auc_standard_error, drop_doubts
from thresher.training.metrics import auc


@pytest.mark.parametrize(("positives", "negatives"), [(60, 240), (200, 50)])
def test_the_standard_error_is_what_samples_of_rows_vary_by(positives, negatives):
    draw = np.random.default_rng(0)
    labels = np.r_[np.ones(positives), np.zeros(negatives)]
    # exponential scores are the case Hanley and McNeil's formula is exact for
    found = [
        auc(labels, np.r_[draw.exponential(3.0, positives), draw.exponential(1.0, negatives)]) for _ in range(1500)
    ]
    assert auc_standard_error(float(np.mean(found)), positives, negatives) == pytest.approx(np.std(found), rel=0.1)


def test_doubts_are_told_where_there_are_any():
    assert "not clearly above 0.5" in drop_doubts(0.01, 0.51, 100, 100)
    assert "below the standard error" in drop_doubts(0.001, 0.8, 100, 100)
    assert drop_doubts(0.1, 0.8, 100, 100) is None
    assert drop_doubts(0.001, 0.8, 100_000, 100_000) is None
