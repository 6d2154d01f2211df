"""The searcher: exact counts over all tables, on plan, whatever loop drives it."""

import itertools

import pytest
import torch
from torch import nn

from thresher.compact.layouts import compact_bytes
from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.errors import AttachError, BudgetError, ConfigError, NonFiniteError
from thresher.search.budget import Budget
from thresher.search.mask_search import clock_for, planned_entries, top_entries
from thresher.search.searcher import Searcher


class TwoTables(nn.Module):
    """Two PEP tables of different width and a linear layer, fed with ids of both."""

    def __init__(self, **settings):
        super().__init__()
        torch.manual_seed(3)
        self.left = PepEmbedding((30,), PepConfig(embedding_dim=8, **settings))
        self.right = PepEmbedding((20,), PepConfig(embedding_dim=4, **settings))
        self.head = nn.Linear(12, 1)

    def forward(self, left, right):
        return self.head(torch.cat([self.left(left), self.right(right)], dim=-1)).squeeze(-1)


NUM_ENTRIES = 30 * 8 + 20 * 4


def run(model, searcher, *, steps, lr=1e-2, threshold_decay=0.0):
    thresholds = [p for t in (model.left, model.right) for p in t.parameter_groups()["thresholds"]]
    others = [p for p in model.parameters() if all(p is not t for t in thresholds)]
    optimizer = torch.optim.Adam([{"params": others}, {"params": thresholds, "weight_decay": threshold_decay}], lr=lr)
    generator = torch.Generator().manual_seed(0)
    counts = []
    for _ in range(steps):
        left = torch.randint(30, (64,), generator=generator)
        right = torch.randint(20, (64,), generator=generator)
        labels = ((left + right) % 2).float()
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(left, right), labels).backward()
        optimizer.step()
        searcher.step()
        counts.append(model.left.num_parameters() + model.right.num_parameters())
    return counts


@pytest.mark.parametrize("granularity", ["global", "dimension", "feature-dimension"])
def test_every_budget_gets_exactly_its_entries_over_all_tables(granularity):
    model = TwoTables(granularity=granularity)
    searcher = Searcher(model, ["100", "10%", "5"], steps=60, warmup_steps=20, every=5)
    run(model, searcher, steps=60)
    assert searcher.finished
    assert {str(t.budget): t.num_parameters for t in searcher.tickets} == {"100": 100, "10%": 32, "5": 5}
    for ticket in searcher.tickets:
        assert sum(int(mask.sum()) for mask in ticket.masks.values()) == ticket.num_parameters


def test_the_count_follows_the_plan_after_a_warm_up_that_prunes_nothing():
    model = TwoTables()
    searcher = Searcher(model, ["10"], steps=120, warmup_steps=40, every=1)
    counts = run(model, searcher, steps=120)
    assert set(counts[:39]) == {NUM_ENTRIES}
    for step in range(0, 80, 10):
        # the forward before the next clock sees one more optimizer step, so the count may be off by a few entries
        assert abs(counts[39 + step] - searcher.plan.num_kept(step)) <= 1
    assert searcher.finished


def test_masks_keep_the_highest_scores():
    model = TwoTables()
    searcher = Searcher(model, ["50"], steps=40, warmup_steps=20, every=5)
    run(model, searcher, steps=40)
    (ticket,) = searcher.tickets
    for name, table in searcher.tables.items():
        scores, mask = table.scores(), ticket.masks[name]
        other = searcher.tables["right" if name == "left" else "left"].scores()[
            ~ticket.masks["right" if name == "left" else "left"]
        ]
        assert scores[mask].min() >= scores[~mask].max()
        assert scores[mask].min() >= other.max()


def test_tickets_hold_the_state_before_the_first_step():
    model = TwoTables()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    searcher = Searcher(model, ["50"], steps=40, warmup_steps=20)
    run(model, searcher, steps=40)
    (ticket,) = searcher.tickets
    assert torch.equal(ticket.initial.values["left"], before["left.weight"][ticket.masks["left"]])
    assert torch.equal(ticket.initial.state["head.weight"], before["head.weight"])
    assert not torch.equal(ticket.final.state["head.weight"], before["head.weight"])
    assert set(ticket.initial.state) == {"head.weight", "head.bias"}


