from dataclasses import replace

import pytest
import torch
from torch import nn
from training_toys import TOY_CONFIG, toy_model, toy_sources

import thresher.training.averaging as averaging
from thresher.data.batches.split_batches import SplitBatches
from thresher.embeddings.method_registry import build_embedding
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError
from thresher.training.averaging import WeightAverage
from thresher.training.epoch import evaluate
from thresher.training.fit import TrainingConfig, fit


class Weights(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, dtype=torch.float64))
        self.register_buffer("running", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))


def walk(model, step):
    """What an optimizer and batch norm would do: change weights and buffers in place."""
    with torch.no_grad():
        model.weight.add_(torch.tensor([1.0, -2.0, 0.5]) * step)
        model.running.fill_(step)
        model.count += 1


def test_the_mean_follows_its_formula_and_leaves_the_weights_alone():
    model, expected = Weights(), torch.zeros(3, dtype=torch.float64)
    average = WeightAverage(model, average_decay=0.8)
    for n in range(1, 60):
        walk(model, n)
        average.after_step()
        decay = min(0.8, (1 + n) / (10 + n))
        expected = decay * expected + (1 - decay) * model.weight.detach()
    weights, running = model.weight.detach().clone(), model.running.clone()
    with average.in_place():
        torch.testing.assert_close(model.weight.detach(), expected)
        assert 50 < model.running[0] < 59  # a mean of the last steps
        assert model.count == 59  # whole numbers have no mean
    assert torch.equal(model.weight, weights)
    assert torch.equal(model.running, running)


def test_what_is_infinite_in_a_buffer_stays_so_until_the_model_changes_it():
    table = build_embedding((3, 4), PepConfig(embedding_dim=2))
    average = WeightAverage(table, average_decay=0.9)
    for clock in (-torch.inf, -torch.inf, -2.0, -1.0):
        table.clock.fill_(clock)
        average.after_step()
        with average.in_place():
            assert table.clock == clock if clock < -2 else -2 <= table.clock < -1
            assert table(torch.arange(7)).isfinite().all()
        assert table.clock == clock


def test_weights_come_back_when_something_fails_inside():
    model = Weights()
    average = WeightAverage(model, average_decay=0.9)
    walk(model, 1)
    average.after_step()
    with pytest.raises(RuntimeError, match="inside"), average.in_place():
        raise RuntimeError("inside")
    assert torch.equal(model.weight.detach(), torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))


def test_a_large_model_is_taken_in_every_few_steps_with_the_weight_of_all_of_them(monkeypatch):
    monkeypatch.setattr(averaging, "ENTRIES_PER_STEP", 2)  # five entries: every third step
    model = Weights()
    average = WeightAverage(model, average_decay=0.5)
    for n in range(1, 5):
        walk(model, n)
        average.after_step()
        assert average.num_pending == n % 3
    after_three, after_four = torch.tensor(6.0).double(), torch.tensor(10.0).double()
    kept = min(0.5, 4 / 13) ** 3
    expected = (1 - kept) * after_three
    kept = min(0.5, 5 / 14)
    with average.in_place():  # what is pending comes in first
        torch.testing.assert_close(model.weight[0].detach(), kept * expected + (1 - kept) * after_four)


def test_its_state_resumes_exactly():
    model, average = Weights(), None
    average = WeightAverage(model, average_decay=0.9)
    walk(model, 1)
    average.after_step()
    again = WeightAverage(model, average_decay=0.9)
    again.load(average.state())
    for one in (average, again):
        one.after_step()
    with average.in_place():
        one = model.weight.detach().clone()
    with again.in_place():
        assert torch.equal(model.weight, one)


def test_training_evaluates_and_keeps_the_mean():
    train, validation = toy_sources()
    data = SplitBatches(train=train, validation=validation)
    model, plain = toy_model(), toy_model()
    result = fit(model, data, replace(TOY_CONFIG, average_decay=0.99), seed=0)
    without = fit(plain, data, replace(TOY_CONFIG, average_decay=0.0), seed=0)
    assert evaluate(model, validation).auc == result.validation.auc
    losses = [[record["train_loss"] for record in one.history] for one in (result, without)]
    shared = min(map(len, losses))
    assert losses[0][:shared] == losses[1][:shared]  # training itself never sees the mean
    assert result.validation.auc != without.validation.auc


def test_a_share_of_one_or_more_is_refused():
    with pytest.raises(ConfigError, match=r"average_decay is 1\.0"):
        TrainingConfig(average_decay=1.0)
