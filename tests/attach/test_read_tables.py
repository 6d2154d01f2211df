"""Tables that a model reads, beside or instead of calling them: `users @ items.weight.T`, LightGCN's propagation."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from reading_models import NUM_USERS, READING_MODELS, BprMf, LightGcn, SasRec, train
from thresher import Searcher, attach_, compact_, detach_
from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.errors import AttachError

USERS = torch.arange(NUM_USERS)


def set_clock(model, clock):
    for module in model.modules():
        if isinstance(module, PepEmbedding):
            module.clock.fill_(clock)


@pytest.fixture
def table():
    torch.manual_seed(0)
    return nn.Embedding(12, 4)


@pytest.fixture
def attached(table):
    attach_(nn.Sequential(table))
    return table


def test_until_pruning_starts_the_weight_is_the_parameter(table):
    weight = table.weight
    attach_(nn.Sequential(table))
    assert table.weight is weight
    nn.init.constant_(table.weight, 0.5)
    assert torch.equal(table(torch.tensor([3])), torch.full((1, 4), 0.5))


@pytest.mark.parametrize("granularity", ["global", "dimension", "feature", "feature-dimension", "field"])
def test_reading_gives_the_values_and_gradients_of_calling(table, granularity):
    attach_(nn.Sequential(table), PepConfig(granularity=granularity))
    set_clock(table, -1.0)
    table.deviation.data.normal_()
    ids, found = torch.tensor([3, 5, 5]), []
    for vectors in (table(ids), functional.embedding(ids, table.weight)):
        loss = (vectors * torch.arange(12.0).view(3, 4)).sum()
        found.append((vectors, *torch.autograd.grad(loss, [table.get_parameter("weight"), table.deviation])))
    assert (found[0][0] == 0).any()
    for called, read in zip(*found, strict=True):
        torch.testing.assert_close(read, called)


def test_with_pressure_decay_the_weight_is_always_pruned(table):
    attach_(nn.Sequential(table), PepConfig(pressure="decay", raw_threshold_init=0.0))
    assert torch.equal(table.weight, table(torch.arange(12)))
    assert (table.weight == 0).any()


@pytest.mark.parametrize("clock", [-torch.inf, -1.0])
def test_rows_that_a_gradient_reaches_are_seen(attached, clock):
    set_clock(attached, clock)
    _ = attached.weight.device, attached.weight.dtype, attached.weight.shape  # read, but no value is used
    with torch.no_grad():
        _ = attached.weight.sum()
    attached.eval()
    attached.weight[9:].sum().backward()
    attached.train()
    assert not attached.seen.any()
    functional.embedding(torch.tensor([3, 5]), attached.weight).sum().backward()
    assert attached.seen.nonzero().flatten().tolist() == [3, 5]
    (torch.randn(2, 4) @ attached.weight.T).sum().backward()
    assert attached.seen.all()


def test_a_sparse_gradient_of_a_read_table_marks_its_rows(attached):
    functional.embedding(torch.tensor([3, 5]), attached.weight, sparse=True).sum().backward()
    assert attached.seen.nonzero().flatten().tolist() == [3, 5]


def test_the_parameter_and_the_names_of_the_state_stay_while_pruning(table):
    model, weight = nn.Sequential(table), table.weight
    attach_(model)
    set_clock(model, -1.0)
    assert model.get_parameter("0.weight") is weight
    assert next(model.parameters()) is weight
    assert torch.equal(model.state_dict()["0.weight"], weight)
    table.weight = other = nn.Parameter(torch.zeros(12, 4))
    assert model.get_parameter("0.weight") is other
    assert not table.weight.any()


def test_a_copy_and_a_detached_table_do_not_mark_rows_of_the_attached_one(attached):
    attached.weight.sum().backward()
    attached.seen.fill_(False)
    copied = copy.deepcopy(attached)
    copied.weight[:2].sum().backward()
    assert (int(copied.seen.sum()), int(attached.seen.sum())) == (2, 0)
    detach_(nn.Sequential(attached))
    attached.weight.sum().backward()


def write_row(weight):
    weight[0] = 0.0


def add_one(weight):
    weight += 1.0


@pytest.mark.parametrize(
    "write",
    [
        nn.init.normal_,
        nn.init.xavier_uniform_,
        lambda weight: weight.data.clamp_(-1, 1),
        lambda weight: weight.data[0].fill_(0),
        lambda weight: setattr(weight, "data", torch.zeros(12, 4)),
        write_row,
        add_one,
    ],
)
@pytest.mark.parametrize("compact", [False, True])
def test_writing_to_a_computed_weight_raises(attached, write, compact):
    set_clock(attached, -1.0)
    model = nn.Sequential(attached)
    if compact:
        compact_(model)
    before = attached(torch.arange(12)).clone()
    with pytest.raises(AttachError, match=r"cannot be changed.*computed.*Change the parameter itself"):
        write(attached.weight)
    assert torch.equal(attached(torch.arange(12)), before)


def test_a_computed_weight_can_be_used_copied_and_saved_like_a_tensor(attached, tmp_path):
    set_clock(attached, -1.0)
    weight, expected = attached.weight, attached(torch.arange(12))
    assert torch.equal(weight, expected)
    assert type(weight.detach() * 1) is type(torch.cat([weight, weight])) is type(weight[[0, 1]]) is torch.Tensor
    assert (weight.detach().numpy() == expected.detach().numpy()).all()
    assert weight[[0, 1]].detach().mul_(2).shape == (2, 4)  # a copy may be changed
    torch.save(weight.detach(), tmp_path / "weight.pt")
    for copied in (torch.load(tmp_path / "weight.pt"), copy.deepcopy(weight.detach())):
        assert type(copied) is torch.Tensor
        assert torch.equal(copied, expected)


def search(model, budgets, num_steps=60):
    attach_(model)
    searcher = Searcher(model, budgets, steps=num_steps, warmup_steps=10, every=5)
    train(model, torch.optim.Adam(model.parameters(), lr=0.02), num_steps, searcher.step)
    return searcher


@pytest.mark.parametrize("kind", READING_MODELS)
def test_the_search_evaluates_the_model_it_prunes(kind):
    """What the attached model computes is what its detached, really pruned copy computes."""
    model = kind()
    searcher = search(model, ["30%"])
    model.eval()
    scores, pruned = model.scores(USERS), copy.deepcopy(model)
    detach_(pruned)
    torch.testing.assert_close(scores, pruned.scores(USERS))
    compact_(model)
    torch.testing.assert_close(model.scores(USERS), scores)
    assert searcher.finished


@pytest.mark.parametrize("kind", READING_MODELS)
def test_a_ticket_is_retrained_like_the_masked_model(kind):
    plain = kind()
    searched = copy.deepcopy(plain)
    [ticket] = search(searched, ["30%"]).tickets
    assert all(mask.any() for mask in ticket.masks.values())
    compact = copy.deepcopy(plain)
    ticket.apply_(compact)
    parameters, masks = dict(plain.named_parameters()), {f"{name}.weight": m for name, m in ticket.masks.items()}

    def mask_tables():
        with torch.no_grad():
            for name, mask in masks.items():
                parameters[name].mul_(mask)

    mask_tables()
    for model, after_step in ((plain, mask_tables), (compact, lambda: None)):
        train(model, torch.optim.SGD(model.parameters(), lr=0.5), 10, after_step)
    torch.testing.assert_close(compact.scores(USERS), plain.scores(USERS), rtol=1e-4, atol=1e-5)


def test_a_table_that_is_only_read_keeps_its_rows():
    model = LightGcn()
    [ticket] = search(model, ["30%"]).tickets
    assert {name: bool(mask.any()) for name, mask in ticket.masks.items()} == {"users": True, "items": True}
    assert ticket.num_parameters == (96 + 64) * 3 // 10
    assert model.users.seen.all()


def test_a_compact_linear_layer_has_a_weight():
    class Tied(BprMf):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(4, self.items.num_embeddings)
            self.out.weight = self.items.weight

    model = Tied()
    attach_(model)
    set_clock(model, -1.0)
    expected = model.out.weight.detach()
    assert torch.equal(expected, model.items.weight)
    compact_(model)
    assert torch.equal(model.out.weight, expected)


@pytest.mark.parametrize("kind", [BprMf, SasRec])
@pytest.mark.parametrize("compact", [False, True])
def test_reading_compiles_in_one_graph(kind, compact):
    model = kind()
    attach_(model)
    set_clock(model, -2.0)
    if compact:
        compact_(model)
    expected = model.scores(USERS)
    compiled = torch.compile(model.scores, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(USERS), expected)
    torch._dynamo.reset()


def test_a_function_of_the_weight_can_be_transformed(attached):
    set_clock(attached.eval(), -1.0)
    parameters = dict(attached.named_parameters())

    def total(parameters):
        return torch.func.functional_call(_Read(attached), {f"table.{k}": v for k, v in parameters.items()}, ())

    found = torch.func.grad(total)(parameters)
    attached.weight.square().sum().backward()
    torch.testing.assert_close(found["weight"], attached.get_parameter("weight").grad)


class _Read(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self):
        return self.table.weight.square().sum()
