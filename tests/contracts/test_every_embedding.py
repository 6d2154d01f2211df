"""Every registered method keeps the contract, and every method trains, saves, loads and predicts under every model."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load, save

from thresher.embeddings.method_registry import build_embedding, registered_embeddings
from thresher.models.model_registry import build_model, registered_models
from thresher.testing import FIELD_SIZES, check_embedding, toy_batch
from thresher.training.optimizers import OptimizerConfig, build_optimizer

METHODS = registered_embeddings()
MODELS = registered_models()


def small(method):
    return replace(METHODS[method].config(), embedding_dim=8)


@pytest.mark.parametrize("method", METHODS)
def test_method_passes_the_contract_checks(method):
    check_embedding(METHODS[method].embedding, small(method))


@pytest.mark.parametrize("num_dense", [0, 2])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_under_every_model_trains_saves_loads_and_predicts_alike(method, model, num_dense):
    batch = toy_batch()
    inputs = (batch.ids, torch.ones(len(batch.ids), num_dense)) if num_dense else (batch.ids,)

    def new(seed):
        torch.manual_seed(seed)
        embedding = build_embedding(FIELD_SIZES, small(method), feature_counts=batch.feature_counts)
        return build_model(embedding, MODELS[model].config(), num_dense=num_dense)

    trained = new(0)
    optimizer = build_optimizer(trained, OptimizerConfig(learning_rate=0.01))
    torch.nn.functional.binary_cross_entropy_with_logits(trained(*inputs), batch.labels).backward()
    optimizer.step()
    stored = save({name: value.contiguous() for name, value in trained.state_dict().items()})
    loaded = new(1)
    loaded.load_state_dict(load(stored))
    assert torch.equal(loaded.eval()(*inputs), trained.eval()(*inputs))
    assert loaded.num_parameters() == trained.num_parameters()
    if trained.embedding is not None:
        assert loaded.embedding.storage_bytes() == trained.embedding.storage_bytes()
