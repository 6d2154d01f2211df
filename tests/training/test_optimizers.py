import logging
from dataclasses import replace

import pytest
import torch
from torch import nn

import thresher.training.optimizers as optimizers
from thresher.attach import attach_
from thresher.embeddings.method_registry import build_embedding
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError
from thresher.models.model_registry import build_model, model_config
from thresher.training.optimizers import OptimizerConfig, build_optimizer, parameters_by_role
from thresher.training.row_adam import RowAdam


class Table(nn.Module):
    def __init__(self, threshold=None):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 2))
        self.threshold = nn.Parameter(torch.zeros(1)) if threshold is None else threshold
        self.choice = nn.Parameter(torch.zeros(3))

    def parameter_groups(self):
        return {"embeddings": [self.weight], "thresholds": [self.threshold], "choices": [self.choice]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([Table()])
        self.tables.append(Table(threshold=self.tables[0].threshold))
        self.top = nn.Linear(2, 1)


def names(model, parameters):
    by_parameter = {parameter: name for name, parameter in model.named_parameters()}
    return [by_parameter[parameter] for parameter in parameters]


def test_groups_follow_the_modules_and_shared_parameters_come_once():
    model = Model()
    config = OptimizerConfig(
        learning_rate=0.1, weight_decay=0.2, threshold_learning_rate=0.3, threshold_decay=0.4,
        choice_learning_rate=0.5, choice_decay=0.6,
    )  # fmt: skip
    groups = {group["name"]: group for group in build_optimizer(model, config).param_groups}
    assert list(groups) == ["network", "embeddings", "thresholds", "choices"]
    assert {name: (group["lr"], group["weight_decay"]) for name, group in groups.items()} == {
        "network": (0.1, 0.2),
        "embeddings": (0.1, 0.2),
        "thresholds": (0.3, 0.4),
        "choices": (0.5, 0.6),
    }
    assert names(model, groups["network"]["params"]) == ["top.weight", "top.bias"]
    assert names(model, groups["embeddings"]["params"]) == ["tables.0.weight", "tables.1.weight"]
    assert names(model, groups["thresholds"]["params"]) == ["tables.0.threshold"]


def test_frozen_parameters_and_empty_groups_are_left_out():
    model = Model()
    model.tables[0].threshold.requires_grad_(False)
    model.tables[1].weight.requires_grad_(False)
    groups = parameters_by_role(model)
    assert "thresholds" not in groups
    assert names(model, groups["embeddings"]) == ["tables.0.weight"]


def test_embeddings_may_have_a_weight_decay_of_their_own():
    groups = build_optimizer(Model(), OptimizerConfig(weight_decay=0.2, embedding_weight_decay=0.0)).param_groups
    decays = {group["name"]: group["weight_decay"] for group in groups}
    assert (decays["network"], decays["embeddings"]) == (0.2, 0.0)


def test_decay_is_coupled_so_a_parameter_without_loss_moves_by_the_learning_rate():
    """The authors' search rests on this: Adam scales the decay term up to a full step."""
    model = Table()
    with torch.no_grad():
        model.threshold.fill_(-15.0)
    optimizer = build_optimizer(model, OptimizerConfig(threshold_learning_rate=1e-3, threshold_decay=1e-5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert model.threshold.item() == pytest.approx(-15.0 + 1e-3, abs=1e-5)


def test_adam_is_fused_on_cpu_and_takes_the_plain_steps():
    models = [nn.Linear(3, 1), nn.Linear(3, 1)]
    models[1].load_state_dict(models[0].state_dict())
    ours = build_optimizer(models[0], OptimizerConfig(learning_rate=0.1, weight_decay=0.01))
    assert ours.param_groups[0]["fused"]
    plain = torch.optim.Adam(models[1].parameters(), lr=0.1, weight_decay=0.01, fused=False)
    x = torch.randn(8, 3)
    for _ in range(5):
        for model, optimizer in zip(models, (ours, plain), strict=True):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(models[0].weight, models[1].weight)


def test_contradictory_and_unknown_groups_are_refused():
    class Outer(nn.Module):
        def __init__(self, role):
            super().__init__()
            self.inner, self.role = Table(), role

        def parameter_groups(self):
            return {self.role: list(self.parameters())}

    with pytest.raises(ConfigError, match=r"Table 'inner' declares a parameter of shape \[1\] as 'thresholds'"):
        build_optimizer(Outer("embeddings"), OptimizerConfig())
    with pytest.raises(ConfigError, match="'weights'; known groups: network, embeddings, thresholds, choices"):
        build_optimizer(Outer("weights"), OptimizerConfig())


def test_no_trainable_parameter_and_invalid_settings_are_refused():
    with pytest.raises(ConfigError, match="no trainable parameter"):
        build_optimizer(nn.ReLU(), OptimizerConfig())
    with pytest.raises(ConfigError, match="learning_rate is -1"):
        OptimizerConfig(learning_rate=-1.0)


def test_gradients_are_clipped_together_to_the_norm():
    model = nn.Linear(3, 1, bias=False)
    optimizer = build_optimizer(model, OptimizerConfig(max_grad_norm=1.0, weight_decay=0.0))
    model.weight.grad = torch.tensor([[3.0, 0.0, 4.0]])
    optimizer.step()
    torch.testing.assert_close(model.weight.grad, torch.tensor([[0.6, 0.0, 0.8]]), rtol=1e-5, atol=1e-6)
    model.weight.grad = torch.tensor([[0.3, 0.0, 0.4]])
    optimizer.step()
    assert torch.equal(model.weight.grad, torch.tensor([[0.3, 0.0, 0.4]]))  # below it they stay
    with pytest.raises(ConfigError, match="max_grad_norm is 0"):
        OptimizerConfig(max_grad_norm=0.0)


@pytest.mark.parametrize(
    ("settings", "why"), [({}, None), ({"first_order": True}, "first-order weights"), ({"pressure": "decay"}, "decay")]
)
def test_dense_updates_of_a_large_table_are_logged(monkeypatch, caplog, settings, why):
    embedding = PepConfig(embedding_dim=4, **settings)
    model = build_model(build_embedding((8, 8), embedding), model_config("fm"))
    if embedding.first_order:
        attach_(model, replace(embedding, embedding_dim=1), where="linear_term.weights", min_embedding_dim=1)
    with caplog.at_level(logging.INFO, "thresher"):
        assert not isinstance(build_optimizer(model, OptimizerConfig()), RowAdam)
        assert not caplog.messages  # a small table is updated as a whole in little time
        monkeypatch.setattr(optimizers, "ROWS_FROM_ENTRIES", 64)
        assert isinstance(build_optimizer(model, OptimizerConfig()), RowAdam) == (why is None)
    assert [why in message for message in caplog.messages] == ([True] if why else [])


def test_row_updates_of_plain_tables(monkeypatch):
    monkeypatch.setattr("thresher.training.optimizers.ROWS_FROM_ENTRIES", 100)
    model = nn.ModuleList([nn.Embedding(50, 4), nn.EmbeddingBag(9, 4, mode="max"), nn.Embedding(9, 4, sparse=True)])
    optimizer = build_optimizer(model, OptimizerConfig())
    assert [table.sparse for table in model] == [True, False, True]
    before = model[0].weight.detach().clone()
    (model[0](torch.tensor([3, 3])).sum() + model[1](torch.tensor([[1, 2]])).sum()).backward()
    optimizer.step()
    assert (model[0].weight != before).any(1).nonzero().flatten().tolist() == [3]
    build_optimizer(model, OptimizerConfig(updates="dense"))
    assert not any(table.sparse for table in model)