def test_the_final_weights_of_a_ticket_predict_what_the_searched_model_predicted_at_the_cut():
    model, expected = TwoTables(), []
    ids = (torch.arange(20), torch.arange(20))

    def predict_now(ticket):
        model.eval()
        with torch.no_grad():
            expected.append(model(*ids))
        model.train()

    searcher = Searcher(model, ["150", "50"], steps=60, warmup_steps=20, every=5, on_ticket=predict_now)
    run(model, searcher, steps=60)
    for ticket, logits in zip(searcher.tickets, expected, strict=True):
        continued = TwoTables()
        ticket.apply_(continued, rewind="final")
        with torch.no_grad():
            torch.testing.assert_close(continued.eval()(*ids), logits)


def test_a_byte_budget_is_met_by_the_largest_mask_that_fits():
    model = TwoTables()
    searcher = Searcher(model, ["0.4KB"], steps=30, warmup_steps=10, every=5)
    run(model, searcher, steps=30)
    (ticket,) = searcher.tickets
    assert sum(compact_bytes(mask) for mask in ticket.masks.values()) <= 400
    scores = torch.cat([t.scores().flatten() for t in searcher.tables.values()])
    kept = torch.cat([mask.flatten() for mask in ticket.masks.values()])
    more = kept.clone()
    more[torch.where(kept, -torch.inf, scores).argmax()] = True
    left, right = more.split([240, 80])
    assert compact_bytes(left.view(30, 8)) + compact_bytes(right.view(20, 4)) > 400


def test_a_byte_budget_is_met_by_the_plans_end_also_where_every_entry_is_alone_in_its_row():
    """A lone entry takes more bytes than the plan guesses; the search must end all the same."""
    table = PepEmbedding((1000,), PepConfig(embedding_dim=64), weight=nn.Parameter(torch.full((1000, 64), 0.01)))
    with torch.no_grad():
        table.weight[torch.arange(1000), torch.arange(1000) % 64] = torch.linspace(1, 2, 1000)
    table.seen.fill_(True)
    searcher = Searcher(nn.Sequential(table), ["1KB", "0.4KB"], steps=60, warmup_steps=10, every=7)
    for _ in range(60):
        searcher.step()
    assert searcher.finished
    for ticket in searcher.tickets:
        assert 0.95 * ticket.budget.amount < compact_bytes(ticket.masks["0"]) <= ticket.budget.amount


def test_tickets_come_largest_first_whatever_the_order_of_the_budgets():
    model = TwoTables()
    searcher = Searcher(model, ["5", "100", "10%"], steps=30, warmup_steps=10, every=20)
    assert str(searcher.next_budget) == "100"
    run(model, searcher, steps=30)
    assert [t.num_parameters for t in searcher.tickets] == [100, 32, 5]


def test_warm_up_can_be_ended_early_and_the_plan_keeps_its_length():
    model = TwoTables()
    searcher = Searcher(model, ["10"], steps=100, warmup_steps=60, every=5)
    run(model, searcher, steps=10)
    assert searcher.warming_up
    searcher.end_warmup()
    run(model, searcher, steps=39)
    assert not searcher.finished
    run(model, searcher, steps=1)
    assert searcher.finished


def test_a_third_of_the_steps_is_warm_up():
    searcher = Searcher(TwoTables(), ["10"], steps=30)
    assert searcher.plan.num_steps == 20
    warm = []
    for _ in range(11):
        warm.append(searcher.warming_up)
        searcher.step()
    assert warm == [True] * 10 + [False]


def test_a_search_without_warm_up_prunes_at_once():
    model = TwoTables()
    searcher = Searcher(model, ["10"], steps=4, warmup_steps=0, every=1)
    assert not searcher.warming_up
    run(model, searcher, steps=4)
    assert searcher.finished


def test_before_cut_is_called_once_before_the_entries_are_scored():
    model, steps = TwoTables(), []

    def catch_up():
        steps.append(searcher.current_step)
        nn.init.zeros_(model.left.weight)

    searcher = Searcher(model, ["50"], steps=40, warmup_steps=20, every=5, before_cut=catch_up)
    with pytest.warns(UserWarning, match="the ticket of 50 keeps no entry of left"):
        run(model, searcher, steps=40)
    assert steps == [40]
    (ticket,) = searcher.tickets
    assert not ticket.masks["left"].any()


def test_a_byte_budget_holds_the_index_and_the_dearest_first_entry():
    tables = [torch.zeros(300, 64), torch.zeros(5, 2)]
    empty, costs = 0, []
    for table in tables:
        mask = torch.zeros_like(table, dtype=torch.bool)
        empty += (alone := compact_bytes(mask))
        mask[0, 0] = True
        costs.append(compact_bytes(mask) - alone)
    assert costs[0] != costs[1]
    least = empty + max(costs)
    assert planned_entries(Budget.parse(f"{least}B"), tables, num_entries=19_210) >= 1
    with pytest.raises(BudgetError, match=f"less than the {least} bytes of an index with one entry"):
        planned_entries(Budget.parse(f"{least - 1}B"), tables, num_entries=19_210)


