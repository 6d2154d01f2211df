from thresher.experiment.auc_doubts import drop_doubts


def test_doubts_are_told_where_there_are_any():
    assert "not clearly above 0.5" in drop_doubts(0.01, 0.51, 100, 100)
    assert "below the standard error" in drop_doubts(0.001, 0.8, 100, 100)
    assert drop_doubts(0.1, 0.8, 100, 100) is None
    assert drop_doubts(0.001, 0.8, 100_000, 100_000) is None
