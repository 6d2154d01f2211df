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
    assert found[1] == (
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


def test_models_below_the_one_without_an_embedding_are_named():
    worse, alike = replace(PRUNED, floor_gain=-0.0041), replace(PRUNED, budget="1%", floor_gain=-0.001)
    worse, alike = (replace(point, floor_gain_error=0.001) for point in (worse, alike))
    sentences = remarks(Frontier(points=(worse, alike), dense=replace(DENSE, floor_gain=0.01)))
    (found,) = [sentence for sentence in sentences if sentence.startswith("Worse than")]
    assert "5% (-0.0041) of validation AUC" in found
    assert "1%" not in found


def test_few_validation_rows_and_an_auc_too_good_to_be_true_are_doubts():
    few = {"validation_labels": {"positive": 1, "negative": 2}}
    leak = replace(DENSE, validation_auc=0.995)
    sentences = " ".join(remarks(Frontier(points=(PRUNED,), dense=DENSE, floor=leak, metadata=few)))
    assert "only 1 positive and 2 negative rows" in sentences
    assert "without an embedding is 0.9950: does a field hold the label" in sentences
    enough = {"validation_labels": {"positive": 100, "negative": 2000}}
    assert "negative rows" not in " ".join(remarks(Frontier(points=(PRUNED,), dense=DENSE, metadata=enough)))
