"""What a searcher warns of: loops that end too early, tables that lose all entries, weight decay on thresholds."""

import gc
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer

from thresher import RowAdam, Searcher, attach_, threshold_group
from thresher.embeddings.pep import PepConfig


class Towers(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        torch.manual_seed(0)
        self.users, self.items = nn.Embedding(30, 4, **settings), nn.Embedding(20, 4, **settings)

    def forward(self, ids):
        return (self.users(ids) * self.items(ids % 20)).sum(1)


def run(model, optimizer, searcher, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.arange(30)).square().sum().backward()
        optimizer.step()
        searcher.step()


def searched_towers(steps, budgets=("50%", "20%", "10%"), **settings):
    model = Towers()
    attach_(model)
    searcher = Searcher(model, budgets, steps=40, warmup_steps=10, every=5, **settings)
    run(model, torch.optim.Adam(model.parameters(), lr=0.01), searcher, steps)
    return searcher


def test_reading_the_tickets_of_an_unfinished_search_names_the_missing_budgets_once():
    searcher = searched_towers(30)
    assert [str(ticket.budget) for ticket in searcher.tickets_so_far] == ["50%"]
    with pytest.warns(UserWarning, match=r"no ticket for 20%, 10%: it is at step 30 of 40.*early stopping") as caught:
        assert searcher.tickets == searcher.tickets_so_far
    assert caught[0].filename == __file__
    assert len(searcher.tickets) == 1


def test_a_finished_search_and_one_that_has_not_begun_do_not_warn():
    assert len(searched_towers(40).tickets) == 3
    assert searched_towers(0).tickets == []


def test_leaving_the_search_early_warns_unless_an_error_ended_it():
    with pytest.warns(UserWarning, match="no ticket for 50%, 20%, 10%"), searched_towers(5):
        pass
    with searched_towers(40) as searcher:
        assert searcher.finished
    with pytest.raises(KeyboardInterrupt), searched_towers(5):
        raise KeyboardInterrupt


def test_a_ticket_that_empties_a_table_warns():
    model = Towers()
    with torch.no_grad():
        model.items.weight.mul_(1e-3)
    attach_(model)
    searcher = Searcher(model, ["70%", "10"], steps=20, warmup_steps=5, every=5)
    with pytest.warns(UserWarning, match=r"the ticket of 10 keeps no entry of items: its vectors are all 0") as caught:
        run(model, torch.optim.SGD(model.parameters(), lr=1e-4), searcher, 20)
    assert len(caught) == 1
    assert searcher.tickets[0].masks["items"].any()


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, RowAdam])
def test_weight_decay_on_thresholds_warns_at_the_first_step(kind):
    model = Towers()
    attach_(model)
    searcher = Searcher(model, ["50%"], steps=40)
    optimizer = kind(model.parameters(), lr=0.01, weight_decay=0.1)
    with pytest.warns(
        UserWarning, match=r"weight decay of 0\.1 to the thresholds of users, items.*threshold_group"
    ) as w:
        run(model, optimizer, searcher, 1)
    assert w[0].filename == __file__
    run(model, optimizer, searcher, 5)


@pytest.mark.parametrize("case", ["threshold_group", "no decay", "decay raises thresholds", "thresholds are fixed"])
def test_no_warning_where_weight_decay_does_not_act_on_thresholds_or_is_meant_to(case):
    config = {
        "decay raises thresholds": PepConfig(pressure="decay"),
        "thresholds are fixed": PepConfig(learn_deviation=False),
    }.get(case)
    model = Towers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, weight_decay=0.1)
    attach_(model, config)
    if case == "threshold_group":
        optimizer.add_param_group(threshold_group(model))
    else:
        decay = 0.0 if case == "no decay" else 0.1
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, weight_decay=decay)
    run(model, optimizer, Searcher(model, ["50%"], steps=40), 2)


def test_the_hook_on_optimizers_is_removed_and_keeps_no_model_alive():
    before = len(torch_optimizer._global_optimizer_post_hooks)
    searched_towers(2)
    assert len(torch_optimizer._global_optimizer_post_hooks) == before
    model = Towers()
    attach_(model)
    Searcher(model, ["50%"], steps=40)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None
    other = nn.Linear(2, 1)
    torch.optim.SGD(other.parameters(), weight_decay=0.1).step()


def test_one_row_adam_updates_sparse_tables_that_were_not_attached():
    class WithBias(Towers):
        def __init__(self):
            super().__init__(sparse=True)
            self.bias = nn.Embedding(30, 1, sparse=True)

        def forward(self, ids):
            return super().forward(ids) + self.bias(ids).squeeze(1)

    model = WithBias()
    assert [table.name for table in attach_(model)] == ["users", "items"]
    searcher = Searcher(model, ["50%"], steps=10, warmup_steps=2, every=2)
    run(model, RowAdam(model.parameters(), lr=0.01), searcher, 10)
    [ticket] = searcher.tickets
    retrained = WithBias()
    ticket.apply_(retrained)
    before = {name: parameter.detach().clone() for name, parameter in retrained.named_parameters()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(retrained, RowAdam(retrained.parameters(), lr=0.01), _NoSearch(), 3)
    assert all(not torch.equal(parameter, before[name]) for name, parameter in retrained.named_parameters())


class _NoSearch:
    def step(self):
        pass
