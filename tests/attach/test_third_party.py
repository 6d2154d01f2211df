"""Unmodified models from PyPI, as in the benchmark: attached, searched, rewound, pruned, compact."""

import copy
import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

from thresher.attach import attach_, compact_, detach_
from thresher.search.searcher import Searcher

for package in ("deepctr_torch", "torch_rechub", "torchfm"):
    pytest.importorskip(package, reason=f"{package} is not installed (extra: peers)")

MODELS = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "third_party.py"))["MODELS"]
FIELD_SIZES = (12, 5, 30)


def new_model(name):
    torch.manual_seed(0)
    return MODELS[name](FIELD_SIZES)


@pytest.fixture(scope="module")
def batch():
    draw = torch.Generator().manual_seed(0)
    local = torch.stack([torch.randint(size, (64,), generator=draw) for size in FIELD_SIZES], dim=1)
    return local + torch.tensor([0, 12, 17]), (local.sum(1) % 2).float()


@pytest.mark.filterwarnings("ignore:the ticket of .* keeps no entry")
@pytest.mark.parametrize("name", MODELS)
def test_third_party_model_from_attach_to_compact(name, batch):
    ids, labels = batch
    model = new_model(name).eval()
    expected, names = model(ids), list(model.state_dict())
    tables = attach_(model)
    assert torch.equal(model(ids), expected)
    assert set(names) <= set(model.state_dict())
    assert all(table.embedding_dim > 1 for table in tables)
    assert sum(table.num_features for table in tables) == sum(FIELD_SIZES)
    detached = copy.deepcopy(model)
    detach_(detached)
    assert list(detached.state_dict()) == names

    searcher = Searcher(model, ["5%"], steps=6, warmup_steps=2, every=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    for _ in range(6):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(ids), labels).backward()
        optimizer.step()
        searcher.step()
    [ticket] = searcher.tickets
    assert ticket.num_parameters == searcher.num_entries // 20

    pruned = new_model(name)
    ticket.apply_(pruned)
    masked = new_model(name).eval()
    with torch.no_grad():
        for table, mask in ticket.masks.items():
            masked.get_submodule(table).weight.mul_(mask)
    torch.testing.assert_close(pruned.eval()(ids), masked(ids))
    assert sum(table.num_parameters for table in compact_(pruned)) == ticket.num_parameters
    torch.testing.assert_close(pruned(ids), masked(ids))
