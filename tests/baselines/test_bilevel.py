"""Bilevel search: choices learn on validation rows, budgets take the likeliest sizes, kills leave no trace."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from thresher.baselines.bilevel import DnisConfig, DnisEmbedding
from thresher.baselines.candidate_sizes import AutoDimConfig, AutoDimEmbedding, DartsEmbConfig, DartsEmbedding
from thresher.baselines.nis import NisConfig
from thresher.baselines.size_choice import choose_within
from thresher.data.batches.batches import Batches
from thresher.data.batches.split_batches import SplitBatches
from thresher.embeddings.feature_groups import MixedDimensionEmbedding
from thresher.errors import BudgetError, ConfigError, ThresherError
from thresher.experiment.retrain import retrain_ticket
from thresher.models.fm import DeepFmConfig
from thresher.search.find_tickets import find_tickets
from thresher.search.schedule import SearchConfig
from thresher.search.ticket_files import load_ticket
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig

DARTS = DartsEmbConfig(candidate_sizes=(1, 2, 8), groups_per_field=2)
AUTODIM = AutoDimConfig(candidate_sizes=(1, 2, 8))
DNIS = DnisConfig(embedding_dim=8, num_blocks=4)
CONFIGS = {"darts-emb": DARTS, "autodim": AUTODIM}


@pytest.fixture(scope="module", params=CONFIGS)
def searched(request, planted, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    tickets = planted.search(CONFIGS[request.param], ["100%", "40%", "400", "2KB"], folder=folder)
    return request.param, {str(ticket.budget): ticket for ticket in tickets}, folder


def test_budgets_are_kept_and_nearly_used(searched, planted):
    method, tickets, _ = searched
    model = planted.model(CONFIGS[method])
    limits = {"40%": int(0.4 * planted.num_features * 8), "400": 400}
    for budget, limit in limits.items():
        assert 0.75 * limit < tickets[budget].num_parameters <= limit
    tickets["2KB"].apply_(model)
    assert 1_500 < model.embedding.storage_bytes() <= 2_000
    assert model.embedding.num_parameters() == tickets["2KB"].num_parameters


def test_noise_fields_get_less_than_signal_fields(searched, planted):
    _, tickets, _ = searched
    for budget, times in (("100%", 1.5), ("40%", 1.2)):
        signal, noise = planted.kept_by_kind(tickets[budget].sizes()["embedding"])
        assert signal > times * noise


def test_tickets_rewind_to_the_beginnings_of_the_initial_rows(searched, planted):
    method, tickets, folder = searched
    ticket = tickets["40%"]
    fresh, model = planted.model(CONFIGS[method]), planted.model(CONFIGS[method], seed=9)
    ticket.apply_(model)
    assert isinstance(model.embedding, MixedDimensionEmbedding)
    assert torch.equal(model.linear_term.weights.weight, fresh.linear_term.weights.weight)
    sizes, ids = ticket.sizes()["embedding"], torch.arange(planted.num_features)
    vectors = model.embedding(ids)
    for feature in range(0, planted.num_features, 7):
        size = int(sizes[feature])
        row = fresh.embedding.weight[feature, :size]
        expected = row if size == 8 else row @ fresh.embedding.projections[f"size_{size}"]
        torch.testing.assert_close(vectors[feature], expected)

    other = planted.model(CONFIGS[method], seed=9)
    loaded = load_ticket(folder / "40pct")
    loaded.apply_(other)
    assert torch.equal(other.embedding(ids), vectors)
    assert (loaded.budget, loaded.num_parameters, loaded.provenance) == (
        ticket.budget, ticket.num_parameters, ticket.provenance
    )  # fmt: skip


def test_rewind_final_continues_and_random_keeps_fresh_weights(searched, planted):
    method, tickets, _ = searched
    starts = {}
    for rewind in ("initial", "final", "random"):
        model = planted.model(CONFIGS[method], seed=5)
        tickets["400"].apply_(model, rewind=rewind)
        starts[rewind] = model.linear_term.weights.weight.detach().clone()
    assert torch.equal(starts["random"], planted.model(CONFIGS[method], seed=5).linear_term.weights.weight)
    assert not torch.equal(starts["initial"], starts["final"])
    with pytest.raises(ThresherError, match="another model"):
        tickets["400"].apply_(planted.model(CONFIGS[method], model=DeepFmConfig()))
    with pytest.raises(ThresherError, match="the model has no table"):
        tickets["400"].apply_(torch.nn.Linear(1, 1))


@pytest.mark.parametrize("method", CONFIGS)
def test_a_search_killed_in_an_epoch_ends_the_same(method, planted, killed_and_resumed):
    (resumed,) = killed_and_resumed(CONFIGS[method], ["40%"], killed_in=3)
    (whole,) = planted.search(CONFIGS[method], ["40%"])
    assert whole.tables["embedding"].sizes == resumed.tables["embedding"].sizes
    assert whole.final.keys() == resumed.final.keys()
    assert all(torch.equal(value, resumed.final[name]) for name, value in whole.final.items())


def test_choices_learn_on_validation_rows_alone(planted):
    """With validation labels turned around, the very same training rows give other choices."""

    class Turned:
        def __init__(self, source):
            self.source, self.num_rows = source, source.num_rows

        def __len__(self):
            return len(self.source)

        def epoch(self, epoch, start=0):
            for batch in self.source.epoch(epoch, start):
                yield replace(batch, labels=1 - batch.labels)

    def logits(choices):
        model = planted.model(DARTS)
        data = replace(planted.data, choices=choices)
        rates = OptimizerConfig(learning_rate=2e-2, choice_learning_rate=2e-2)
        find_tickets(model, data, ["100%"], SearchConfig(max_epochs=1, optimizer=rates), seed=1)
        return model.embedding.size_logits.detach()

    straight, turned = logits(planted.data.choices), logits(Turned(planted.data.choices))
    assert straight.abs().max() > 0.1
    assert torch.corrcoef(torch.stack([straight[:, 0], turned[:, 0]]))[0, 1] < 0.5


@pytest.mark.parametrize("config", [DARTS, NisConfig(candidate_sizes=(2, 4, 8), num_blocks=2)], ids=["darts", "nis"])
def test_a_choice_row_left_alone_passes_batch_norm(planted, config):
    rows = planted.table.split("validation")
    choices = Batches(rows, len(rows.labels) - 1, seed=0)  # a whole batch, then one row
    model = planted.model(config, model=DeepFmConfig())
    data = replace(planted.data, choices=choices)
    find_tickets(model, data, ["100%"], SearchConfig(max_epochs=1, warmup_epochs=0, plan_epochs=1.0), seed=1)
    assert all(module.training for module in model.modules() if isinstance(module, nn.BatchNorm1d))


def test_a_ticket_is_retrained_on_its_small_tables(searched, planted):
    method, tickets, _ = searched
    trained = retrain_ticket(
        tickets["400"], planted.model(CONFIGS[method]), planted.data, TrainingConfig(max_epochs=1, patience=1)
    )
    assert trained.num_parameters == tickets["400"].num_parameters
    assert trained.test is not None


def test_an_impossible_budget_is_refused_before_the_search(planted):
    data = SplitBatches(train=None, validation=None, feature_counts=planted.data.feature_counts)
    with pytest.raises(BudgetError, match="smallest candidate sizes"):
        find_tickets(planted.model(DARTS), data, [str(planted.num_features)])


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigError, match="ascending"):
        DartsEmbConfig(candidate_sizes=(8, 2))
    with pytest.raises(ConfigError, match="embedding_dim"):
        AutoDimConfig(candidate_sizes=(1, 16), embedding_dim=8)
    with pytest.raises(ConfigError, match="feature_counts"):
        DartsEmbedding((3,), DARTS)


def test_candidates_are_weighted_beginnings_of_rows_and_counted_as_chosen():
    torch.manual_seed(0)
    table = DartsEmbedding((2, 3), DARTS, feature_counts=[5, 1, 9, 1, 1]).eval()  # groups: 0 | 1 | 2 | 3 3
    with torch.no_grad():
        table.size_logits.copy_(torch.tensor([[0.0, 2.0, 1.0], [1, 0, 0], [0, 0, 3], [0, 0, 0]]))
    shares = torch.softmax(table.size_logits[0], 0)
    row, one, two = table.weight[0], table.projections["size_1"], table.projections["size_2"]
    expected = shares[0] * (row[:1] @ one) + shares[1] * (row[:2] @ two) + shares[2] * row
    torch.testing.assert_close(table(torch.tensor([0]))[0], expected)
    assert table.chosen_sizes() == (2, 1, 8, 1)
    assert table.num_parameters() == 2 + 1 + 8 + 2 * 1 + 1 * 8 + 2 * 8
    assert table.storage_bytes() == 37 * 4 + 4 * 9
    table(torch.arange(5)).sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in table.parameters())


def test_autodim_draws_with_noise_only_while_training():
    torch.manual_seed(0)
    table = AutoDimEmbedding((4, 4), AUTODIM)
    ids = torch.arange(8)
    assert not torch.equal(table(ids), table(ids))
    assert int(table.num_draws) == 2
    shares = table.shares()
    torch.testing.assert_close(shares.sum(1), torch.ones(2))
    table.eval()
    assert torch.equal(table(ids), table(ids))
    table.num_draws.fill_(10**6)  # cold: a draw is a choice
    assert table.train().shares().max(1).values.min() > 0.99


@given(
    st.lists(st.tuples(st.integers(1, 9), st.lists(st.floats(-5, 5), min_size=3, max_size=3)), min_size=1, max_size=5),
    st.floats(0, 1),
)
def test_chosen_sizes_fit_and_are_worth_nearly_the_most_that_do(groups, level):
    counts = np.array([count for count, _ in groups])
    likelihood = np.array([scores for _, scores in groups])
    costs = np.outer(counts, [1, 2, 8]).astype(float)

    def total(choice):
        return int(costs[np.arange(len(counts)), choice].sum())

    least, most = total(np.zeros(len(counts), int)), total(np.full(len(counts), 2))
    limit = int(least + level * (most - least))
    choice = choose_within(likelihood, costs, limit, total)
    assert total(choice) <= limit

    def value(choice):
        return likelihood[np.arange(len(counts)), choice].sum()

    fitting = [np.array(c) for c in itertools.product(range(3), repeat=len(counts)) if total(np.array(c)) <= limit]
    best = max(value(c) for c in fitting)
    spread = np.ptp(likelihood, axis=1).max()
    assert value(choice) >= best - spread - 1e-9  # Lagrange is off by one group at most


def test_dnis_budgets_are_exact_and_noise_fields_get_less(planted, tmp_path):
    tickets = planted.search(DNIS, ["20%", "100"], folder=tmp_path)
    assert [ticket.num_parameters for ticket in tickets] == [int(0.2 * planted.num_features * 8), 100]
    signal, noise = planted.kept_by_kind(tickets[0].sizes()["embedding"])
    assert signal > 2 * noise
    fresh, model = planted.model(DNIS), planted.model(DNIS, seed=9)
    tickets[0].apply_(model)
    assert torch.equal(model.embedding.values, fresh.embedding.weight[tickets[0].masks["embedding"]])


def test_dnis_a_search_killed_in_an_epoch_ends_the_same(planted, killed_and_resumed):
    (resumed,) = killed_and_resumed(DNIS, ["100"], killed_in=3)
    (whole,) = planted.search(DNIS, ["100"])
    assert torch.equal(whole.masks["embedding"], resumed.masks["embedding"])
    assert torch.equal(whole.final.values["embedding"], resumed.final.values["embedding"])


def test_dnis_vectors_scores_counts_and_bytes_by_hand():
    torch.manual_seed(0)
    table = DnisEmbedding((2, 3), DnisConfig(embedding_dim=2, num_blocks=2), feature_counts=[50, 1, 20, 10, 19])
    assert table.block_of_feature.tolist() == [0, 1, 1, 1, 1]
    with torch.no_grad():
        table.soft_mask.copy_(torch.tensor([[1.0, 0.5], [-2.0, 0.0]]))
    expected = table.weight * torch.tensor([[1.0, 0.5]] + [[-2.0, 0.0]] * 4)
    assert torch.equal(table(torch.arange(5)), expected)
    assert torch.equal(table.scores(), expected.abs())
    assert table.num_parameters() == 10
    assert table.storage_bytes() == (10 + 4) * 4 + 5
    table(torch.tensor([3])).sum().backward()
    torch.testing.assert_close(table.soft_mask.grad, torch.stack([torch.zeros(2), table.weight[3].detach()]))


def test_dnis_rows_never_seen_in_training_are_kept_last():
    table = DnisEmbedding((2, 2), DnisConfig(embedding_dim=2, num_blocks=2), feature_counts=[9, 0, 4, 0])
    table(torch.arange(4))  # a validation row may have features that training rows have not
    scores = table.scores()
    assert scores[[1, 3]].eq(-torch.inf).all()
    assert torch.equal(scores[[0, 2]], table.weight[[0, 2]].abs())


def test_dnis_impossible_settings_are_refused(planted):
    with pytest.raises(ConfigError, match="num_blocks"):
        DnisConfig(num_blocks=0)
    with pytest.raises(ConfigError, match="feature_counts"):
        DnisEmbedding((3,), DNIS)
    with pytest.raises(BudgetError, match="above the"):
        planted.search(DNIS, ["1M"])
