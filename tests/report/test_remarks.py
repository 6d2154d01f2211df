from dataclasses import replace

from thresher.report.frontier import Frontier, FrontierPoint
from thresher.report.remarks import remarks

DENSE = FrontierPoint(
    label="dense",
    num_parameters=1_000,
    storage_bytes=4_000,
    validation_auc=0.7,
    validation_logloss=0.4,
    floor_gain=-0.004,
    floor_gain_error=0.001,
)
PRUNED = replace(DENSE, label="pep", budget="5%", num_parameters=50, validation_auc=0.71, floor_gain=0.006)


def test_a_gain_within_the_noise_is_said_plainly():
    noise = replace(PRUNED, floor_gain_error=0.0031)
    found = remarks(Frontier(points=(noise,), dense=DENSE))
    assert found[-1] == (
        "Embeddings add nothing measurable here: validation AUC of the best model (5%) is +0.0060 from that without "
        "an embedding, with a standard error of 0.0031."
    )


def test_the_best_model_decides_whether_embeddings_add_anything():
    found = remarks(Frontier(points=(PRUNED,), dense=DENSE))  # the dense model alone is below the floor
    assert not any("nothing measurable" in remark for remark in found)


def test_shares_have_a_stated_base_and_unfinished_trainings_are_named():
    unfinished = replace(PRUNED, bundle_bytes=9_000, still_improving=True)
    found = remarks(Frontier(points=(unfinished,), dense=DENSE))
    assert found[0] == (
        "Shares are of the dense model's 1,000 parameters. Bundle bytes: everything that a prediction loads."
    )
    assert "training.max_epochs" in found[-1]
