"""Magnitude pruning: three schedules, exact counts, resume."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

import thresher.baselines.magnitude
from search_toys import SEARCH
from thresher.baselines.magnitude import (
    CubicPlan,
    GradualMagnitudeConfig,
    IterativeMagnitudeConfig,
    MagnitudeConfig,
    MagnitudeEmbedding,
    round_counts,
)
from thresher.compact.layouts import compact_bytes
from thresher.errors import BudgetError, ConfigError
from thresher.search.find_tickets import find_tickets, search_algorithm
from thresher.search.schedule import SearchConfig
from thresher.training.distillation import SoftLabels
from thresher.training.optimizers import OptimizerConfig, build_optimizer

ONE_SHOT = MagnitudeConfig(embedding_dim=8, search_weight_decay=1e-4)
GRADUAL = GradualMagnitudeConfig(embedding_dim=8)
ITERATIVE = IterativeMagnitudeConfig(embedding_dim=8, round_epochs=1, round_keep_share=0.4)
CONFIGS = {"magnitude": ONE_SHOT, "gradual-magnitude": GRADUAL, "iterative-magnitude": ITERATIVE}
BUDGETS = ["20%", "100", "1KB"]


@pytest.fixture(scope="module", params=CONFIGS)
def searched(request, planted):
    return request.param, planted.search(CONFIGS[request.param], BUDGETS)


def test_every_budget_gets_exactly_its_entries(searched, planted):
    method, tickets = searched
    found = {str(ticket.budget): ticket for ticket in tickets}
    assert found["20%"].num_parameters == int(0.2 * planted.num_features * 8)
    assert found["100"].num_parameters == 100
    model = planted.model(CONFIGS[method])
    found["1KB"].apply_(model)
    assert 800 < model.embedding.storage_bytes() <= 1000
    assert {ticket.provenance.method for ticket in tickets} == {method}


def test_noise_fields_get_less_than_signal_fields(searched, planted):
    _, tickets = searched
    signal, noise = planted.kept_by_kind(tickets[0].sizes()["embedding"])
    assert signal > 2 * noise


def test_tickets_rewind_the_whole_model_to_its_start(searched, planted):
    method, tickets = searched
    fresh, model = planted.model(CONFIGS[method]), planted.model(CONFIGS[method], seed=9)
    tickets[0].apply_(model)
    mask = tickets[0].masks["embedding"]
    assert torch.equal(model.embedding.values, fresh.embedding.weight[mask])
    assert torch.equal(model.linear_term.weights.weight, fresh.linear_term.weights.weight)


@pytest.mark.parametrize("method", CONFIGS)
def test_a_search_killed_in_an_epoch_ends_the_same(method, planted, killed_and_resumed):
    resumed = killed_and_resumed(CONFIGS[method], ["20%", "100"], killed_in=3)
    whole = planted.search(CONFIGS[method], ["20%", "100"])
    assert [ticket.budget for ticket in whole] == [ticket.budget for ticket in resumed]
    for one, other in zip(whole, resumed, strict=True):
        assert torch.equal(one.masks["embedding"], other.masks["embedding"])
        assert torch.equal(one.final.values["embedding"], other.final.values["embedding"])
        assert torch.equal(one.initial.values["embedding"], other.initial.values["embedding"])


def controller_of(search):
    """The controller of a search whose training the test plays."""
    return search_algorithm(search.table.search_algorithm)(search.task)


def test_one_shot_keeps_the_largest_of_the_trained_table(planted):
    (ticket,) = planted.search(ONE_SHOT, ["100"])
    mask = ticket.masks["embedding"]
    model = planted.model(ONE_SHOT)
    ticket.apply_(model, rewind="final")
    smallest_kept = model.embedding.values.abs().min()
    assert mask.sum() == 100
    assert smallest_kept > 0.1  # fresh weights reach 0.15 at most, and are mostly below 0.1: it was trained


def test_one_shot_prunes_the_weights_of_the_best_epoch(planted, metrics, monkeypatch):
    (first,) = planted.search(ONE_SHOT, ["100"], config=replace(SEARCH, max_epochs=1))
    aucs = iter([0.8, 0.7, 0.6])
    monkeypatch.setattr("thresher.training.loop.evaluate", lambda *_, **__: metrics(next(aucs)))
    (best,) = planted.search(ONE_SHOT, ["100"], config=replace(SEARCH, max_epochs=3))
    assert torch.equal(best.masks["embedding"], first.masks["embedding"])
    assert torch.equal(best.final.values["embedding"], first.final.values["embedding"])


def test_gradual_pruning_masks_the_table_up_to_the_last_step_of_the_plan(untrained):
    search = untrained(GradualMagnitudeConfig(embedding_dim=4))
    controller, kept = controller_of(search), []
    for _ in range(30):
        controller.after_step()
        kept.append(search.table.num_parameters())
    # pruned after 0, 7 and 14 of the plan's 20 steps, and at its end
    assert kept == [40] * 16 + [8 + round(32 * 0.65**3)] * 7 + [8 + round(32 * 0.3**3)] * 6 + [8]
    assert controller.finished


def test_a_long_gradual_plan_prunes_a_thousand_times(untrained, monkeypatch):
    search = untrained(GradualMagnitudeConfig(embedding_dim=4), warmup_epochs=0, plan_epochs=1000)
    controller, pruned = controller_of(search), []
    monkeypatch.setattr(controller.search, "prune", pruned.append)
    for _ in range(10_000):
        controller.after_step()
    assert pruned == list(range(10, 10_001, 10))


@pytest.mark.parametrize(("warmup_epochs", "pruning"), [(None, True), (5, False)])
def test_a_warm_up_without_fixed_length_ends_on_validation(untrained, metrics, warmup_epochs, pruning):
    search = untrained(GradualMagnitudeConfig(embedding_dim=4), warmup_epochs=warmup_epochs, max_warmup_epochs=9)
    controller = controller_of(search)
    for epoch, auc in enumerate([0.6, 0.7, 0.7], 1):
        assert controller.search.warming_up
        for _ in range(10):
            controller.after_step()
        controller.after_epoch(epoch, metrics(auc))
    assert controller.search.warming_up is not pruning


@pytest.mark.parametrize("round_epochs", [2, None])
def test_a_round_prunes_its_best_epoch_and_the_next_begins_with_the_initial_weights(untrained, metrics, round_epochs):
    config = IterativeMagnitudeConfig(embedding_dim=4, round_keep_share=0.5, round_epochs=round_epochs)
    search = untrained(config)
    table, start = search.table, search.table.weight.detach().clone()
    controller = controller_of(search)
    optimizer = controller.optimizer
    best = torch.arange(1.0, 41).view(10, 4)

    def train_a_round(*epochs):
        for weight, auc in epochs:
            table.weight.data.copy_(weight)
            optimizer.state[table.weight] = {"step": 1}
            controller.after_epoch(controller.search.epoch + 1, metrics(auc))

    train_a_round((best, 0.8), (best.flip(0), 0.7))  # it ends by count, or because validation got no better
    assert controller.search.num_kept == controller.round_counts[0] < 40
    assert torch.equal(table.mask, best > 40 - controller.round_counts[0])
    assert torch.equal(table.weight, start)
    assert not optimizer.state
    first = table.mask.clone()
    train_a_round((best.flip(0), 0.6), (best, 0.5))  # what was pruned is the largest now, and stays pruned
    assert table.num_parameters() == controller.round_counts[1]
    assert not (table.mask & ~first).any()


def test_budgets_are_cut_largest_first(untrained, metrics):
    search = untrained(MagnitudeConfig(embedding_dim=4), budgets="4,50%,12,90B", max_epochs=1)
    controller = controller_of(search)
    assert str(controller.search.next_budget) == "90B"
    controller.after_epoch(1, metrics(0.5))
    # 90 bytes would be 22 values; the index leaves 19
    assert [ticket.num_parameters for ticket in controller.search.tickets_so_far] == [20, 19, 12, 4]


@pytest.mark.parametrize(
    "config",
    [
        MagnitudeConfig(embedding_dim=16),
        GradualMagnitudeConfig(embedding_dim=16),
        IterativeMagnitudeConfig(embedding_dim=16, round_keep_share=0.8, round_epochs=1),
    ],
    ids=CONFIGS,
)
def test_a_byte_budgets_ticket_keeps_nothing_that_was_pruned_before(config, untrained, metrics):
    """An entry takes fewer bytes than the plan guesses, so that what was pruned would fit, too."""
    search = untrained(config, budgets="1500B,600B,200B", num_rows=50, plan_epochs=4, clock_steps=2)
    table, controller = search.table, controller_of(search)
    held = {}

    def watched(what, *arguments):
        before, num_tickets = table.mask.clone(), len(controller.search.tickets_so_far)
        what(*arguments)
        held.update({str(ticket.budget): before for ticket in controller.search.tickets_so_far[num_tickets:]})

    while not controller.finished:
        for _ in range(10):
            table.weight.data[table.mask] *= 1.01
            watched(controller.after_step)
        watched(controller.after_epoch, controller.search.epoch + 1, metrics(0.5))
    for ticket in controller.search.tickets_so_far:
        mask = ticket.masks["table"]
        assert not (mask & ~held[str(ticket.budget)]).any()
        assert 0.95 * ticket.budget.amount < compact_bytes(mask) <= ticket.budget.amount


@pytest.mark.parametrize(
    "config",
    [GradualMagnitudeConfig(embedding_dim=64), IterativeMagnitudeConfig(embedding_dim=64, round_epochs=1)],
    ids=["gradual", "iterative"],
)
def test_a_byte_budget_is_met_at_the_latest_by_the_plans_end(config, untrained, metrics):
    """An entry alone in its row takes more bytes than the plan guesses."""
    search = untrained(config, budgets="1KB,400B", num_rows=1000)
    nn.init.constant_(search.table.weight, 0.01)
    with torch.no_grad():
        search.table.weight[torch.arange(1000), torch.arange(1000) % 64] = torch.linspace(1, 2, 1000)
    start, controller = search.table.weight.clone(), controller_of(search)
    while controller.search.epoch < controller.max_epochs:
        for _ in range(10):
            controller.after_step()
        search.table.weight.data.copy_(start)
        controller.after_epoch(controller.search.epoch + 1, metrics(0.5))
    assert controller.finished
    for ticket in controller.search.tickets_so_far:
        assert 0.95 * ticket.budget.amount < compact_bytes(ticket.masks["table"]) <= ticket.budget.amount


def test_pruned_entries_are_zero_and_get_no_gradient():
    table = MagnitudeEmbedding((3, 2), MagnitudeConfig(embedding_dim=2))
    table.mask[1, 0] = False
    table(torch.tensor([[1, 4]])).sum().backward()
    assert table(torch.tensor([1]))[0, 0] == 0
    assert table.weight.grad.tolist() == [[0, 0], [0, 1], [0, 0], [0, 0], [1, 1]]
    assert table.num_parameters() == 9
    assert table.storage_bytes() == 10 * 4 + 2  # values, and ten bits in two bytes
    assert table.scores()[0, 0] == -torch.inf
    assert table.scores()[4, 1] == table.weight[4, 1].abs()


@given(st.integers(10, 10**6), st.floats(0.001, 1.0), st.integers(1, 500))
def test_the_cubic_falls_from_all_to_the_smallest_ever_slower(num_entries, share, num_steps):
    plan = CubicPlan(num_entries, max(1, int(share * num_entries)), num_steps)
    counts = [plan.num_kept(step) for step in range(num_steps + 2)]
    assert counts[0] == num_entries
    assert counts[-1] == counts[-2] == plan.smallest
    falls = [a - b for a, b in itertools.pairwise(counts)]
    assert all(fall >= 0 for fall in falls)
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(falls))


@given(
    st.integers(100, 10**6),
    st.lists(st.floats(0.001, 1.0), min_size=1, max_size=4),
    st.floats(0.1, 0.9),
)
def test_rounds_reach_every_budget_and_prune_at_most_the_given_share(num_entries, shares, keep_share):
    stops = sorted({math.ceil(share * num_entries) for share in shares}, reverse=True)
    counts = round_counts(num_entries, stops, keep_share)
    assert set(stops) <= set(counts)
    assert counts[-1] == stops[-1]
    for high, low in zip([num_entries, *counts], counts, strict=False):
        assert low <= high
        assert low >= keep_share * high - 1


@pytest.mark.parametrize("share", [0.0, 0.75])
@pytest.mark.parametrize("told", [None, 0.5])
def test_a_methods_own_decay_reaches_its_table(planted, monkeypatch, told, share):
    """Whatever `search.optimizer` says of tables; a soft_labels lessens it as it lessens any."""
    built = []
    monkeypatch.setattr(
        thresher.baselines.magnitude,
        "build_optimizer",
        lambda model, config: built.append(build_optimizer(model, config)) or built[-1],
    )
    config = SearchConfig(max_epochs=1, optimizer=OptimizerConfig(weight_decay=0.1, embedding_weight_decay=told))
    soft_labels = SoftLabels(np.full(planted.data.train.num_rows, 0.5, np.float32), share) if share else None
    find_tickets(planted.model(ONE_SHOT), planted.data, ["100"], config, soft_labels=soft_labels)
    decays = {group["name"]: group["weight_decay"] for group in built[0].param_groups}
    assert decays == pytest.approx({"network": 1e-4, "embeddings": 1e-4 * (1 - share)})


def test_impossible_settings_are_refused(planted):
    with pytest.raises(ConfigError, match="round_keep_share"):
        IterativeMagnitudeConfig(round_keep_share=1.0)
    with pytest.raises(ConfigError, match="search_weight_decay"):
        MagnitudeConfig(search_weight_decay=-1.0)
    with pytest.raises(BudgetError, match="above the"):
        planted.search(ONE_SHOT, ["1M"])
