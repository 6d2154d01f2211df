from dataclasses import dataclass

import pytest
import torch

from thresher.embeddings.uniform import UniformConfig, UniformEmbedding
from thresher.errors import ConfigError
from thresher.models import model_registry as registry
from thresher.models.autoint import AutoInt, AutoIntConfig
from thresher.models.base import CtrModel, ModelConfig
from thresher.models.deepfm import DeepFmConfig
from thresher.models.fm import Fm, FmConfig
from thresher.models.lr import LogisticRegression, LogisticRegressionConfig
from thresher.models.recorded_settings import recorded_model_config


def embedding(dim=4):
    return UniformEmbedding([3, 4], UniformConfig(embedding_dim=dim))


def test_the_paper_s_models_are_registered():
    assert {"lr", "fm", "deepfm", "autoint"} <= set(registry.registered_models())


def test_config_variants_are_the_registered_configs():
    assert ModelConfig.config_tag == "name"
    assert ModelConfig.config_variants()["deepfm"] is DeepFmConfig


@pytest.mark.parametrize("config", [LogisticRegressionConfig(), FmConfig(), DeepFmConfig(), AutoIntConfig()])
def test_build_model_by_config(config):
    model = registry.build_model(embedding(), config)
    assert type(model) is registry.registered_models()[registry.model_name(config)].model
    assert model(torch.tensor([[0, 3], [1, 6]])).shape == (2,)


def test_unknown_name_says_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown model 'deepfn'; did you mean 'deepfm'\? Known: autoint, deepfm"):
        registry.model_config("deepfn")


def test_unregistered_config_is_refused():
    @dataclass(frozen=True, kw_only=True)
    class Stranger(ModelConfig):
        pass

    with pytest.raises(ConfigError, match="Stranger"):
        registry.model_name(Stranger())


def test_a_third_party_registers_and_cannot_take_a_taken_name(monkeypatch):
    monkeypatch.setattr(registry._registry, "_entries", dict(registry.registered_models()))

    @dataclass(frozen=True, kw_only=True)
    class MineConfig(ModelConfig):
        scale: float = 2.0

    @registry.register_model("mine", MineConfig)
    class Mine(CtrModel):
        def __init__(self, embedding, config, *, num_dense=0):
            super().__init__(embedding)
            self.scale = config.scale

        def forward(self, ids, dense=None, bags=()):
            return self.scale * self.vectors(ids, bags).sum((1, 2))

    model = registry.build_model(embedding(), registry.model_config("mine"))
    ids = torch.tensor([[0, 3]])
    torch.testing.assert_close(model(ids), 2 * model.embedding(ids).sum((1, 2)))
    with pytest.raises(ConfigError, match=r"'mine' is already registered by .*Mine"):
        registry.register_model("mine", MineConfig)(Fm)


def test_recorded_settings_per_data_set():
    assert recorded_model_config("deepfm", "movielens-1m").hidden_sizes == (100, 100)
    assert recorded_model_config("deepfm", "criteo").hidden_sizes == (400, 400, 400)
    assert recorded_model_config("autoint", "movielens-1m").attention_dropout == 0.4
    assert recorded_model_config("autoint", "avazu").attention_dropout == 0.0
    assert recorded_model_config("autoint", "my own") == AutoIntConfig()
    assert recorded_model_config("fm", "criteo") == FmConfig()


def test_sizes_count_the_embedding_as_it_counts_itself():
    model = Fm(embedding(dim=4), FmConfig(), num_dense=2)
    assert model.num_parameters() == 7 * 4
    assert model.num_total_parameters() == 7 * 4 + 7 + 1 + 2


def test_logistic_regression_drops_the_embedding():
    model = LogisticRegression(embedding(), LogisticRegressionConfig())
    assert not model.uses_embedding
    assert model.embedding is None
    assert (model.num_parameters(), model.num_total_parameters()) == (0, 7 + 1)
    assert set(model.state_dict()) == {"linear_term.weights.weight", "linear_term.bias"}


@pytest.mark.parametrize("wrong", [{"num_heads": 3}, {"num_layers": 0}, {"attention_dropout": 1.0}])
def test_autoint_refuses_impossible_settings(wrong):
    with pytest.raises(ConfigError):
        AutoIntConfig(attention_dim=8, **wrong)


def test_autoint_without_a_place_for_dense_inputs_says_so():
    with pytest.raises(ConfigError, match="deep or linear term"):
        AutoInt(embedding(), AutoIntConfig(deep_term=False), num_dense=1)
