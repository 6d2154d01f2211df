"""Every registered method goes the whole path: raw rows, tickets, retraining, a bundle that predicts the same."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from thresher.data.config import DataConfig, SyntheticConfig
from thresher.data.encode.sources import build_source
from thresher.data.table import EncodedTable
from thresher.embeddings.method_registry import registered_embeddings
from thresher.experiment.config import RunConfig
from thresher.experiment.prune import prune
from thresher.models.fm import DeepFmConfig
from thresher.search.schedule import SearchConfig
from thresher.serving.predictor import load_bundle
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig

pytestmark = pytest.mark.usefixtures("without_pictures")

FAST = OptimizerConfig(learning_rate=1e-2)
SMALLER = {"mgqe": {"num_centroids": 16, "num_rare_centroids": 4}}  # what does not fit a table of 500 rows
CONFIG = RunConfig(
    data=DataConfig(
        source="synthetic",
        synthetic=SyntheticConfig(num_rows=3_000, num_signal_fields=2, num_noise_fields=2, field_size=60, seed=2),
    ),
    model=DeepFmConfig(hidden_sizes=(8,)),
    search=SearchConfig(warmup_epochs=1, plan_epochs=1, max_epochs=1, clock_steps=2, optimizer=FAST),
    training=TrainingConfig(max_epochs=1, batch_size=256, patience=1, optimizer=FAST),
    budgets=("60%", "3KB"),
)


@pytest.mark.parametrize("method", registered_embeddings())
def test_from_rows_to_a_bundle_that_predicts(method, tmp_path):
    config = replace(registered_embeddings()[method].config(), embedding_dim=8, **SMALLER.get(method, {}))
    result = prune(replace(CONFIG, embedding=config), out=tmp_path / "run")
    run, points = result.run, {point.budget: point for point in result.frontier.points}
    num_entries = EncodedTable.open(run.encoded).schema.num_features * 8
    assert points["60%"].num_parameters <= 0.6 * num_entries
    assert points["3KB"].storage_bytes <= 3_000
    for budget, point in points.items():
        predictor = load_bundle(run.bundle(budget))
        embedding = predictor.bundle.tables["embedding"]
        assert embedding.num_parameters == point.num_parameters
        assert embedding.storage_bytes == point.storage_bytes
        test = EncodedTable.open(run.encoded).split("test")
        probabilities = predictor.predict_ids(np.array(test.ids))
        labels = np.array(test.labels)
        logloss = -np.mean(np.where(labels == 1, np.log(probabilities), np.log1p(-probabilities)))
        assert logloss == pytest.approx(point.test_logloss, abs=1e-4)  # the very model that was tested
    row = build_source(CONFIG.data).frame().row(0, named=True)
    assert 0 < predictor.predict(row) < 1
    assert 0 < predictor.predict(dict.fromkeys(row, "never seen")) < 1


def test_the_same_seed_gives_the_same_ticket(tmp_path):
    """Searches draw from generators of their own: nothing that ran before changes what they find."""
    config = replace(CONFIG, embedding=registered_embeddings()["autodim"].config(), budgets=("60%",))
    first = prune(config, out=tmp_path / "one")
    torch.rand(17)
    second = prune(config, out=tmp_path / "two")
    assert first.frontier.points == second.frontier.points
