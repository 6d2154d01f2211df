"""nn.EmbeddingBag under attach_: identical outputs for every way of calling it, pruned once the clock is set."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from thresher.attach import attach_, compact_
from thresher.attach.compact_tables import put_compact_

FLAT, OFFSETS = torch.tensor([3, 1, 1, 0, 9, 2, 3]), torch.tensor([0, 2, 2, 5])
CALLS = {
    "offsets": lambda bag: bag(FLAT, OFFSETS),
    "int32": lambda bag: bag(FLAT.int(), OFFSETS.int()),
    "2-D": lambda bag: bag(FLAT[:6].view(2, 3)),
    "weights": lambda bag: bag(FLAT, OFFSETS, per_sample_weights=torch.arange(7.0)),
    "keywords": lambda bag: bag(input=FLAT, offsets=OFFSETS),
}
WAYS = [(mode, call) for mode in ("sum", "mean", "max") for call in CALLS if call != "weights" or mode == "sum"]


@pytest.mark.parametrize("padding_idx", [None, 0, 1, 5])
@pytest.mark.parametrize(("mode", "call"), WAYS)
def test_bag_attached_pruned_and_compact(mode, call, padding_idx):
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(10, 4, mode=mode, padding_idx=padding_idx))
    plain = copy.deepcopy(model)
    attach_(model)
    assert torch.equal(CALLS[call](model[0]), CALLS[call](plain[0]))
    for either in (plain, model):
        CALLS[call](either[0]).square().sum().backward()
    torch.testing.assert_close(model[0].weight.grad, plain[0].weight.grad)

    model[0].clock.fill_(-1.0)
    plain[0].weight.data = functional.softshrink(plain[0].weight.data, float(functional.softplus(torch.tensor(-1.0))))
    expected = CALLS[call](plain[0])
    torch.testing.assert_close(CALLS[call](model[0]), expected)
    compact_(model)
    torch.testing.assert_close(CALLS[call](model[0]), expected)


def test_include_last_offset():
    model = nn.Sequential(nn.EmbeddingBag(10, 4, include_last_offset=True))
    offsets = torch.tensor([0, 2, 7])
    expected = model[0](FLAT, offsets)
    attach_(model)
    assert torch.equal(model[0](FLAT, offsets), expected)


def test_sparse_bags_keep_sparse_gradients():
    model = nn.Sequential(nn.EmbeddingBag(10, 4, mode="sum", sparse=True))
    attach_(model)
    model[0](FLAT, OFFSETS).sum().backward()
    assert model[0].weight.grad.is_sparse


def test_per_sample_weights_get_gradients():
    model = nn.Sequential(nn.EmbeddingBag(10, 4, mode="sum"))
    attach_(model)
    weights = torch.ones(7, requires_grad=True)
    model[0](FLAT, OFFSETS, per_sample_weights=weights).sum().backward()
    torch.testing.assert_close(weights.grad, model[0].weight[FLAT].sum(1))


def test_compact_bags_can_be_trained():
    model = nn.Sequential(nn.EmbeddingBag(10, 4, mode="mean"))
    weight = model[0].weight.detach().clone()
    attach_(model)
    mask = torch.rand(10, 4) < 0.5
    bag = put_compact_(model, "0", mask.flatten().nonzero().squeeze(1), weight[mask])
    dense = (weight * mask).requires_grad_()
    functional.embedding_bag(FLAT, dense, OFFSETS, mode="mean").square().sum().backward()
    model[0](FLAT, OFFSETS).square().sum().backward()
    torch.testing.assert_close(bag.values.grad, dense.grad[mask])


def test_compiles_in_one_graph():
    model = nn.Sequential(nn.EmbeddingBag(10, 4, mode="mean"))
    attach_(model)
    model[0].clock.fill_(-1.0)
    expected = model[0](FLAT, OFFSETS)
    compiled = torch.compile(model[0], backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(FLAT, OFFSETS), expected)
    torch._dynamo.reset()
