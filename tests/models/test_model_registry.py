from dataclasses import dataclass

import pytest
import torch

from thresher.embeddings.uniform import UniformConfig, UniformEmbedding
from thresher.errors import ConfigError
from thresher.models import model_registry as registry
from thresher.models.autoint import AutoInt, AutoIntConfig
from thresher.models.base import CtrModel, ModelConfig
from thresher.models.fm import DeepFmConfig, Fm, FmConfig, LogisticRegression, LogisticRegressionConfig
from thresher.models.model_registry import model_config


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


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown model 'deepfn'; did you mean 'deepfm'\? Known: autoint, deepfm"):
        registry.model_config("deepfn")


def test_an_unregistered_config_is_rejected():
    @dataclass(frozen=True, kw_only=True)
    class Unregistered(ModelConfig):
        pass

    with pytest.raises(ConfigError, match="Unregistered"):
        registry.model_name(Unregistered())


def test_registering_a_model_and_a_name_in_use(monkeypatch):
    monkeypatch.setattr(registry._registry, "_entries", dict(registry.registered_models()))

    @dataclass(frozen=True, kw_only=True)
    class CustomConfig(ModelConfig):
        scale: float = 2.0

    @registry.register_model("custom", CustomConfig)
    class Custom(CtrModel):
        def __init__(self, embedding, config, *, num_dense=0):
            super().__init__(embedding)
            self.scale = config.scale

        def forward(self, ids, dense=None, bags=()):
            return self.scale * self.vectors(ids, bags).sum((1, 2))

    model = registry.build_model(embedding(), registry.model_config("custom"))
    ids = torch.tensor([[0, 3]])
    torch.testing.assert_close(model(ids), 2 * model.embedding(ids).sum((1, 2)))
    with pytest.raises(ConfigError, match=r"'custom' is already registered by .*Custom"):
        registry.register_model("custom", CustomConfig)(Fm)


def test_a_plain_module_is_refused_with_everything_it_lacks():
    class Settings:
        scale = 1.0

    class Plain(torch.nn.Module):
        def __init__(self, embedding, config):
            super().__init__()

        def forward(self, ids):
            return ids

    with pytest.raises(ConfigError) as refused:
        registry.register_model("plain", Settings)(Plain)
    for part in (
        "model 'plain' cannot be registered (",
        "it is not a subclass of thresher.CtrModel",
        "__init__ takes (embedding, config) instead of (embedding, config, *, num_dense=0)",
        "forward takes (ids) instead of (ids, dense=None, bags=())",
        "Settings is not a subclass of thresher.ModelConfig",
    ):
        assert part in str(refused.value)
    assert "plain" not in registry.registered_models()


def test_a_model_without_forward_and_a_config_without_defaults_or_decorator_are_refused():
    class Undecorated(ModelConfig):
        scale: float = 1.0

    @dataclass(frozen=True, kw_only=True)
    class NoDefault(ModelConfig):
        scale: float

    class NoForward(CtrModel):
        def __init__(self, embedding, config, *, num_dense=0):
            super().__init__(embedding)

    with pytest.raises(ConfigError, match=r"it has no forward\(ids.*Undecorated is not decorated with @dataclass"):
        registry.register_model("mine", Undecorated)(NoForward)
    with pytest.raises(ConfigError, match="NoDefault has no default for scale"):
        registry.register_model("mine", NoDefault)(NoForward)


def test_two_models_cannot_share_a_config_class():
    """The config of a run decides its model, so with a shared class one model would be trained instead of the other."""
    with pytest.raises(ConfigError, match="FmConfig belongs to model 'fm', and each needs its own"):
        registry.register_model("mine", FmConfig)(Fm)


def test_a_class_defined_again_replaces_the_first(monkeypatch):
    """As when a cell of a notebook is run twice."""
    monkeypatch.setattr(registry._registry, "_entries", dict(registry.registered_models()))

    def define():
        @dataclass(frozen=True, kw_only=True)
        class AgainConfig(ModelConfig):
            pass

        @registry.register_model("again", AgainConfig)
        class Again(Fm):
            pass

        return Again

    define()
    second = define()
    assert registry.registered_models()["again"].model is second


def test_recorded_settings_per_data_set():
    assert model_config("deepfm", "movielens-1m").hidden_sizes == (100, 100)
    assert model_config("deepfm", "criteo").hidden_sizes == (400, 400, 400)
    assert model_config("autoint", "movielens-1m").attention_dropout == 0.4
    assert model_config("autoint", "avazu").attention_dropout == 0.0
    assert model_config("autoint", "my own") == AutoIntConfig()
    assert model_config("fm", "criteo") == FmConfig()


def test_parameter_counts():
    model = Fm(embedding(dim=4), FmConfig(), num_dense=2)
    assert model.num_parameters() == 7 * 4
    assert model.num_total_parameters() == 7 * 4 + 7 + 1 + 2


def test_logistic_regression_has_no_embedding():
    model = LogisticRegression(embedding(), LogisticRegressionConfig())
    assert not model.uses_embedding
    assert model.embedding is None
    assert (model.num_parameters(), model.num_total_parameters()) == (0, 7 + 1)
    assert set(model.state_dict()) == {"linear_term.weights.weight", "linear_term.bias"}


@pytest.mark.parametrize("wrong", [{"num_heads": 3}, {"num_layers": 0}, {"attention_dropout": 1.0}])
def test_autoint_rejects_invalid_settings(wrong):
    with pytest.raises(ConfigError):
        AutoIntConfig(attention_dim=8, **wrong)


def test_autoint_without_deep_or_linear_term_rejects_dense_inputs():
    with pytest.raises(ConfigError, match="needs deep_term or linear_term"):
        AutoInt(embedding(), AutoIntConfig(deep_term=False), num_dense=1)
