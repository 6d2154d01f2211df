"""Budgets such as `60KB bundle`: the written bundle, with keys and first-order weights, is within the budget."""

from dataclasses import replace

import numpy as np
import pytest

from thresher.baselines.hashing import HashConfig
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.data.table import EncodedTable
from thresher.embeddings.pep import PepConfig
from thresher.errors import BudgetError, ConfigError
from thresher.experiment.config import RunConfig
from thresher.experiment.prune import prune
from thresher.models.autoint import AutoIntConfig
from thresher.search.budget import Budget, check_budgets
from thresher.serving.bundle import open_bundle
from thresher.serving.first_order import FIRST_ORDER
from thresher.serving.model_card import loaded_bytes
from thresher.serving.predictor import load_bundle
from thresher.training.fit import TrainingConfig
from thresher.training.metrics import auc

CONFIG = RunConfig(
    effort="fast",
    data=DataConfig(
        source="synthetic",
        synthetic=SyntheticConfig(num_rows=4_000, num_signal_fields=3, num_noise_fields=3, field_size=300, seed=2),
    ),
    embedding=PepConfig(embedding_dim=8),
    training=TrainingConfig(max_epochs=2, batch_size=256),
    budgets=("16KB bundle", "11KB bundle"),
    teacher_share=0.0,
)


@pytest.fixture(scope="module")
def pruned(tmp_path_factory):
    return prune(CONFIG, out=tmp_path_factory.mktemp("runs") / "bundle")


def test_everything_a_prediction_loads_is_within_the_budget(pruned):
    for point in pruned.frontier.points:
        amount, folder = Budget.parse(point.budget).amount, pruned.run.bundle(point.budget)
        assert amount - 800 < loaded_bytes(folder) == point.bundle_bytes <= amount
        bundle = open_bundle(folder)
        assert bundle.num_parameters == point.num_parameters > 50
        assert bundle.searched_bytes == point.storage_bytes
        first_order = bundle.tables[FIRST_ORDER]
        assert first_order.value_type == "int8"
        assert 0 < first_order.num_parameters < bundle.encoder.schema.num_features
    large, small = pruned.frontier.points
    assert large.num_parameters > small.num_parameters
    assert pruned.run.bundle("16KBbundle") == pruned.run.bundle("16KB bundle")


def test_results_are_those_of_the_stored_model(pruned):
    table = EncodedTable.open(pruned.run.encoded)
    for point in pruned.frontier.points:
        predictor = load_bundle(pruned.run.bundle(point.budget))
        for name, expected in (("validation", point.validation_auc), ("test", point.test_auc)):
            split = table.split(name)
            assert auc(np.array(split.labels), predictor.predict_ids(np.array(split.ids))) == pytest.approx(
                expected, abs=1e-6
            )


def test_resumed_runs_keep_their_bundles(pruned):
    before = pruned.run.results.read_bytes()
    point = pruned.run.retrained(Budget.parse("11KB bundle")) / "point.json"
    point.unlink()  # retraining is done, and the bundle is written again
    assert prune(CONFIG, out=pruned.run.folder, resume=True).frontier.points == pruned.frontier.points
    assert len(pruned.run.results.read_bytes()) == pytest.approx(len(before), rel=0.05)


@pytest.mark.parametrize(
    "change",
    [
        {"embedding": PepConfig(embedding_dim=8, first_order=True)},
        {"embedding": HashConfig(embedding_dim=8), "rewind": "initial"},
        {"model": AutoIntConfig(num_layers=1, num_heads=1, attention_dim=4, deep_term=False)},
    ],
    ids=["first-order weights are searched", "rows are shared", "autoint"],
)
def test_other_models_and_methods(change, tmp_path):
    config = replace(CONFIG, budgets=("20KB bundle",), **change)
    [point] = prune(config, out=tmp_path).frontier.points
    assert 12_000 < point.bundle_bytes <= 20_000


def test_a_bundle_without_room_for_a_table_is_refused_before_training(tmp_path):
    with pytest.raises(BudgetError, match=r"budget 2KB bundle is less than the .* bytes of a bundle with one entry"):
        prune(replace(CONFIG, budgets=("2KB bundle",)), out=tmp_path)


def test_the_number_of_first_order_weights_can_be_set(tmp_path):
    config = replace(CONFIG, budgets=("100",), own_first_order=40)
    [point] = prune(config, out=tmp_path / "few").frontier.points
    bundle = open_bundle(tmp_path / "few" / "bundles" / "100")
    assert 0 < bundle.tables[FIRST_ORDER].num_parameters <= 40
    assert set(bundle.searched) == {"embedding"}
    [every] = prune(replace(config, own_first_order=None), out=tmp_path / "all").frontier.points
    assert point.bundle_bytes < 0.7 * every.bundle_bytes


def test_first_order_weights_that_do_not_exist_or_are_searched_are_not_counted(tmp_path):
    with pytest.raises(ConfigError, match="mutually exclusive"):
        replace(CONFIG, own_first_order=4, embedding=PepConfig(first_order=True))
    with pytest.raises(ConfigError, match="no first-order weights"):
        prune(replace(CONFIG, own_first_order=4, model=AutoIntConfig()), out=tmp_path)


def test_only_runs_write_bundles():
    with pytest.raises(BudgetError, match="no bundle is written here"):
        check_budgets([Budget.parse("1MB bundle")], 10_000)
