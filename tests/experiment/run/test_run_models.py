"""Pruning of trained models: post-training runs, runs that start from an earlier run or a bundle."""

from dataclasses import replace

import numpy as np
import pytest

from thresher._internal.storage.files import read_json
from thresher.baselines.post_training import PostTrainingConfig
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError
from thresher.experiment.config import RunConfig
from thresher.experiment.effort import RetrainingConfig
from thresher.experiment.prune import prune
from thresher.search.schedule import SearchConfig
from thresher.serving.numpy_predictor import NumpyPredictor
from thresher.serving.predictor import load_bundle
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig

FAST = OptimizerConfig(learning_rate=1e-2)
CONFIG = RunConfig(
    data=DataConfig(
        source="synthetic",
        synthetic=SyntheticConfig(num_rows=4_000, num_signal_fields=3, num_noise_fields=2, field_size=30, seed=2),
    ),
    embedding=PostTrainingConfig(embedding_dim=8),
    search=SearchConfig(optimizer=FAST),
    training=TrainingConfig(max_epochs=3, batch_size=256, optimizer=FAST),
    budgets=("60%", "20%"),
)


@pytest.fixture(scope="module")
def post_trained(tmp_path_factory):
    config = replace(CONFIG, embedding=replace(CONFIG.embedding, placeholder="field-mean"))
    return prune(config, out=tmp_path_factory.mktemp("runs") / "post")


def test_a_post_training_run_trains_only_the_dense_model(post_trained):
    stages = {stage["stage"]: stage for stage in post_trained.frontier.metadata["cost"]["stages"]}
    assert list(stages) == ["no embedding", "dense", "search"]
    assert stages["search"]["epochs"] == 1, "one pass over the training rows"
    num_entries = post_trained.frontier.dense.num_parameters
    assert [point.num_parameters for point in post_trained.frontier.points] == [num_entries * 6 // 10, num_entries // 5]
    assert post_trained.frontier.points[0].validation_auc > 0.5


def test_its_bundle_predicts_the_same_without_torch(post_trained):
    folder = post_trained.run.bundle("60%")
    predictor = load_bundle(folder)
    rows = [{field.column: str(value) for field in predictor.schema.fields} for value in range(20)]
    with_torch = [predictor.predict(row) for row in rows]
    np.testing.assert_allclose(NumpyPredictor.load(folder).predict(rows), with_torch, rtol=1e-4)
    assert len({round(value, 6) for value in with_torch}) > 1


def test_a_run_starts_from_the_model_of_another_run_or_of_a_bundle(post_trained, tmp_path):
    dense = post_trained.frontier.dense
    quick = replace(
        CONFIG,
        embedding=PepConfig(embedding_dim=8),
        search=SearchConfig(plan_epochs=0.5, clock_steps=2, optimizer=FAST),
        retraining=RetrainingConfig(max_epochs=1),
        teacher_share=0.0,
        budgets=("20%",),
    )
    from_run = prune(replace(quick, start_from=str(post_trained.run.folder)), out=tmp_path / "run")
    assert from_run.frontier.dense.validation_auc == dense.validation_auc
    assert "dense" not in {stage["stage"] for stage in from_run.frontier.metadata["cost"]["stages"]}
    bundle = post_trained.run.bundle("60%")
    from_bundle = prune(replace(quick, start_from=str(bundle)), out=tmp_path / "bundle")
    pruned = read_json(bundle / "bundle.json")["metadata"]["validation_auc"]
    assert from_bundle.frontier.dense.validation_auc == pytest.approx(pruned, abs=1e-6)


def test_another_model_or_other_vocabularies_are_refused(post_trained, tmp_path):
    start = str(post_trained.run.folder)
    wider = replace(CONFIG, start_from=start, embedding=PostTrainingConfig(embedding_dim=4))
    with pytest.raises(ConfigError, match="does not fit the settings of this run"):
        prune(wider, out=tmp_path / "wider")
    synthetic = replace(CONFIG.data.synthetic, field_size=20)
    other = replace(CONFIG, start_from=start, data=replace(CONFIG.data, synthetic=synthetic))
    with pytest.raises(ConfigError, match="other vocabularies"):
        prune(other, out=tmp_path / "other")
    with pytest.raises(ConfigError, match="starts from initial weights"):
        replace(CONFIG, start_from=start, embedding=PepConfig(), effort="paper")
    with pytest.raises(ConfigError, match="neither a run nor a bundle"):
        prune(replace(CONFIG, start_from=str(tmp_path)), out=tmp_path / "nothing")


def test_scores_can_start_a_short_fine_tuning(post_trained, tmp_path):
    tuned = prune(
        replace(CONFIG, start_from=str(post_trained.run.folder), retraining=RetrainingConfig(max_epochs=2)),
        out=tmp_path / "tuned",
    )
    epochs = {stage["stage"]: stage["epochs"] for stage in tuned.frontier.metadata["cost"]["stages"]}
    assert epochs["retrain 20%"] in (1, 2)
