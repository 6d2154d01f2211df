"""Tickets: stored without loss, applied to a model, refused when they do not belong."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from forged_files import change_json, reseal
from thresher.compact.embedding import CompactEmbedding
from thresher.embeddings.feature_groups import FeatureRuns
from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.embeddings.uniform import UniformConfig
from thresher.errors import ConfigError, FormatError, ThresherError
from thresher.search.budget import Budget
from thresher.search.mask_search import top_entries
from thresher.search.ticket import (
    MaskTicket,
    Provenance,
    SettingsTicket,
    SizeTicket,
    TableSizes,
    kept_weights,
)
from thresher.search.ticket_files import load_ticket, save_ticket


class Model(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.table = PepEmbedding((5, 4), PepConfig(embedding_dim=3))
        self.head = nn.Linear(3, 1)

    def forward(self, ids):
        return self.head(self.table(ids).sum(1)).squeeze(1)


@pytest.fixture
def ticket():
    start, end = Model(seed=1), Model(seed=2)
    masks = top_entries({"table": torch.randn(9, 3, generator=torch.Generator().manual_seed(0))}, 11)
    return MaskTicket(
        Budget.parse("11"), masks, kept_weights(start, masks), kept_weights(end, masks), Provenance("pep", 7, 40, 2)
    )


def test_stored_and_loaded_without_loss(ticket, tmp_path):
    save_ticket(ticket, str(tmp_path / "11"))
    loaded = load_ticket(str(tmp_path / "11"))
    assert (loaded.budget, loaded.provenance, loaded.num_parameters) == (ticket.budget, ticket.provenance, 11)
    assert torch.equal(loaded.masks["table"], ticket.masks["table"])
    for kept, again in ((ticket.initial, loaded.initial), (ticket.final, loaded.final)):
        assert torch.equal(kept.values["table"], again.values["table"])
        assert kept.state.keys() == again.state.keys()
        assert all(torch.equal(value, again.state[name]) for name, value in kept.state.items())
    assert [path.name for path in tmp_path.iterdir()] == ["11"]


@pytest.mark.parametrize(("rewind", "seed"), [("initial", 1), ("final", 2), ("random", 5)])
def test_apply_masks_and_rewinds_the_whole_model(ticket, rewind, seed):
    model, origin = Model(seed=5), Model(seed=seed)
    assert ticket.apply_(model, rewind=rewind) == ["table"]
    assert isinstance(model.table, CompactEmbedding)
    dense = origin.table.weight * ticket.masks["table"]
    ids = torch.tensor([[0, 6], [4, 8], [2, 5]])
    assert torch.equal(model.table(ids), dense[ids])
    assert torch.equal(model.head.weight, origin.head.weight)
    assert model.table.num_parameters() == 11


def test_a_ticket_for_another_model_is_refused(ticket):
    other = nn.ModuleDict({"table": PepEmbedding((9,), PepConfig(embedding_dim=3)), "tail": nn.Linear(1, 1)})
    with pytest.raises(ThresherError, match="another model"):
        ticket.apply_(other)
    with pytest.raises(ThresherError, match="the model has no table"):
        ticket.apply_(nn.Linear(3, 1))


def test_sizes_are_the_kept_dimensions_of_each_feature(ticket):
    assert torch.equal(ticket.sizes()["table"], ticket.masks["table"].long().sum(1))


@pytest.mark.parametrize("name", ["mask.safetensors", "initial.safetensors", "ticket.json"])
def test_damaged_files_are_named(ticket, tmp_path, name):
    save_ticket(ticket, tmp_path / "t")
    path = tmp_path / "t" / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(FormatError, match=r"(damaged|\bt\b)"):
        load_ticket(tmp_path / "t")


def test_other_versions_and_wrong_counts_are_refused(ticket, tmp_path):
    save_ticket(ticket, tmp_path / "t")
    metadata = tmp_path / "t" / "ticket.json"
    content = json.loads(metadata.read_text())
    for change, message in (({"version": 99}, "version 99"), ({"num_parameters": 12}, "keeps 11 entries")):
        change_json(metadata, content | change)
        reseal(tmp_path / "t")
        with pytest.raises(FormatError, match=message):
            load_ticket(tmp_path / "t")
    metadata.write_text(json.dumps(content | {"num_parameters": 12}))
    with pytest.raises(FormatError, match="damaged"):
        load_ticket(tmp_path / "t")


@pytest.mark.parametrize("lie", ["[\n        5,\n        4\n", "[\n        9\n"])
def test_sizes_are_stored_without_loss_and_lies_about_their_groups_refused(tmp_path, lie):
    runs = FeatureRuns.of(np.array([0] * 4 + [1] * 5), 2)
    tables = {"table": TableSizes(8, (2, 8), runs)}
    save_ticket(SizeTicket(Budget.parse("2%"), tables, {}, {}, 48, Provenance("autodim", 0, 0, 0)), tmp_path / "t")
    found = load_ticket(tmp_path / "t").tables["table"]
    assert found.runs.group_sizes == (4, 5)
    assert found.runs.starts.tolist() == [0, 4]
    facts = tmp_path / "t" / "ticket.json"
    assert "[\n        4,\n        5\n" in facts.read_text()
    facts.write_text(facts.read_text().replace("[\n        4,\n        5\n", lie))
    with pytest.raises(FormatError, match="damaged"):
        load_ticket(tmp_path / "t")


def test_a_ticket_prints_in_a_line_without_its_tensors(ticket):
    assert repr(ticket) == ("MaskTicket(budget='11', method='pep', num_parameters=11, tables=[table: 11 of 9 × 3])")
    assert repr(ticket.initial) == "Weights(kept_values=11, other_tensors=2)"
    many = replace(ticket, masks={f"t{k}": torch.ones(2, 2, dtype=torch.bool) for k in range(50)})
    assert str(many).endswith("t3: 4 of 2 × 2 and 46 more])")


@pytest.fixture
def other_kinds():
    runs = FeatureRuns(np.array([0, 4]), np.array([0, 1]), np.array([0, 0]), (4, 5))
    budget, origin = Budget.parse("2%"), Provenance("autodim", 0, 0, 0)
    sizes = SizeTicket(budget, {"table": TableSizes(8, (2, 8), runs)}, {"a": torch.zeros(9)}, {}, 1048, origin)
    return sizes, SettingsTicket(budget, UniformConfig(embedding_dim=3), 27, 108, replace(origin, method="uniform"))


def test_a_misspelled_rewind_is_refused_by_tickets_of_every_kind(ticket, other_kinds):
    for kind in (ticket, *other_kinds):
        with pytest.raises(ConfigError, match="rewind is 'intial'; it must be one of initial, random, final"):
            kind.apply_(Model(), rewind="intial")


def test_tickets_of_the_other_kinds_print_in_a_line_too(other_kinds):
    sizes, settings = other_kinds
    assert repr(sizes) == (
        "SizeTicket(budget='2%', method='autodim', num_parameters=1,048, "
        "tables=[table: 1 groups of width 2, 1 groups of width 8])"
    )
    assert "array" not in repr(sizes.tables["table"])
    assert repr(settings) == (
        "SettingsTicket(budget='2%', method='uniform', num_parameters=27, embedding=UniformConfig(embedding_dim=3))"
    )
