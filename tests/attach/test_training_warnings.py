"""Warnings for tables that a search looks up but that are not trained: frozen, no gradients, no optimizer."""

import warnings

import pytest
import torch
from torch import nn

from thresher import Searcher, attach_


class TwoTowers(nn.Module):
    """Two tables; `user_vectors` may block the gradients of the first."""

    def __init__(self, user_vectors=lambda table, ids: table(ids)):
        super().__init__()
        torch.manual_seed(0)
        self.users, self.items = nn.Embedding(20, 4), nn.Embedding(20, 4)
        self.user_vectors = user_vectors

    def forward(self, ids):
        return (self.user_vectors(self.users, ids) * self.items(ids)).sum(1)


def search_towers(model, *, trained=False, left_out="", learning_rates=(0.1,) * 10):
    attach_(model, trained=trained)
    searcher = Searcher(model, [40], steps=10, warmup_steps=2, every=2)
    learned = [parameter for name, parameter in model.named_parameters() if name != left_out]
    optimizer = torch.optim.SGD(learned, lr=0.1)
    for learning_rate in learning_rates:
        optimizer.param_groups[0]["lr"] = learning_rate
        optimizer.zero_grad()
        model(torch.arange(20)).square().sum().backward()
        optimizer.step()
        searcher.step()
    return searcher


def without_gradients(table, ids):
    with torch.no_grad():
        return table(ids)


@pytest.mark.parametrize("user_vectors", [without_gradients, lambda table, ids: table(ids).detach()])
def test_a_table_without_gradients_warns_once(user_vectors):
    with pytest.warns(UserWarning, match=r"users did not change.*torch.no_grad\(\).*where=…") as caught:
        search_towers(TwoTowers(user_vectors))
    [warning] = [warning for warning in caught if "did not change" in str(warning.message)]
    assert warning.filename == __file__


def test_a_table_frozen_after_attaching_or_not_in_the_optimizer_warns():
    model = TwoTowers()
    attach_(model, where="users")
    model.users.weight.requires_grad_(False)
    with pytest.warns(UserWarning, match="users did not change"):
        search_towers(model)
    with pytest.warns(UserWarning, match="users did not change"):
        search_towers(TwoTowers(), left_out="users.weight")


def test_no_warning_with_learning_rate_warmup_or_trained_tables():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search_towers(TwoTowers(), learning_rates=[0.0] * 5 + [0.1] * 5)  # learning-rate warm-up
        frozen = TwoTowers()
        frozen.users.weight.requires_grad_(False)
        (ticket,) = search_towers(frozen, trained=True).tickets
    assert ticket.num_parameters == 40


def test_a_ticket_keeps_frozen_tables_frozen():
    (ticket,) = search_towers(TwoTowers()).tickets
    fresh = TwoTowers()
    fresh.users.weight.requires_grad_(False)
    ticket.apply_(fresh)
    assert not fresh.users.values.requires_grad
    assert fresh.items.values.requires_grad
