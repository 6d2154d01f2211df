"""detach_ on compact tables restores plain modules with the same outputs, sharing and settings."""

import copy

import pytest
import torch
from torch import nn

from thresher import Searcher
from thresher.attach import AttachedTable, attach_, compact_, detach_
from thresher.attach.compact_tables import put_compact_
from thresher.embeddings.uniform import UniformConfig, UniformEmbedding
from thresher.errors import AttachError

USERS, HISTORIES = torch.tensor([1, 2, 19]), torch.tensor([[0, 3, 3], [5, 0, 0], [7, 8, 9]])


class Towers(nn.Module):
    """A users table, and an items table shared by an embedding, a bag and a linear layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.users = nn.Embedding(20, 4)
        self.items = nn.Embedding(12, 4, padding_idx=0)
        self.history = nn.EmbeddingBag(12, 4, mode="mean", padding_idx=0)
        self.history.weight = self.items.weight
        self.scores = nn.Linear(4, 12)
        self.scores.weight = self.items.weight

    def forward(self, users, histories):
        return self.scores(self.users(users) + self.history(histories) + self.items(histories).sum(1))


@pytest.fixture(scope="module")
def ticket():
    model = Towers()
    attach_(model)
    searcher = Searcher(model, ["30%"], steps=20, every=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.arange(20), torch.arange(20)[:, None] % 12).logsumexp(1).sum().backward()
        optimizer.step()
        searcher.step()
    return searcher.tickets[0]


@pytest.fixture
def pruned(ticket):
    model = Towers()
    ticket.apply_(model)
    return model


@pytest.mark.parametrize("frozen", [False, True])
def test_plain_modules_give_the_outputs_of_the_compact_ones(pruned, frozen):
    if frozen:
        compact_(pruned)
    expected = pruned(USERS, HISTORIES)
    touched = detach_(pruned)
    assert touched == [AttachedTable("users", 20, 4), AttachedTable("items", 12, 4, ("history", "scores"))]
    assert torch.equal(pruned(USERS, HISTORIES), expected)
    assert [type(module) for module in pruned.children()] == [nn.Embedding, nn.Embedding, nn.EmbeddingBag, nn.Linear]
    assert pruned.items.weight is pruned.history.weight is pruned.scores.weight
    assert pruned.users.weight.requires_grad is pruned.items.weight.requires_grad is not frozen
    assert (pruned.items.padding_idx, pruned.history.padding_idx, pruned.history.mode) == (0, 0, "mean")
    assert list(pruned.state_dict()) == list(Towers().state_dict())
    Towers().load_state_dict(pruned.state_dict())


def test_a_copy_or_a_submodule_can_be_detached(pruned):
    expected = pruned(USERS, HISTORIES)
    twin = copy.deepcopy(pruned)
    detach_(twin)
    assert twin.items.weight is twin.history.weight
    assert torch.equal(twin(USERS, HISTORIES), expected)
    detach_(head := nn.Sequential(pruned.scores))
    assert type(head[0]) is nn.Linear
    assert torch.equal(pruned(USERS, HISTORIES), expected)


def test_a_detached_model_can_be_exported(pruned):
    compact_(pruned)
    detach_(pruned)
    program = torch.export.export(pruned.eval(), (USERS, HISTORIES))
    torch.testing.assert_close(program.module()(USERS, HISTORIES), pruned(USERS, HISTORIES))


def test_a_detached_model_can_be_attached_and_trained_again(pruned):
    detach_(pruned)
    attach_(pruned, trained=True)
    pruned(USERS, HISTORIES).sum().backward()
    assert pruned.items.weight.grad is not None


def test_compact_modules_do_not_hold_the_dense_table(pruned):
    held = [value for value in vars(pruned.users)["_original"][1]["_parameters"].values() if value is not None]
    assert held == []


def test_compact_tables_that_cannot_be_restored_raise(pruned):
    with pytest.raises(AttachError, match="users is compact and its pruned entries are gone"):
        detach_(pruned, prune=False)
    embedding = nn.Sequential(UniformEmbedding([6], UniformConfig(embedding_dim=2)))  # never was a plain module
    put_compact_(embedding, "0", torch.tensor([0, 3]), torch.ones(2))
    with pytest.raises(AttachError, match="no attached or compact table"):
        detach_(embedding)
