"""Tickets extended for new ids fit the larger model."""

import pytest
import torch

from thresher.attach.extend import Growth
from thresher.embeddings.method_registry import build_embedding
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError
from thresher.models.model_registry import build_model, model_config
from thresher.search.budget import Budget
from thresher.search.ticket import MaskTicket, Provenance, kept_weights
from thresher.search.ticket_files import extend_ticket

OLD, NEW = (3, 2, 4), (5, 2, 7)


def with_unknown_rows(dense):
    """Field by field: the old rows, then copies of the unknown feature's row."""
    fields = zip(dense.split(OLD), NEW, strict=True)
    return torch.cat([torch.cat([rows, rows[:1].expand(new - len(rows), -1)]) for rows, new in fields])


def new_model(sizes, seed=0):
    torch.manual_seed(seed)
    return build_model(build_embedding(sizes, PepConfig(embedding_dim=4)), model_config("deepfm"))


@pytest.fixture
def ticket():
    model, masks = new_model(OLD), {"embedding": torch.rand(9, 4) < 0.5}
    weights = kept_weights(model, masks)
    return MaskTicket(Budget.parse("18"), masks, weights, weights, Provenance("pep", 0, 1, 1))


def test_unknown_table_names_are_rejected(ticket):
    for words in ({"growth": {"nope": Growth(OLD, NEW)}}, {"growth": {}, "start": {"nope": "zeros"}}):
        with pytest.raises(ConfigError, match=r"the ticket has no table nope\. It prunes embedding"):
            extend_ticket(ticket, **words)


def test_a_table_that_was_not_searched_takes_given_rows_and_zeros(ticket):
    name, growth = "linear_term.weights", Growth(OLD, NEW)
    given = torch.arange(1.0, 6)[:, None]
    for start, rows in ((given, given), ("zeros", torch.zeros(5, 1))):
        extended = extend_ticket(ticket, {name: growth}, {name: start})
        for weights in (extended.initial, extended.final):
            assert torch.equal(weights.state[f"{name}.weight"][growth.new_rows()], rows)
    with pytest.raises(ConfigError, match=r"start has shape \[3, 1\]; expected \[5, 1\]"):
        extend_ticket(ticket, {name: growth}, {name: torch.ones(3, 1)})
    with pytest.raises(ConfigError, match="the table has 9 rows, but old_sizes sum to 4"):
        extend_ticket(ticket, {name: Growth.of_table(4, 5)})


@pytest.mark.parametrize("rewind", ["initial", "final"])
def test_an_extended_ticket_fits_the_larger_model(rewind):
    start, end = new_model(OLD, seed=1), new_model(OLD, seed=2)
    masks = {"embedding": torch.rand(9, 4) < 0.5}
    ticket = MaskTicket(
        Budget.parse("18"), masks, kept_weights(start, masks), kept_weights(end, masks), Provenance("pep", 0, 1, 1)
    )
    growth = Growth(OLD, NEW)
    extended = extend_ticket(ticket, {"embedding": growth, "linear_term.weights": growth})
    larger = new_model(NEW, seed=3)
    extended.apply_(larger, rewind=rewind)
    source = start if rewind == "initial" else end
    ids = torch.arange(sum(NEW))
    expected = with_unknown_rows(source.embedding.weight.detach() * masks["embedding"])
    assert torch.equal(larger.embedding(ids).detach(), expected)
    first_order = with_unknown_rows(source.linear_term.weights.weight.detach())
    assert torch.equal(larger.linear_term.weights.weight.detach(), first_order)
    assert extended.num_parameters == int(extended.masks["embedding"].sum()) == larger.embedding.num_parameters()
