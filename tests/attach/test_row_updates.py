"""Attached tables with sparse=True: the clock follows row updates, and tickets of large tables are exact."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from thresher import RowAdam, Searcher, attach_, threshold_group
from thresher.embeddings.pep import PepConfig
from thresher.kernels.score_histogram import ScoreHistogram
from thresher.kernels.top_scores import rows_above
from thresher.search import searched_table, searcher

NUM_ITEMS, WIDTH = 60, 4


class Tables(nn.Module):
    """One table looked up by two modules, one of them with padding, and a bag."""

    def __init__(self, *, sparse=True):
        super().__init__()
        torch.manual_seed(0)
        self.items = nn.Embedding(NUM_ITEMS, WIDTH, sparse=sparse, padding_idx=0)
        self.history = nn.Embedding(NUM_ITEMS, WIDTH, sparse=sparse, padding_idx=0)
        self.history.weight = self.items.weight
        self.bag = nn.EmbeddingBag(NUM_ITEMS, WIDTH, mode="sum", sparse=sparse, padding_idx=0)

    def forward(self, ids):
        return (self.items(ids[:, 0]) * self.history(ids[:, 1]) + self.bag(ids)).sum(1)


def batch(step):
    draw = torch.Generator().manual_seed(step)
    ids = (torch.rand(32, 3, generator=draw) ** 2 * NUM_ITEMS).long()
    return ids, (ids.sum(1) % 2).float()


def take_step(model, optimizer, step):
    ids, labels = batch(step)
    optimizer.zero_grad()
    functional.binary_cross_entropy_with_logits(model(ids), labels).backward()
    optimizer.step()


OPTIMIZERS = {
    "RowAdam": lambda model: RowAdam(model.parameters(), lr=0.05),
    "SparseAdam": lambda model: torch.optim.SparseAdam(model.parameters(), lr=0.05),
}


@pytest.mark.parametrize("granularity", ["feature", "feature-dimension"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_histograms_follow_row_updates_without_counting_again(name, granularity, monkeypatch):
    model = Tables()
    attach_(model, PepConfig(granularity=granularity))
    optimizer = OPTIMIZERS[name](model)
    search = Searcher(model, ["10%"], steps=60, warmup_steps=10, every=5)
    counted = []
    count_all = ScoreHistogram._count_all
    monkeypatch.setattr(ScoreHistogram, "_count_all", lambda self: (counted.append(self), count_all(self)))
    for step in range(59):
        take_step(model, optimizer, step)
        search.step()
        for table in search.tables.values():
            holder = table.holders[0]
            if holder._score_histogram is not None:
                known = table.score_histogram().counts().clone()
                afresh = ScoreHistogram(holder.raw_weight, holder.thresholds, holder.seen, padding_id=0)
                count_all(afresh)
                afresh._versions = afresh._current_versions()
                assert torch.equal(known, afresh.counts())
    assert len(counted) == len(search.tables)
    assert not model.items.raw_weight[0].any()  # the padding row


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_tickets_of_large_tables_are_those_of_exact_scores(name, monkeypatch):
    found = []
    for large in (False, True):
        monkeypatch.setattr(searched_table, "IN_MEMORY_ENTRIES", 0 if large else 1 << 22)
        monkeypatch.setattr(searcher, "IN_MEMORY_ENTRIES", 0 if large else 1 << 22)
        model = Tables()
        attach_(model)
        optimizer = OPTIMIZERS[name](model)
        search = Searcher(model, ["10%", "4%"], steps=60, warmup_steps=10, every=5)
        for step in range(60):
            take_step(model, optimizer, step)
            search.step()
        found.append(search.tickets)
    for exact, by_rows in zip(*found, strict=True):
        assert exact.num_parameters == by_rows.num_parameters
        assert all(torch.equal(mask, by_rows.masks[table]) for table, mask in exact.masks.items())


def test_few_rows_of_a_large_table_hold_its_top_scores():
    model = nn.Sequential(nn.Embedding(500, WIDTH, sparse=True))
    attach_(model, trained=True)
    with torch.no_grad():
        model[0].raw_weight.mul_(torch.linspace(1.0, 0.01, 500).unsqueeze(1))
    tables = searched_table.searched_tables(model)
    [few] = searched_table.rows_with_top_scores(tables, 40).values()
    exact = searched_table.ScoresInMemory(model[0].scores())
    [mask] = searched_table_masks(few, 40)
    [expected] = searched_table_masks(exact, 40)
    assert torch.equal(few.whole_mask(mask), expected)
    assert len(few.rows) < 100


def searched_table_masks(table, num_kept):
    from thresher.kernels.top_scores import top_masks

    return top_masks([table], num_kept)


@pytest.mark.parametrize("function", ["softplus", "sigmoid"])
def test_rows_above_a_bound(function):
    draw = torch.Generator().manual_seed(0)
    weight, deviation = torch.rand(50, 3, generator=draw), torch.randn(50, 1, generator=draw)
    counted = torch.rand(50, generator=draw) < 0.8
    inverse = torch.log(torch.expm1(weight)) if function == "softplus" else torch.logit(weight)
    above = (inverse - deviation > 0.3) & counted.unsqueeze(1)
    rows, number = rows_above(weight, deviation, counted, 0.3, function=function)
    assert rows.tolist() == above.any(1).nonzero().squeeze(1).tolist()
    assert number == int(above.sum())


def test_a_dense_gradient_of_a_sparse_table_counts_all_rows_again():
    model = Tables()
    attach_(model)
    optimizer = RowAdam(model.parameters(), lr=0.05)
    search = Searcher(model, ["10%"], steps=30, warmup_steps=5, every=5)
    for step in range(25):
        ids, labels = batch(step)
        optimizer.zero_grad()
        scores = model(ids) + (model.items.weight @ torch.ones(WIDTH))[ids[:, 0]]  # reads the table
        functional.binary_cross_entropy_with_logits(scores, labels).backward()
        optimizer.step()
        search.step()
    table = search.tables["items"]
    holder = table.holders[0]
    afresh = ScoreHistogram(holder.raw_weight, holder.thresholds, holder.seen, padding_id=0)
    assert torch.equal(table.score_histogram().counts(), afresh.counts())


def test_a_copy_of_a_model_in_search_goes_on_alone():
    model = Tables()
    attach_(model)
    optimizer = RowAdam(model.parameters(), lr=0.05)
    search = Searcher(model, ["10%"], steps=30, warmup_steps=5, every=5)
    for step in range(20):
        take_step(model, optimizer, step)
        search.step()
    copied = copy.deepcopy(model)
    take_step(copied, RowAdam(copied.parameters(), lr=0.05), 20)
    holder = copied.items
    afresh = ScoreHistogram(holder.raw_weight, holder.thresholds, holder.seen, padding_id=0)
    assert torch.equal(holder.score_histogram().counts(), afresh.counts())


def test_row_adam_catches_up_before_a_cut_without_being_told():
    model = Tables()
    attach_(model)
    optimizer = RowAdam(model.parameters(), lr=0.05)
    calls = []
    optimizer.catch_up = lambda: calls.append(1)
    search = Searcher(model, ["10%"], steps=20, warmup_steps=5, every=5)
    for step in range(20):
        take_step(model, optimizer, step)
        search.step()
    assert search.finished
    assert calls


def test_gradients_equal_those_of_the_path_in_plain_torch():
    sparse, dense = Tables(), Tables(sparse=False)
    ids, labels = batch(0)
    gradients = []
    for model in (sparse, dense):
        attach_(model)
        for table in (model.items, model.history, model.bag):
            table.clock.fill_(-1.0)
        functional.binary_cross_entropy_with_logits(model(ids), labels).backward()
        gradients.append({name: parameter.grad.to_dense() for name, parameter in model.named_parameters()})
    assert sparse.items.raw_weight.grad.is_sparse
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name])
    assert not gradients[0]["items.weight"][0].any()


def test_long_searches_set_the_clock_less_often():
    model = Tables()
    attach_(model)
    for steps, every in ((300, 20), (90_000, 60)):
        assert Searcher(model, ["10%"], steps=steps).schedule.every == every


def test_thresholds_of_sparse_tables_can_be_frozen_for_sparse_adam():
    model = Tables()
    attach_(model, PepConfig(learn_deviation=False))
    optimizer = OPTIMIZERS["SparseAdam"](model)
    search = Searcher(model, ["10%"], steps=20, warmup_steps=5, every=5)
    for step in range(20):
        take_step(model, optimizer, step)
        search.step()
    assert search.tickets[0].num_parameters == search.num_entries // 10
    with pytest.raises(Exception, match="no learnable thresholds"):
        threshold_group(model)
