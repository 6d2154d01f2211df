"""Budgets such as `10%rows`: tickets keep or drop whole rows."""

import pytest
import torch
from torch import nn

from thresher import PepConfig, Searcher, attach_
from thresher.embeddings.uniform import UniformConfig, UniformEmbedding
from thresher.errors import BudgetError
from thresher.search.budget import parse_budgets
from thresher.search.find_tickets import unmet_budgets
from thresher.search.schedule import SearchConfig


class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.items, self.users = nn.Embedding(40, 4, padding_idx=0), nn.Embedding(20, 8)

    def forward(self, step):
        draw = torch.Generator().manual_seed(step)
        items, users = torch.randint(30, (64,), generator=draw), torch.randint(20, (64,), generator=draw)
        return self.items(items).sum(1) * (items % 3 - 1) + self.users(users).sum(1) * (users % 2)


@pytest.mark.filterwarnings("ignore:the ticket of .* keeps no entry")
@pytest.mark.parametrize("pressure", ["plan", "decay"])
def test_a_ticket_keeps_whole_rows_over_all_tables(pressure):
    model = Tables()
    attach_(model, PepConfig(pressure=pressure, raw_threshold_init=-3.0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    searcher = Searcher(model, ["50%rows", "10%rows", "10%"], steps=60, warmup_steps=0, every=5)
    for step in range(60):
        optimizer.zero_grad()
        (model(step) - 1).square().mean().backward()
        optimizer.step()
        if pressure == "plan":
            searcher.step()
    if pressure == "decay":
        searcher.cut_due(searcher._scores(), at_least=0)
    tickets = {str(ticket.budget): ticket for ticket in searcher.tickets}
    for budget, num_rows in (("50%rows", 29), ("10%rows", 5)):  # of 59: the padding row does not count
        ticket = tickets[budget]
        masks = ticket.masks.values()
        assert sum(int(mask.any(1).sum()) for mask in masks) == num_rows
        assert all(torch.equal(mask.any(1), mask.all(1)) for mask in masks)
        assert not ticket.masks["items"][0].any()
        assert not ticket.masks["items"][30:].any()  # never looked up
    assert tickets["10%"].num_parameters == searcher.num_entries // 10


def test_the_rows_kept_have_the_largest_norms():
    model = nn.Sequential(nn.Embedding(30, 4))
    attach_(model, trained=True)
    with torch.no_grad():
        model[0].raw_weight.mul_(torch.linspace(0.1, 2, 30).unsqueeze(1))
    expected = model[0].raw_weight.detach().norm(dim=1).topk(6).indices.sort().values
    searcher = Searcher(model, "20%rows", steps=1, warmup_steps=0, every=1)
    model[0].clock.fill_(-torch.inf)
    [mask] = searcher._top_rows(searcher.budgets[0]).values()
    assert torch.equal(mask.all(1).nonzero().squeeze(1), expected)


def test_searches_that_choose_sizes_refuse_row_budgets():
    model = nn.Sequential(UniformEmbedding([10, 10], UniformConfig()))
    [rows] = parse_budgets("10%rows")
    unmet = unmet_budgets(model, None, [rows], SearchConfig())
    assert isinstance(unmet[rows], BudgetError)
