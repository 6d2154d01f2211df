"""Every registered model keeps the contract, with its default settings and with those recorded for data sets."""

import pytest

from thresher.models.autoint import AutoIntConfig
from thresher.models.model_registry import model_config, model_name, registered_models
from thresher.models.recorded_settings import RECORDED_SETTINGS
from thresher.testing import check_model

MODELS = registered_models()
AUTOINT_VARIANTS = [
    AutoIntConfig(attention_dim=8, deep_term=False, linear_term=True),
    AutoIntConfig(attention_dim=8, linear_term=True, residual=False, num_layers=1),
]


@pytest.mark.parametrize("model", MODELS)
def test_model_keeps_the_contract(model):
    check_model(MODELS[model].model, model_config(model))


@pytest.mark.parametrize("config", AUTOINT_VARIANTS)
def test_variants_keep_the_contract(config):
    check_model(MODELS["autoint"].model, config)


@pytest.mark.parametrize(("dataset", "model"), RECORDED_SETTINGS)
def test_recorded_settings_are_of_the_model_they_are_recorded_for(dataset, model):
    assert model_name(RECORDED_SETTINGS[dataset, model]) == model