def test_decay_pressure_cuts_exactly():
    model = TwoTables(pressure="decay", raw_threshold_init=-6.0)
    searcher = Searcher(model, ["100", "20"], steps=400, every=1)
    counts = run(model, searcher, steps=400, lr=5e-2, threshold_decay=1e-3)
    assert counts[0] > 200
    assert [t.num_parameters for t in searcher.tickets] == [100, 20]


def test_impossible_searches_are_refused_before_they_start():
    with pytest.raises(BudgetError, match="above the 320 entries"):
        Searcher(TwoTables(), ["1k"], steps=10)
    with pytest.raises(BudgetError, match="above the 1,280 bytes"):
        Searcher(TwoTables(), ["500 KB"], steps=10)
    with pytest.raises(ConfigError, match="warm-up of 10 steps leaves no step"):
        Searcher(TwoTables(), ["10"], steps=10, warmup_steps=10)
    with pytest.raises(BudgetError, match="index with one entry"):
        Searcher(TwoTables(), ["0.005KB"], steps=10)
    with pytest.raises(AttachError, match="no PEP table"):
        Searcher(nn.Linear(2, 2), ["10"], steps=10)


def test_ties_go_to_the_lower_index_and_the_clock_lies_below_the_kept():
    scores = {"a": torch.tensor([[1.0, 2.0], [2.0, -torch.inf]])}
    assert top_entries(scores, 1)["a"].tolist() == [[False, True], [False, False]]
    assert clock_for(scores, 2).item() == 1.0
    assert clock_for(scores, 4).item() == -torch.inf


def test_a_padding_row_is_never_kept_even_where_most_rows_were_never_seen():
    model = nn.Sequential(PepEmbedding((40,), PepConfig(embedding_dim=10), padding_id=0))
    searcher = Searcher(model, ["90%"], steps=4, warmup_steps=2, every=1)
    for _ in range(4):
        model(torch.arange(1, 10))
        searcher.step()
    (ticket,) = searcher.tickets
    assert ticket.num_parameters == int(0.9 * 39 * 10)
    assert not ticket.masks["0"][0].any()


@pytest.mark.parametrize("seed", [0, 5, 7])
def test_a_padding_row_does_not_disturb_the_clock(seed):
    torch.manual_seed(seed)
    table = PepEmbedding((40,), PepConfig(embedding_dim=10), padding_id=0)
    searcher = Searcher(nn.Sequential(table), ["50%"], steps=10, warmup_steps=1, every=1)
    clocks = []
    for _ in range(10):
        table(torch.arange(1, 40))
        searcher.step()
        clocks.append(float(table.clock))
    assert clocks[0] == -torch.inf  # the whole table is kept, the padding row is no part of it
    assert all(earlier < later for earlier, later in itertools.pairwise(clocks))
    assert (table.scores() > table.clock).sum() == 195
    # the entry whose score is the clock is 0 up to the rounding of g(g⁻¹(x)): exactly, or by one float (seeds 5 and 7)
    assert (table.pruned_weight()[1:].abs() > 1e-7).sum() == 195


def test_repr_shows_progress():
    model = TwoTables()
    searcher = Searcher(model, ["100", "5"], steps=30, warmup_steps=10, every=5)
    start = "Searcher(step 0, warming up, 320 of 320 entries kept, next budget 100, tickets: none yet)"
    assert repr(searcher) == start
    run(model, searcher, steps=25)
    assert "step 25, pruning" in repr(searcher)
    assert "next budget 5, tickets: 100)" in repr(searcher)
    run(model, searcher, steps=5)
    assert repr(searcher) == "Searcher(step 30, finished, 5 of 320 entries kept, tickets: 100, 5)"


def test_no_ticket_is_cut_of_a_table_that_diverged():
    model = TwoTables()
    searcher = Searcher(model, ["10%"], steps=40, warmup_steps=5, every=5)
    with torch.no_grad():
        model.right.weight[3, 1] = torch.nan
    model(torch.arange(30), torch.arange(30) % 20)  # all rows are seen

    def search():
        for _ in range(40):
            searcher.step()

    with pytest.raises(NonFiniteError, match=r"table 'right' holds NaN or infinities at step \d+: training diverged"):
        search()
    assert not searcher.tickets_so_far
