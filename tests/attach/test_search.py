"""User-defined models attached, searched in a plain loop, retrained and made compact."""

import copy
import warnings

import pytest
import torch
from torch import nn

from thresher.attach import attach_, compact_, threshold_group
from thresher.compact.embedding import CompactEmbedding
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError, ThresherError
from thresher.search.searcher import Searcher
from thresher.search.ticket_files import load_ticket, save_ticket


class ManyTables(nn.Module):
    """Tables of several widths in a dict, a bag, and a linear layer tied to one of them."""

    def __init__(self, num_tables=4, num_features=30):
        super().__init__()
        torch.manual_seed(0)
        sizes = {f"field_{k}": num_features + k for k in range(num_tables)}
        self.tables = nn.ModuleDict({name: nn.Embedding(size, 4 + 4 * (size % 2)) for name, size in sizes.items()})
        self.again = nn.Embedding(num_features, self.tables["field_0"].embedding_dim)
        self.again.weight = self.tables["field_0"].weight  # two fields, one table
        self.bag = nn.EmbeddingBag(num_features, 4)
        self.tied = nn.Linear(self.again.embedding_dim, num_features)
        self.tied.weight = self.again.weight
        self.head = nn.LazyLinear(1)

    def forward(self, ids):
        vectors = [table(ids[:, k]) for k, table in enumerate(self.tables.values())]
        again = self.again(ids[:, 1] % self.again.num_embeddings)
        vectors += [again, self.bag(ids % self.bag.num_embeddings), self.tied(again).tanh()]
        return self.head(torch.cat(vectors, dim=1)).squeeze(1)


def batches(num_tables, num_features, num_batches=30):
    generator = torch.Generator().manual_seed(1)
    for _ in range(num_batches):
        ids = torch.randint(num_features, (64, num_tables), generator=generator)
        yield ids, (ids.sum(1) % 2).float()


def train(model, optimizer, searcher=None, **shape):
    losses = []
    for ids, labels in batches(**shape):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(ids), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if searcher is not None:
            searcher.step()
    return losses


def search(model, budgets, config=None, **shape):
    model(next(iter(batches(**shape)))[0])  # lazy layers get their size
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    attach_(model, config)
    optimizer.add_param_group(threshold_group(model))
    searcher = Searcher(model, budgets, steps=30, warmup_steps=10, every=5)
    train(model, optimizer, searcher, **shape)
    return searcher


SHAPE = {"num_tables": 4, "num_features": 30}


