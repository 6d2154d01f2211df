"""Tables that several modules hold: a module under two names, shared Parameters, tied linear layers."""

import copy

import pytest
import torch
from torch import nn

from thresher.attach import AttachedTable, attach_, compact_, detach_, threshold_group
from thresher.attach.compact_tables import put_compact_
from thresher.compact.embedding import CompactEmbedding
from thresher.compact.method_table import to_compact
from thresher.compact.table import CompactTable
from thresher.embeddings.pep import PepEmbedding

IDS = torch.tensor([[1, 2], [5, 5]])


class Shared(nn.Module):
    """A table under two names, shared with a bag and tied to the output layer."""

    def __init__(self):
        super().__init__()
        self.source = nn.Embedding(12, 4, padding_idx=0)
        self.target = self.source
        self.bag = nn.EmbeddingBag(12, 4, mode="mean")
        self.bag.weight = self.source.weight
        self.out = nn.Linear(4, 12)
        self.out.weight = self.source.weight

    def forward(self, ids):
        return self.out(self.source(ids).mean(1) + self.target(ids).sum(1) + self.bag(ids))


@pytest.fixture
def model():
    torch.manual_seed(1)
    return Shared()


def set_clock(model, clock):
    for module in model.modules():
        if isinstance(module, PepEmbedding):
            module.clock.fill_(clock)


def test_a_shared_table_is_listed_once_with_all_its_names(model):
    assert attach_(model) == [AttachedTable("source", 12, 4, ("target", "bag", "out"))]
    assert model.source is model.target
    assert model.source.weight is model.bag.weight is model.out.weight
    assert model.source.deviation is model.bag.deviation is model.out.deviation
    assert len(threshold_group(model)["params"]) == 1


def test_outputs_and_gradients_equal_after_attaching(model):
    plain = copy.deepcopy(model)
    attach_(model)
    assert torch.equal(model(IDS), plain(IDS))
    for either in (model, plain):
        either(IDS).square().sum().backward()
    torch.testing.assert_close(model.source.weight.grad, plain.source.weight.grad)


def test_every_module_uses_the_pruned_table(model):
    attach_(model)
    set_clock(model, -1.0)
    pruned = model.source.pruned_weight()
    torch.testing.assert_close(model.bag(IDS), pruned[IDS].mean(1))
    vectors = torch.randn(3, 4)
    torch.testing.assert_close(model.out(vectors), vectors @ pruned.T + model.out.bias)


def test_state_dict_names_stay(model):
    names = list(model.state_dict())
    attach_(model)
    assert set(names) <= set(model.state_dict())
    detach_(model)
    assert list(model.state_dict()) == names
    assert model.out.weight is model.source.weight
    assert type(model.out) is nn.Linear


def test_compact_tables_stay_tied(model):
    attach_(model)
    set_clock(model, -1.0)
    expected = model(IDS)
    [table] = compact_(model)
    torch.testing.assert_close(model(IDS), expected)
    assert model.source is model.target
    assert model.bag.values is model.source.values
    assert table.num_parameters == len(model.source.values) < 48
    assert not model.source.values.requires_grad
    assert model.out.bias.requires_grad


def test_modules_share_one_compact_table_and_its_bytes_are_counted_once(model, tmp_path):
    attach_(model)
    set_clock(model, -1.0)
    [table] = compact_(model)
    for holders in (model, copy.deepcopy(model)):
        for name in ("values", "row_starts", "columns"):
            assert getattr(holders.source, name).data_ptr() == getattr(holders.bag, name).data_ptr()
    state = {value.data_ptr(): value.nbytes for name, value in model.state_dict().items() if name != "out.bias"}
    assert table.memory_bytes == sum(state.values()) == 4 * table.num_parameters + table.num_parameters + 4 * 13
    to_compact(model.source).save(tmp_path / "source.safetensors")
    assert table.storage_bytes == CompactTable.load(tmp_path / "source.safetensors").storage_bytes


def test_a_trainable_compact_table_gets_gradients_from_all_modules(model):
    attach_(model)
    weight = model.source.weight.detach().clone()
    mask = torch.rand(12, 4) < 0.5
    positions = mask.flatten().nonzero().squeeze(1)
    compact = put_compact_(model, "source", positions, weight[mask])
    assert isinstance(compact, CompactEmbedding)
    assert compact is model.source
    dense = (weight * mask).requires_grad_()
    vectors = dense[IDS].mean(1) + dense[IDS].sum(1) + dense[IDS].mean(1)
    expected = vectors @ dense.T + model.out.bias
    torch.testing.assert_close(model(IDS), expected)
    expected.square().sum().backward()
    model(IDS).square().sum().backward()
    torch.testing.assert_close(compact.values.grad, dense.grad[mask])
