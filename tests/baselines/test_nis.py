"""NIS: choices of rectangles taught by reward, within every budget, noise fields with less, kills without a trace."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from thresher.baselines.nis import NisConfig, NisEmbedding, SizePolicy
from thresher.errors import ConfigError
from thresher.search.schedule import SearchConfig
from thresher.training.optimizers import OptimizerConfig

SINGLE = NisConfig(candidate_sizes=(2, 4, 8), num_blocks=2)
MULTIPLE = replace(SINGLE, mode="multiple")
COUNTS = [0, 50, 10, 5, 3, 40, 9, 1]  # fields of 3 and 5

FASTER = SearchConfig(
    warmup_epochs=2, plan_epochs=5, optimizer=OptimizerConfig(learning_rate=2e-2, choice_learning_rate=5e-2)
)


def table(config=SINGLE):
    torch.manual_seed(0)
    return NisEmbedding((3, 5), config, feature_counts=COUNTS)


@pytest.mark.parametrize("config", [SINGLE, MULTIPLE], ids=["single", "multiple"])
def test_budgets_are_kept_and_noise_fields_get_less(planted, config):
    tickets = planted.search(config, ["50%", "20%", "1KB"], config=FASTER)
    limits = {"50%": 0.5 * planted.num_features * 8, "20%": 0.2 * planted.num_features * 8}
    for ticket in tickets:
        if str(ticket.budget) in limits:
            assert 0.5 * limits[str(ticket.budget)] < ticket.num_parameters <= limits[str(ticket.budget)]
        else:
            model = planted.model(config)
            ticket.apply_(model)
            assert 600 < model.embedding.storage_bytes() <= 1_000
    for ticket, times in zip(tickets[:2], (1.5, 1.2), strict=True):
        signal, noise = planted.kept_by_kind(ticket.sizes()["embedding"])
        assert signal > times * noise


def test_a_search_killed_in_an_epoch_ends_the_same(planted, killed_and_resumed):
    resumed = killed_and_resumed(SINGLE, ["50%", "20%"], killed_in=4)
    whole = planted.search(SINGLE, ["50%", "20%"])
    for one, other in zip(whole, resumed, strict=True):
        assert torch.equal(one.masks["embedding"], other.masks["embedding"])
        assert torch.equal(one.final.values["embedding"], other.final.values["embedding"])


def test_single_chooses_one_rectangle_per_field():
    """Blocks: field 0 has {1} and {0, 2}, field 1 has {5} and {3, 4, 6, 7}."""
    nis = table()
    policy = SizePolicy(nis, limit=100)
    assert policy.logits.shape == (2, 1 + 2 * 3)
    choice = torch.tensor([2, 4])  # one block, 4 wide; two blocks, 2 wide
    policy.activate_(choice)
    expected = torch.zeros(8, 8, dtype=torch.bool)
    expected[1, :4] = True
    expected[3:, :2] = True
    assert torch.equal(nis.mask(), expected)
    assert policy.cost(choice) == nis.num_parameters() == 1 * 4 + 5 * 2
    assert policy.cost(torch.tensor([0, 0])) == 0
    vectors = nis(torch.arange(8))
    assert torch.equal(vectors, nis.weight * expected)


def test_multiple_chooses_a_number_of_blocks_for_each_slice():
    nis = table(MULTIPLE)
    policy = SizePolicy(nis, limit=100)
    assert policy.logits.shape == (2 * 3, 1 + 2)
    choice = torch.tensor([2, 1, 0, 1, 1, 1])
    policy.activate_(choice)
    assert nis.mask().sum(1).tolist() == [2, 4, 2, 0, 0, 8, 0, 0]
    assert policy.cost(choice) == nis.num_parameters() == 2 + 4 + 2 + 8


@pytest.mark.parametrize(("limit", "least"), [(32, 32), (20, 16), (8, 8), (3, 2), (0, 0)])
def test_the_best_choice_is_the_likeliest_made_to_fit(limit, least):
    policy = SizePolicy(table(), limit)
    np.testing.assert_array_equal(policy.costs[1], [0, 2, 4, 8, 10, 20, 40])
    with torch.no_grad():
        policy.logits[0, 6], policy.logits[1, 3] = 9.0, 9.0  # 3 × 8 and 1 × 8
    best = policy.best()
    assert least <= policy.cost(best) <= limit
    if limit == 32:
        assert best.tolist() == [6, 3]


def test_reward_changes_the_policy():
    """Noise alone: with nothing to gain, a tight budget teaches to keep nothing much."""
    policy = SizePolicy(table(), limit=4)
    optimizer = torch.optim.Adam([policy.logits], lr=0.1)
    torch.manual_seed(1)
    for _ in range(150):
        choices = [policy.sample() for _ in range(4)]
        rewards = torch.tensor([-max(0.0, policy.cost(choice) / policy.limit - 1) for choice in choices])
        advantages = rewards - rewards.mean()
        optimizer.zero_grad()
        loss = -(advantages * torch.stack([policy.log_probability(choice) for choice in choices])).mean()
        loss.backward()
        optimizer.step()
    assert np.mean([policy.cost(policy.sample()) for _ in range(50)]) < 8


def test_bytes_and_settings():
    nis = table()
    assert nis.num_parameters() == 64
    assert nis.storage_bytes() == 64 * 4 + 8 * 4 + 4  # values, a group per feature, 4 · 8 bits
    with pytest.raises(ConfigError, match="ascending"):
        NisConfig(candidate_sizes=(4, 2))
    with pytest.raises(ConfigError, match="num_samples"):
        NisConfig(num_samples=1)
    with pytest.raises(ConfigError, match="feature_counts"):
        NisEmbedding((3,), SINGLE)