@pytest.mark.filterwarnings("ignore:the ticket of .* keeps no entry")
@pytest.mark.parametrize("granularity", ["dimension", "feature-dimension"])
def test_tickets_count_exactly_over_all_tables_and_each_table_once(granularity):
    model = ManyTables(**SHAPE)
    searcher = search(model, ["10%", "37"], PepConfig(granularity=granularity), **SHAPE)
    sizes = {name: table.weight.numel() for name, table in model.tables.items()}
    assert searcher.num_entries == sum(sizes.values()) + model.bag.weight.numel()
    assert [ticket.num_parameters for ticket in searcher.tickets] == [searcher.num_entries // 10, 37]
    assert set(searcher.tickets[0].masks) == {*(f"tables.{name}" for name in sizes), "bag"}


@pytest.mark.parametrize("attached", [True, False])
def test_a_ticket_rewinds_and_masks_the_model(attached, tmp_path):
    model = ManyTables(**SHAPE)
    plain = copy.deepcopy(model)
    plain(torch.zeros(2, 4, dtype=torch.long))
    model.load_state_dict(plain.state_dict())
    searcher = search(model, ["60"], **SHAPE)
    save_ticket(searcher.tickets[0], tmp_path / "60")
    ticket = load_ticket(tmp_path / "60")
    retrained = model if attached else copy.deepcopy(plain)
    ticket.apply_(retrained)

    masked = copy.deepcopy(plain)
    with torch.no_grad():
        for name, mask in ticket.masks.items():
            masked.get_submodule(name).weight.mul_(mask)
    ids = torch.randint(30, (8, 4))
    torch.testing.assert_close(retrained(ids), masked(ids))
    assert retrained.again.values is retrained.tables["field_0"].values
    tables = {table.values: table for table in retrained.modules() if isinstance(table, CompactEmbedding)}
    assert sum(len(values) for values in tables) == 60

    losses = train(retrained, torch.optim.Adam(retrained.parameters(), lr=0.01), **SHAPE)
    assert losses[-1] < losses[0]
    expected = retrained.eval()(ids)
    assert sum(table.num_parameters for table in compact_(retrained)) == 60
    assert torch.equal(retrained(ids), expected)


def test_a_trained_model_is_pruned_without_warmup_and_rewound_to_its_values():
    """Rows that the search does not look up were trained before, so they can be kept."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(40, 4), nn.Flatten(), nn.Linear(4, 1))
    with torch.no_grad():
        model[0].weight[:30].mul_(0.01)
    given = model[0].weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    attach_(model, PepConfig(learn_deviation=False), trained=True)
    searcher = Searcher(model, ["40"], steps=10, warmup_steps=0, every=1)
    for _ in range(10):  # only rows 0 … 9 are looked up
        optimizer.zero_grad()
        model(torch.randint(10, (16, 1))).mean().backward()
        optimizer.step()
        searcher.step()
    [ticket] = searcher.tickets
    assert torch.equal(ticket.masks["0"].any(1).nonzero().squeeze(1), torch.arange(30, 40))
    ticket.apply_(model)
    torch.testing.assert_close(model[0](torch.arange(30, 40)), given[30:])


def test_rows_never_looked_up_are_pruned_from_an_untrained_model():
    model = nn.Sequential(nn.Embedding(40, 4), nn.Flatten(), nn.Linear(4, 1))
    attach_(model)
    searcher = Searcher(model, ["20"], steps=4, warmup_steps=1, every=1)
    for _ in range(4):
        model(torch.arange(10).view(-1, 1))
        searcher.step()
    [ticket] = searcher.tickets
    assert not ticket.masks["0"][10:].any()


def test_a_killed_loop_resumes_bit_for_bit(tmp_path):
    def start():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(30, 4), nn.Flatten(), nn.Linear(4, 1))
        attach_(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        return model, optimizer, Searcher(model, ["60", "20"], steps=24, warmup_steps=4, every=2)

    def run(model, optimizer, searcher, first, last):
        for step in range(first, last):
            ids = torch.randint(30, (32, 1), generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(ids), (ids % 2).float()).backward()
            optimizer.step()
            searcher.step()

    whole = start()
    run(*whole, 0, 24)
    killed = start()
    run(*killed, 0, 17)
    assert len(killed[2].tickets_so_far) == 1
    torch.save([part.state_dict() for part in killed], tmp_path / "checkpoint.pt")
    resumed = start()
    with torch.no_grad():
        resumed[0][0].weight.zero_()
    for part, state in zip(resumed, torch.load(tmp_path / "checkpoint.pt", weights_only=True), strict=True):
        part.load_state_dict(state)
    run(*resumed, 17, 24)
    for resumed_ticket, ticket in zip(resumed[2].tickets, whole[2].tickets, strict=True):
        assert (resumed_ticket.budget, resumed_ticket.provenance) == (ticket.budget, ticket.provenance)
        assert torch.equal(resumed_ticket.masks["0"], ticket.masks["0"])
        assert torch.equal(resumed_ticket.initial.values["0"], ticket.initial.values["0"])
        assert torch.equal(resumed_ticket.final.values["0"], ticket.final.values["0"])


def test_shares_count_without_padding_rows():
    model = nn.Sequential(nn.Embedding(40, 10, padding_idx=0))
    attach_(model, trained=True)
    searcher = Searcher(model, ["50%", "25%"], steps=4, warmup_steps=1, every=1)
    for _ in range(4):
        searcher.step()
    assert [ticket.num_parameters for ticket in searcher.tickets] == [195, 97]
    assert not searcher.tickets[0].masks["0"][0].any()


@pytest.mark.filterwarnings("ignore:the ticket of .* keeps no entry")
def test_fifty_tables():
    shape = {"num_tables": 50, "num_features": 20}
    model = ManyTables(**shape)
    searcher = search(model, ["5%", "1%"], **shape)
    assert [t.num_parameters for t in searcher.tickets] == [searcher.num_entries * k // 100 for k in (5, 1)]
    assert len(searcher.tickets[0].masks) == 51


def test_ten_million_rows():
    model = nn.Sequential(nn.Embedding(10_000_000, 2, sparse=True, _weight=torch.full((10_000_000, 2), 0.1)))
    attach_(model, PepConfig(granularity="dimension"), trained=True)
    searcher = Searcher(model, ["1%"], steps=1, warmup_steps=0, every=1)
    with torch.no_grad():
        model[0].weight[5:9] = 1.0
    searcher.step()
    [ticket] = searcher.tickets
    assert ticket.num_parameters == 200_000
    assert ticket.masks["0"][:9].all()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("forgotten", [False, True])
def test_an_optimizer_without_the_thresholds_warns_once(forgotten, sparse):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(30, 4, sparse=sparse), nn.Flatten(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach_(model)
    if not forgotten:
        optimizer.add_param_group(threshold_group(model))
    searcher = Searcher(model, ["20"], steps=12, warmup_steps=4, every=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randint(30, (16, 1))).mean().backward()
            optimizer.step()
            searcher.step()
    messages = [str(warning.message) for warning in caught if "thresholds" in str(warning.message)]
    assert len(messages) == forgotten
    if forgotten:
        assert messages[0].startswith("the thresholds of 0 have gradients, but no optimizer updates them")
        assert caught[0].filename == __file__


class FullSoftmax(nn.Module):
    """Reads the items table without calling its module."""

    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(20, 4), nn.Embedding(10, 4)

    def forward(self, users):
        return self.users(users) @ self.items.weight.T


def train_softmax(model, num_steps=10):
    attach_(model)
    searcher = Searcher(model, [40], steps=num_steps, warmup_steps=2, every=2)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(num_steps):
        optimizer.zero_grad()
        model(torch.arange(20)).logsumexp(1).sum().backward()
        optimizer.step()
        searcher.step()
    return searcher


@pytest.mark.filterwarnings("ignore:the ticket of .* keeps no entry")
def test_a_table_that_is_not_used_warns():
    model = FullSoftmax()
    model.more = nn.Embedding(10, 4)
    with pytest.warns(UserWarning, match=r"no row of more was looked up.*where=…"):
        train_softmax(model)


@pytest.mark.filterwarnings("ignore:the ticket of .* keeps no entry")
def test_training_in_eval_mode_warns():
    with pytest.warns(UserWarning, match=r"no row of users, items was looked up.*model.train\(\)"):
        train_softmax(FullSoftmax().eval())


def test_a_tied_linear_layer_is_pruned():
    class Tied(FullSoftmax):
        def __init__(self):
            super().__init__()
            self.scores = nn.Linear(4, 10, bias=False)
            self.scores.weight = self.items.weight

        def forward(self, users):
            return self.scores(self.users(users))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (ticket,) = train_softmax(model := Tied()).tickets
    kept = {name: int(mask.sum()) for name, mask in ticket.masks.items()}
    assert set(kept) == {"users", "items"}
    assert sum(kept.values()) == 40
    assert kept["items"] > 0
    ticket.apply_(model)
    scores = model(torch.arange(20))  # of pruned users with pruned items
    users, items = (model.get_submodule(name)(torch.arange(size)) for name, size in (("users", 20), ("items", 10)))
    torch.testing.assert_close(scores, users @ items.T)
    assert int((items == 0).sum()) == 40 - kept["items"]


@pytest.mark.parametrize("change", ["table", "layer", "width"])
def test_a_ticket_that_does_not_fit_changes_nothing(change):
    class Model(nn.Module):
        def __init__(self, second=12, hidden=3, more=False):
            super().__init__()
            self.first, self.second = nn.Embedding(10, 4), nn.Embedding(second, 4)
            self.head = nn.Linear(4, hidden)
            if more:
                self.more = nn.Linear(2, 2)

        def forward(self, ids):
            return self.head(self.first(ids) + self.second(ids)).sum(1)

    searched = Model()
    attach_(searched)
    searcher = Searcher(searched, [20], steps=6, warmup_steps=2, every=2)
    optimizer = torch.optim.Adam(searched.parameters())
    for _ in range(6):
        optimizer.zero_grad()
        searched(torch.arange(10)).square().sum().backward()
        optimizer.step()
        searcher.step()
    other = {"table": Model(second=13), "layer": Model(more=True), "width": Model(hidden=4)}[change]
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(ThresherError, match="the ticket"):
        searcher.tickets[0].apply_(other)
    assert type(other.first) is nn.Embedding
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())
    with pytest.raises(ConfigError, match="rewind is 'frist'"):
        searcher.tickets[0].apply_(Model(), rewind="frist")
    searcher.tickets[0].apply_(pruned := Model())
    with pytest.raises(ThresherError, match=r"'first' of the model is already compact.*Apply .* a fresh model"):
        searcher.tickets[0].apply_(pruned)


def test_a_searcher_refuses_the_state_of_another_search():
    model = FullSoftmax()
    attach_(model)
    state = Searcher(model, [10], steps=10).state_dict()
    other = nn.Sequential(nn.Embedding(5, 4))
    attach_(other)
    with pytest.raises(ConfigError, match="another model"):
        Searcher(other, [10], steps=10).load_state_dict(state)
    found = train_softmax(nn.Sequential(nn.Embedding(20, 4))).state_dict()
    with pytest.raises(ConfigError, match="budgets 40; this search has 10"):
        Searcher(other, [10], steps=10).load_state_dict(found)
    with pytest.raises(ConfigError, match="budgets 10; this search has 40, 10"):  # no ticket yet
        Searcher(model, [40, 10], steps=10).load_state_dict(state)
    with pytest.raises(ConfigError, match="of a search of 10 steps; this search has 300"):
        Searcher(model, [10], steps=300).load_state_dict(state)
    with pytest.raises(ConfigError, match="every must be at least 1"):
        Searcher(model, [40], steps=10, every=0)
