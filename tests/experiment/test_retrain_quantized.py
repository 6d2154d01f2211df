"""Going on in eight or four bits: what is tested is what is stored, and never worse than rounding on validation."""

from dataclasses import replace

import pytest
import torch

import thresher.experiment.retrain
from thresher.compact.embedding import CompactEmbedding, QuantizedEmbedding
from thresher.compact.method_table import make_trainable_
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.encode.row_encoder import RowEncoder
from thresher.experiment.retrain import retrain_quantized, short_training, train_model
from thresher.models.fm import FmConfig
from thresher.models.model_registry import build_model
from thresher.serving.bundle import open_bundle, save_bundle
from thresher.training.distillation import SoftLabels
from thresher.training.epoch import evaluate
from thresher.training.fit import TrainingConfig, fit
from thresher.training.optimizers import OptimizerConfig


@pytest.fixture
def trained(small_table):
    torch.manual_seed(0)
    mask = torch.rand(small_table.schema.num_features, 8) < 0.2
    embedding = CompactEmbedding.from_mask(small_table.schema.field_sizes, mask, torch.randn(mask.shape) * 0.1)
    model = build_model(embedding, FmConfig())
    data = SplitBatches.of(small_table, 256, seed=0)
    train_model(model, data, TrainingConfig(max_epochs=2))
    return model, data


@pytest.mark.parametrize("value_type", ["int8", "int4"])
def test_the_bundle_predicts_what_was_tested(trained, small_table, tmp_path, value_type):
    model, data = trained
    model.embedding.values.data *= 3  # so that rounding costs something
    result = retrain_quantized(model, data, value_type, TrainingConfig(max_epochs=2))
    assert isinstance(model.embedding, QuantizedEmbedding)
    save_bundle(tmp_path / "bundle", model, FmConfig(), RowEncoder.load(small_table.folder))
    bundle = open_bundle(tmp_path / "bundle")
    assert bundle.tables["embedding"].value_type == value_type
    assert evaluate(bundle.model, data.test).auc == pytest.approx(result.test.auc, abs=1e-6)
    assert result.storage_bytes == bundle.tables["embedding"].storage_bytes


def test_training_that_does_harm_is_undone(trained, monkeypatch):
    model, data = trained
    monkeypatch.setattr(type(model), "get_extra_state", lambda self: {"note": "no tensor"}, raising=True)
    monkeypatch.setattr(type(model), "set_extra_state", lambda self, state: None, raising=True)
    rounded = model.embedding.to_table().to_value_type("int8").entries()[1]
    optimizer = OptimizerConfig(learning_rate=3.0)
    wild = TrainingConfig(max_epochs=1, early_stopping_metric="logloss", optimizer=optimizer)
    result = retrain_quantized(model, data, "int8", wild)
    assert result.fit.best_epoch == 0
    assert result.fit.validation.auc == pytest.approx(evaluate(model, data.validation).auc)
    torch.testing.assert_close(model.embedding.used_values().detach(), torch.from_numpy(rounded))


def test_quantized_training_uses_the_same_soft_labels(trained, monkeypatch):
    model, data = trained
    soft_labels = SoftLabels.from_teacher(model, data.train, 0.5)
    given = []
    monkeypatch.setattr(
        thresher.experiment.retrain,
        "fit",
        lambda model, data, config, **more: given.append((data, config)) or fit(model, data, config, **more),
    )
    had = TrainingConfig(max_epochs=1, optimizer=OptimizerConfig(weight_decay=1e-3))
    retrain_quantized(model, data, "int8", short_training(had), soft_labels=soft_labels)
    [(learned, config)] = given
    assert sorted(torch.cat([batch.labels for batch in learned.train.epoch(1)]).tolist()) == sorted(
        soft_labels.labels.tolist()
    )
    assert learned.validation is data.validation
    assert config.optimizer.embedding_weight_decay == pytest.approx(5e-4)


def test_a_short_training_is_the_same_but_for_its_length_and_rate():
    own = TrainingConfig(
        max_epochs=3, early_stopping_metric="logloss", optimizer=OptimizerConfig(learning_rate=0.02, weight_decay=0.1)
    )
    short = short_training(own)
    assert short == replace(own, optimizer=replace(own.optimizer, learning_rate=0.002))
    assert short_training(TrainingConfig()).max_epochs == 5


def test_a_bundles_model_can_be_trained_further(trained, small_table, tmp_path):
    model, data = trained
    save_bundle(tmp_path / "bundle", model, FmConfig(), RowEncoder.load(small_table.folder))
    again = open_bundle(tmp_path / "bundle").model
    assert sorted(make_trainable_(again)) == ["embedding", "linear_term.weights"]
    assert torch.equal(again.embedding.values, model.embedding.values)
    before = again.embedding.values.detach().clone()
    train_model(again, data, TrainingConfig(max_epochs=1))
    assert not torch.equal(again.embedding.values, before)
