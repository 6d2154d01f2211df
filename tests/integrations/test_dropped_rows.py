"""Tickets of whole rows as smaller TorchRec collections, with remapped ids."""

import warnings

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # FBGEMM deprecates modules that it imports itself
    pytest.importorskip("torchrec", reason="TorchRec is not installed: make torchrec", exc_type=ImportError)

from integrations import torchrec_models as toys
from thresher import Budget, MaskTicket
from thresher.errors import AttachError, ConfigError, ThresherError
from thresher.integrations import torchrec as pruning
from thresher.search.ticket import Provenance, kept_weights


def row_ticket(model):
    """A ticket that keeps 30 % of the rows of two of the tables."""
    draw, masks = torch.Generator().manual_seed(1), {}
    prefix = "tables.embedding_bags" if model.bags else "tables.embeddings"
    for name in ("t_user", "t_item"):
        weight = model.get_parameter(f"{prefix}.{name}.weight")
        masks[f"{prefix}.{name}"] = (torch.rand(len(weight), 1, generator=draw) < 0.3).expand(weight.shape).clone()
    weights = kept_weights(model, masks)
    return MaskTicket(Budget.parse("30%rows"), masks, weights, weights, Provenance("test", 0, 0, 0))


def ragged(weighted):
    """Bags of none to three ids, also of dropped rows."""
    draw = torch.Generator().manual_seed(2)
    lengths = torch.randint(4, (len(toys.SIZES) * 20,), generator=draw)
    per_feature = lengths.view(len(toys.SIZES), -1).sum(1).tolist()
    sizes = zip(toys.SIZES.values(), per_feature, strict=True)
    ids = torch.cat([torch.randint(rows, (count,), generator=draw) for rows, count in sizes])
    weights = torch.rand(len(ids), generator=draw) if weighted else None
    return toys.torchrec.KeyedJaggedTensor(list(toys.SIZES), ids, weights, lengths=lengths)


@pytest.mark.parametrize("kind", ["sum", "mean", "weighted", "sequence"])
def test_dropped_rows_and_remapped_ids_give_the_vectors_of_zeros(kind):
    config = {"pooling": toys.torchrec.PoolingType.MEAN} if kind == "mean" else {}
    model, compact = (toys.Clicks(bags=kind != "sequence", weighted=kind == "weighted", **config) for _ in range(2))
    ticket = row_ticket(model)
    ticket.apply_(compact)
    assert pruning.drop_rows_(model, ticket) == ["tables"]
    assert max(len(value) for name, value in model.named_parameters() if "t_item" in name) < 15
    found, expected = model.tables(ragged(kind == "weighted")), compact.tables(ragged(kind == "weighted"))
    if kind == "sequence":
        for name in toys.SIZES:
            assert torch.equal(found[name].values(), expected[name].values())
            assert torch.equal(found[name].lengths(), expected[name].lengths())
    else:
        assert found.keys() == expected.keys()
        assert torch.allclose(found.values(), expected.values(), atol=1e-6)
    if kind != "weighted":
        toys.train(model, list(model.parameters()), 2)


def test_dropping_rows_changes_nothing_if_the_ticket_is_for_another_model():
    ticket, model = row_ticket(toys.Clicks()), toys.Clicks()
    with pytest.raises(ConfigError, match="rewind is 'intial'"):
        pruning.drop_rows_(model, ticket, rewind="intial")
    model.layer = torch.nn.Linear(model.layer.in_features, 1, bias=False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ThresherError, match=r"another model: missing \[\], unexpected \['layer.bias'\]"):
        pruning.drop_rows_(model, ticket)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_dropping_rows_needs_whole_rows_and_plain_collections():
    model = toys.Clicks()
    ticket = row_ticket(model)
    ticket.masks["tables.embedding_bags.t_user"][0] = torch.arange(toys.WIDTH) < 3
    with pytest.raises(ThresherError, match=r"keeps parts of rows of .*t_user"):
        pruning.drop_rows_(model, ticket)
    with pytest.raises(AttachError, match="plain collection inside the model"):
        pruning.drop_rows_(torch.nn.Sequential(), row_ticket(model))
