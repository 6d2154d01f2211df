"""Searches with row updates: the same values and gradients as with dense updates, exact tickets, resume."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from thresher.data.batches.split_batches import SplitBatches
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.embeddings.thresholds import GRANULARITIES
from thresher.embeddings.uniform import UniformConfig, UniformEmbedding
from thresher.errors import ConfigError
from thresher.models.fm import DeepFm, DeepFmConfig, Fm, FmConfig
from thresher.search.find_tickets import find_tickets
from thresher.search.schedule import SearchConfig
from thresher.search.searcher import Searcher
from thresher.training import optimizers
from thresher.training.optimizers import OptimizerConfig, build_optimizer
from thresher.training.row_adam import RowAdam

FIELD_SIZES = [20, 7, 13]


def batch(num_rows=16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.tensor(FIELD_SIZES)
    local = (torch.rand(num_rows, 3, generator=generator) ** 2 * sizes).long()
    ids = local + (sizes.cumsum(0) - sizes)
    labels = (ids.sum(1) % 3 == 0).float()
    return ids.int(), labels


def gradients(model, row_gradients, ids, labels):
    for module in model.modules():
        if hasattr(module, "row_gradients"):
            module.row_gradients = row_gradients
    model.zero_grad()
    logits = model(ids.clone())
    binary_cross_entropy_with_logits(logits, labels).backward()
    dense = {name: p.grad.to_dense() for name, p in model.named_parameters() if p.grad is not None}
    return logits.detach(), dense


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("function", ["softplus", "sigmoid"])
@pytest.mark.parametrize("clock", [-torch.inf, -2.0, 0.0])
def test_pep_gives_the_same_values_and_gradients_by_rows(granularity, function, clock):
    torch.manual_seed(0)
    config = PepConfig(embedding_dim=8, granularity=granularity, threshold_function=function)
    embedding = PepEmbedding(FIELD_SIZES, config)
    torch.nn.init.normal_(embedding.weight, std=0.5)
    torch.nn.init.normal_(embedding.deviation)
    embedding.clock.fill_(clock)
    model = Fm(embedding, FmConfig())
    dense_logits, dense = gradients(model, False, *batch())
    row_logits, rows = gradients(model, True, *batch())
    assert embedding.weight.grad.is_sparse
    assert model.linear_term.weights.weight.grad.is_sparse
    torch.testing.assert_close(row_logits, dense_logits, rtol=1e-4, atol=1e-5)
    if clock == -torch.inf:
        assert not dense.pop("embedding.deviation").any()
    assert rows.keys() == dense.keys()
    for name, grad in dense.items():
        torch.testing.assert_close(rows[name], grad, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(("model_class", "config"), [(Fm, FmConfig()), (DeepFm, DeepFmConfig(dropout=0.0))])
def test_unpruned_models_give_the_same_by_rows(model_class, config):
    torch.manual_seed(0)
    model = model_class(UniformEmbedding(FIELD_SIZES, UniformConfig(embedding_dim=8)), config)
    dense_logits, dense = gradients(model, False, *batch())
    row_logits, rows = gradients(model, True, *batch())
    torch.testing.assert_close(row_logits, dense_logits, rtol=1e-4, atol=1e-5)
    for name, grad in dense.items():
        torch.testing.assert_close(rows[name], grad, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("granularity", ["feature-dimension", "dimension", "feature"])
def test_a_search_by_rows_follows_its_plan_and_cuts_exact_tickets(granularity):
    torch.manual_seed(0)
    embedding = PepEmbedding(FIELD_SIZES, PepConfig(embedding_dim=16, granularity=granularity))
    model = Fm(embedding, FmConfig())
    optimizer = build_optimizer(model, OptimizerConfig(updates="rows", learning_rate=0.02))
    assert isinstance(optimizer, RowAdam)
    searcher = Searcher(model, [200, 50], steps=120, warmup_steps=40, every=4)
    off = []
    for step in range(120):
        ids, labels = batch(64, seed=step)
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(model(ids), labels).backward()
        optimizer.step()
        searcher.step()
        if step >= 44 and step % 4 == 3:
            off.append(abs(embedding.num_parameters() - searcher.num_kept) / searcher.num_kept)
    assert sum(off) / len(off) < 0.03
    assert searcher.finished
    assert [ticket.num_parameters for ticket in searcher.tickets] == [200, 50]


def test_the_clock_by_histogram_is_the_clock_by_all_scores():
    torch.manual_seed(0)
    embedding = PepEmbedding([2000], PepConfig(embedding_dim=16))
    torch.nn.init.normal_(embedding.weight, std=0.1)
    embedding.seen.fill_(True)
    clocks = {}
    for by_rows in (False, True):
        embedding.row_gradients = by_rows
        searcher = Searcher(torch.nn.Sequential(embedding), [100], steps=100, warmup_steps=0, every=50)
        for _ in range(50):
            searcher.step()
        clocks[by_rows] = embedding.clock.item()
    assert clocks[True] == pytest.approx(clocks[False], abs=0.005)


def test_row_updates_are_refused_where_every_threshold_must_move_at_every_step():
    model = Fm(PepEmbedding(FIELD_SIZES, PepConfig(embedding_dim=8, pressure="decay")), FmConfig())
    with pytest.raises(ConfigError, match='pressure = "decay"'):
        build_optimizer(model, OptimizerConfig(updates="rows"))
    assert isinstance(build_optimizer(model, OptimizerConfig(updates="auto")), torch.optim.Adam)


def test_auto_takes_rows_for_large_tables_alone(monkeypatch):
    model = Fm(UniformEmbedding(FIELD_SIZES, UniformConfig(embedding_dim=8)), FmConfig())
    assert isinstance(build_optimizer(model, OptimizerConfig()), torch.optim.Adam)
    assert not model.embedding.row_gradients
    monkeypatch.setattr(optimizers, "ROWS_FROM_ENTRIES", 40 * 8)
    assert isinstance(build_optimizer(model, OptimizerConfig()), RowAdam)
    assert model.embedding.row_gradients
    assert model.linear_term.row_gradients


class Killed(Exception):
    """Stands for the end of the process."""


class KilledInEpoch:
    def __init__(self, source, epoch):
        self.source, self.num_rows, self.last_epoch = source, source.num_rows, epoch

    def __len__(self):
        return len(self.source)

    def epoch(self, epoch, start=0):
        for at, batch in enumerate(self.source.epoch(epoch, start)):
            if epoch == self.last_epoch and at == 3:
                raise Killed
            yield batch


def test_a_killed_search_by_rows_resumes_to_the_same_tickets(tmp_path):
    rows = SyntheticConfig(num_rows=6_000, num_signal_fields=3, num_noise_fields=3, field_size=40, seed=3)
    table = encode(build_source(DataConfig(source="synthetic", synthetic=rows)), tmp_path / "encoded")
    data = SplitBatches.of(table, 256, seed=0)
    config = SearchConfig(
        warmup_epochs=1, plan_epochs=3, clock_steps=5, optimizer=OptimizerConfig(learning_rate=2e-2, updates="rows")
    )

    def search(data, folder):
        torch.manual_seed(0)
        model = Fm(PepEmbedding(table.schema.field_sizes, PepConfig(embedding_dim=8)), FmConfig())
        return find_tickets(model, data, ["20%", "3%"], config, seed=1, folder=folder)

    whole = search(data, tmp_path / "whole")
    with pytest.raises(Killed):
        search(replace(data, train=KilledInEpoch(data.train, 3)), tmp_path / "killed")
    resumed = search(data, tmp_path / "killed")
    assert len(whole) == len(resumed) == 2
    for a, b in zip(whole, resumed, strict=True):
        for name, mask in a.masks.items():
            assert torch.equal(mask, b.masks[name])
            assert torch.equal(a.final.values[name], b.final.values[name])
