"""PEP's search in Thresher's training loop: refused settings, unreachable budgets, resume."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from thresher.baselines.bilevel import DnisConfig
from thresher.baselines.candidate_sizes import DartsEmbConfig
from thresher.baselines.magnitude import MagnitudeConfig
from thresher.baselines.mde import MdeConfig
from thresher.embeddings.pep import PepConfig
from thresher.errors import BudgetError, ConfigError, TimeLimitReached
from thresher.models.fm import DeepFmConfig
from thresher.search.budget import parse_budgets
from thresher.search.find_tickets import find_tickets, unmet_budgets
from thresher.search.schedule import SearchConfig
from thresher.search.searcher import ThresholdController
from thresher.training.checkpoint import read_history
from thresher.training.distillation import SoftLabels
from thresher.training.optimizers import OptimizerConfig

PLAN = PepConfig(embedding_dim=8)
DECAY = PepConfig(embedding_dim=8, pressure="decay", raw_threshold_init=-6.0)


def decaying(threshold_decay, *, max_epochs):
    optimizer = OptimizerConfig(
        learning_rate=2e-2, threshold_learning_rate=2e-2, threshold_decay=threshold_decay, updates="dense"
    )
    return SearchConfig(max_epochs=max_epochs, clock_steps=5, optimizer=optimizer)


def test_decay_without_decay_is_refused_before_it_starts(planted):
    with pytest.raises(ConfigError, match=r"threshold_decay .*is 0.*The authors' value is 1e-5"):
        planted.search(DECAY, ["500"], config=decaying(0.0, max_epochs=1))


def test_a_decay_search_that_ends_names_the_missing_budgets(planted):
    with pytest.raises(BudgetError, match=r"after 1 epochs .* budget 10 was not reached"):
        planted.search(DECAY, ["10"], config=decaying(1e-5, max_epochs=1))


def test_a_decay_search_cuts_exactly_what_it_reaches(planted):
    tickets = planted.search(DECAY, ["1000", "1400"], config=decaying(1e-3, max_epochs=20))
    assert [ticket.num_parameters for ticket in tickets] == [1400, 1000]


def test_killed_and_resumed_cuts_the_same_tickets(planted, killed_and_resumed):
    whole = planted.search(PLAN, ["500", "100"])
    again = killed_and_resumed(PLAN, ["500", "100"], killed_in=3)
    for one, other in zip(whole, again, strict=True):
        assert (one.masks["embedding"] == other.masks["embedding"]).all()
        assert (one.final.values["embedding"] == other.final.values["embedding"]).all()


@pytest.mark.parametrize("embedding", [PLAN, MagnitudeConfig(embedding_dim=8), DnisConfig(embedding_dim=8)])
def test_should_stop_ends_any_search_with_a_checkpoint(planted, tmp_path, embedding):
    with pytest.raises(TimeLimitReached):
        find_tickets(
            planted.model(embedding), planted.data, ["500"], SearchConfig(), folder=tmp_path, should_stop=lambda: True
        )
    assert (tmp_path / "checkpoint.safetensors").exists()


@pytest.mark.parametrize(("told", "num_warm"), [(None, 1), (3, 2)])
def test_a_warm_up_without_fixed_length_ends_on_validation(planted, metrics, monkeypatch, tmp_path, told, num_warm):
    monkeypatch.setattr("thresher.training.loop.evaluate", lambda *_, **__: metrics(0.6))
    config = SearchConfig(warmup_epochs=told, max_warmup_epochs=9, plan_epochs=1)
    planted.search(PLAN, ["500"], folder=tmp_path, config=config)
    warm = [record["warming_up"] for record in read_history(tmp_path / "history.jsonl")]
    assert warm == [True] * num_warm + [False] * 2  # the epoch at whose end it was over, and the plan's


def test_a_search_with_other_thresholds_is_not_resumed(planted, killed_and_resumed, tmp_path):
    killed_and_resumed(PLAN, ["500"], killed_in=2)
    with pytest.raises(ConfigError, match=r"other settings \(tables "):
        planted.search(replace(PLAN, threshold_function="sigmoid"), ["500"], folder=tmp_path)


def test_a_search_learns_from_soft_labels(planted, tmp_path):
    rows = planted.data.train.in_order(1000).num_rows
    undecided = SoftLabels(np.full(rows, 0.5, np.float32), 1.0)
    taught = planted.search(PLAN, ["500"], folder=tmp_path / "taught", soft_labels=undecided)
    by_labels = planted.search(PLAN, ["500"], folder=tmp_path / "labels")
    losses = {name: read_history(tmp_path / name / "history.jsonl")[-1]["train_loss"] for name in ("taught", "labels")}
    assert losses["taught"] == pytest.approx(math.log(2), abs=0.01)  # all there is to know about a coin
    assert losses["labels"] < 0.65
    assert not torch.equal(taught[0].masks["embedding"], by_labels[0].masks["embedding"])


def test_soft_labels_change_targets_and_weight_decay_of_a_search(planted, monkeypatch):
    tasks = []
    monkeypatch.setattr(ThresholdController, "run", lambda controller: tasks.append(controller.task))
    soft_labels = SoftLabels(np.full(planted.data.train.num_rows, 0.5, np.float32), 0.75)
    config = SearchConfig(optimizer=OptimizerConfig(weight_decay=0.01))
    model = planted.model(PLAN, model=DeepFmConfig(hidden_sizes=(4,), dropout=0.5))
    find_tickets(model, planted.data, ["500"], config, soft_labels=soft_labels)
    (task,) = tasks
    assert task.config.optimizer.embedding_weight_decay == pytest.approx(0.0025)  # what is left for the labels
    assert task.config.optimizer.weight_decay == 0.01
    assert next(iter(task.data.train.epoch(0))).labels.eq(0.5).all()
    assert task.data.validation is planted.data.validation
    assert {module.p for module in task.model.modules() if isinstance(module, nn.Dropout)} == {0.5}


@pytest.mark.parametrize("embedding", [PLAN, DnisConfig(), DartsEmbConfig(), MagnitudeConfig(), MdeConfig()])
def test_unmet_budgets_are_found_without_training(planted, embedding):
    model, budgets = planted.model(embedding), parse_budgets("1B,1000")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    unmet = unmet_budgets(model, planted.data, budgets, SearchConfig())
    assert list(unmet) == [budgets[0]]
    assert "1B" in str(unmet[budgets[0]])
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
