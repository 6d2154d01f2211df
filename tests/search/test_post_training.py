"""Post-training pruning: scores of a trained model's entries, exact budgets, placeholders, foreign models."""

import numpy as np
import pytest
import torch
from torch import nn

from thresher import TensorBatches, prune_trained
from thresher.attach.attach import attach_
from thresher.compact.embedding import CompactEmbedding
from thresher.compact.table import CompactTable
from thresher.compact.traceable import TraceableEmbedding
from thresher.errors import BudgetError, ConfigError
from thresher.search.budget import parse_budgets
from thresher.search.entry_scores import ScoredEntries, score_entries_
from thresher.search.post_training import PostTrainingSearch
from thresher.search.searched_table import searched_tables
from thresher.search.ticket_files import load_ticket, save_ticket

ROWS, USERS, ITEMS, D = 512, 40, 30, 8


class TwoTables(nn.Module):
    """Dot product of a user and an item vector."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, D), nn.Embedding(ITEMS, D)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return (self.users(users) * self.items(items)).sum(-1)


class Bagged(TwoTables):
    def __init__(self) -> None:
        super().__init__()
        self.items = nn.EmbeddingBag(ITEMS, D, mode="mean")

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return (self.users(users) * self.items(items.reshape(-1, 1))).sum(-1)


@pytest.fixture
def trained():
    """A model whose first two dimensions alone explain the labels; the others have larger but useless values."""
    torch.manual_seed(0)
    model = TwoTables()
    with torch.no_grad():
        model.users.weight[:, 2:], model.items.weight[:, 2:] = 3.0, 0.001
    users, items = torch.randint(USERS, (ROWS,)), torch.randint(ITEMS, (ROWS,))
    with torch.no_grad():
        labels = (model(users, items) > 0).float()
    return model, TensorBatches((users, items), labels, batch_size=64)


def accuracy(model, batches):
    inputs, labels = batches.inputs, batches.labels
    with torch.no_grad():
        return float(((model(*inputs) > 0).float() == labels).float().mean())


@pytest.mark.parametrize("score", ["taylor", "fisher", "shapley"])
def test_scores_by_data_keep_what_the_model_needs_where_magnitude_does_not(trained, score):
    model, batches = trained
    budget = 2 * (USERS + ITEMS)
    by_data = prune_trained(model, batches, [budget], score=score)[str(budget)]
    by_size = prune_trained(model, batches, [budget], score="magnitude")[str(budget)]
    assert by_data.num_parameters == by_size.num_parameters == budget
    assert accuracy(by_data.model, batches) > 0.9 > accuracy(by_size.model, batches)
    assert isinstance(model.users, nn.Embedding), "the model itself is not changed"


def test_several_budgets_at_once_equal_each_alone(trained):
    model, batches = trained
    together = prune_trained(model, batches, "300,100,50%")
    alone = prune_trained(model, batches, "100")
    assert list(together) == ["300", "100", "50%"]
    for name in ("users", "items"):
        first, second = (getattr(found["100"].model, name).to_table() for found in (together, alone))
        np.testing.assert_array_equal(first.to_dense(), second.to_dense())


def test_taylor_scores_equal_the_gradient_of_the_weights(trained):
    model, batches = trained
    expected = {"users": torch.zeros(USERS, D), "items": torch.zeros(ITEMS, D)}
    for batch in batches.epoch(1):
        loss = nn.functional.binary_cross_entropy_with_logits(model(*batch.inputs), batch.labels, reduction="sum")
        for name in expected:
            weight = model.get_submodule(name).weight
            expected[name] += (weight * torch.autograd.grad(loss, weight, retain_graph=True)[0]).abs().detach()
    attach_(model, trained=True)
    tables = {
        name: ScoredEntries.of(table.holders, (table.shape[0],)) for name, table in searched_tables(model).items()
    }
    score_entries_(model, batches, tables, "taylor")
    for name, table in tables.items():
        torch.testing.assert_close(table.total, expected[name], rtol=1e-4, atol=1e-5)


def test_means_are_weighted_by_frequency_and_count_in_the_budget(trained):
    model, batches = trained
    pruned = prune_trained(model, batches, "200", placeholder="field-mean")["200"]
    assert pruned.num_parameters == 200
    counts = torch.bincount(batches.inputs[0], minlength=USERS).float()
    mean = (model.users.weight * counts[:, None]).sum(0) / counts.sum()
    table = pruned.model.users
    assert isinstance(table, CompactEmbedding)
    dense, mask = table.to_dense(), table.mask()
    torch.testing.assert_close(dense[mask], model.users.weight.detach()[mask])
    torch.testing.assert_close(dense[~mask], mean.detach().expand(USERS, D)[~mask])
    with pytest.raises(BudgetError, match="is not above the 16 values"):
        prune_trained(model, batches, "16", placeholder="field-mean")


def test_bags_are_scored_and_pruned(trained):
    _, batches = trained
    torch.manual_seed(1)
    for placeholder in ("zeros", "field-mean"):
        pruned = prune_trained(Bagged(), batches, "50%", placeholder=placeholder)["50%"]
        assert pruned.num_parameters == (USERS + ITEMS) * D // 2
        assert pruned.model(*batches.inputs).isfinite().all()


def test_a_padding_row_is_never_kept_and_has_no_mean(trained):
    model, batches = trained
    model.users = nn.Embedding(USERS, D, padding_idx=0)
    pruned = prune_trained(model, batches, "80%", score="magnitude")["80%"]
    assert pruned.model.users.sizes()[0] == 0
    with pytest.raises(ConfigError, match="padding row"):
        prune_trained(model, batches, "80%", placeholder="field-mean")


def test_a_table_with_placeholders_reads_the_same_in_every_form(tmp_path):
    torch.manual_seed(0)
    sizes, mask = [3, 4], torch.rand(7, D) < 0.4
    embedding = CompactEmbedding(sizes, D, mask.reshape(-1).nonzero().squeeze(1), torch.randn(int(mask.sum())))
    embedding.set_placeholder_(torch.randn(2, D))
    expected = embedding.to_dense().detach()
    ids = torch.tensor([[0, 3], [2, 6]])
    table = embedding.to_table()
    table.save(tmp_path / "table.safetensors")
    loaded = CompactTable.load(tmp_path / "table.safetensors")
    assert table.storage_bytes == embedding.storage_bytes() == loaded.storage_bytes
    assert table.num_parameters == embedding.num_parameters() == int(mask.sum()) + 2 * D
    for form in (
        embedding,
        loaded.lookup,
        TraceableEmbedding(sizes, loaded),
        CompactEmbedding.from_table(sizes, loaded),
    ):
        torch.testing.assert_close(form(ids).detach(), expected[ids])
    np.testing.assert_allclose(loaded.to_dense(), expected, rtol=1e-6)
    assert not loaded.lookup(np.array([9]), out_of_range="zeros").any()
    bags = loaded.lookup_bags(np.array([0, 3, 6]), np.array([0, 1, 3, 3]))
    np.testing.assert_allclose(bags, [expected[0], expected[[3, 6]].mean(0), torch.zeros(D)], rtol=1e-5)
    half = loaded.to_value_type("fp16").lookup(ids)
    torch.testing.assert_close(half, expected[ids], rtol=1e-2, atol=1e-2)


def test_tickets_keep_their_placeholders(trained, tmp_path):
    model, batches = trained
    attach_(model, trained=True)
    tables = {
        name: ScoredEntries.of(table.holders, (table.shape[0],)) for name, table in searched_tables(model).items()
    }
    search = PostTrainingSearch(model, tables, parse_budgets("100"), placeholder="field-mean", seed=0)
    (ticket,) = search.run(batches, "magnitude")
    save_ticket(ticket, tmp_path / "ticket")
    loaded = load_ticket(tmp_path / "ticket")
    assert loaded.num_parameters == ticket.num_parameters == 100
    first, second = TwoTables(), TwoTables()
    ticket.apply_(first, rewind="final")
    loaded.apply_(second, rewind="final")
    torch.testing.assert_close(first.users.to_dense(), second.users.to_dense())
