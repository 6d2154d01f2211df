"""Every registered model passes the contract checks with its default settings."""

import pytest

from thresher.models.autoint import AutoIntConfig
from thresher.models.model_registry import RECORDED_SETTINGS, model_config, model_name, registered_models
from thresher.testing import check_model

MODELS = registered_models()
AUTOINT_VARIANTS = [
    AutoIntConfig(attention_dim=8, deep_term=False, linear_term=True),
    AutoIntConfig(attention_dim=8, linear_term=True, residual=False, num_layers=1),
]


@pytest.mark.parametrize("model", MODELS)
def test_model_passes_the_contract_checks(model):
    check_model(MODELS[model].model, model_config(model))


@pytest.mark.parametrize("config", AUTOINT_VARIANTS)
def test_variants_pass_the_contract_checks(config):
    check_model(MODELS["autoint"].model, config)


@pytest.mark.parametrize(("dataset", "model"), RECORDED_SETTINGS)
def test_recorded_settings_build_a_config_of_their_model(dataset, model):
    assert model_name(model_config(model, dataset)) == model
