from thresher.experiment.report import drop_doubts


def test_a_recommendation_within_the_noise_of_validation_has_a_warning():
    assert "not clearly above 0.5" in drop_doubts(0.01, 0.51, 100, 100)
    assert "below the standard error" in drop_doubts(0.001, 0.8, 100, 100)
    assert drop_doubts(0.1, 0.8, 100, 100) is None
    assert drop_doubts(0.001, 0.8, 100_000, 100_000) is None
