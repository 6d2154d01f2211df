"""A search under DistributedDataParallel: two processes cut the tickets that one cuts on the same global batches."""

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel

from processes import run_in_processes
from thresher import PepConfig, Searcher, attach_
from thresher.errors import AttachError

NUM_USERS, NUM_ITEMS, STEPS, BATCH = 200, 100, 60, 64


class Clicks(nn.Module):
    def __init__(self, dtype=torch.float64, sparse=False):
        super().__init__()
        torch.manual_seed(0)
        self.users = nn.Embedding(NUM_USERS, 4, dtype=dtype, sparse=sparse)
        self.items = nn.Embedding(NUM_ITEMS, 4, dtype=dtype, sparse=sparse)
        self.tower = nn.Linear(8, 1, dtype=dtype)

    def forward(self, users, items):
        users, items = self.users(users), self.items(items)
        return (users * items).sum(1) + self.tower(torch.cat([users, items], 1)).squeeze(1)


def batch(step, dtype):
    """The global batch; its two halves have no user in common, as shards by user have."""
    draw = torch.Generator().manual_seed(step)
    halves = [(torch.rand(BATCH // 2, generator=draw) ** 2 * NUM_USERS / 2).long() * 2 + rank for rank in range(2)]
    users, items = torch.cat(halves), torch.randint(NUM_ITEMS, (BATCH,), generator=draw)
    return users, items, ((users // 2) % 3 == items % 3).to(dtype)


def search(rank, dtype, sparse, granularity, attach_late=False):
    """Tickets and clock of a search; rank None is one process with the whole batch."""
    model = Clicks(dtype, sparse)
    alone = rank is None
    wrapped = DistributedDataParallel(model) if attach_late else model
    attach_(model, PepConfig(granularity=granularity))
    if not (alone or attach_late):
        wrapped = DistributedDataParallel(model)
    tables = [p for name, p in model.named_parameters() if "tower" not in name]
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.02)]
    if sparse:
        optimizers = [torch.optim.SparseAdam(tables, lr=0.02), torch.optim.Adam(model.tower.parameters(), lr=0.02)]
    searcher = Searcher(wrapped, ["40%", "10%"], steps=STEPS, every=5)
    for step in range(STEPS):
        users, items, labels = batch(step, dtype)
        part = slice(None) if alone else slice(rank * BATCH // 2, (rank + 1) * BATCH // 2)
        for optimizer in optimizers:
            optimizer.zero_grad()
        binary_cross_entropy_with_logits(wrapped(users[part], items[part]), labels[part]).backward()
        for optimizer in optimizers:
            optimizer.step()
        searcher.step()
    masks = [{name.removeprefix("module."): m for name, m in t.masks.items()} for t in searcher.tickets]
    return masks, float(model.users.clock), model.users.seen


def attach_after_wrapping(rank):
    with pytest.raises(AttachError, match=r"thresholds of .* differ between the processes"):
        search(rank, torch.float32, False, "feature-dimension", attach_late=True)


def refuse_fully_shard(rank):
    from torch.distributed.fsdp import fully_shard

    model = Clicks(torch.float32)
    attach_(model)
    fully_shard(model)
    with pytest.raises(AttachError, match="sharded over processes"):
        Searcher(model, "10%", steps=10)


def all_cases(rank, cases):
    attach_after_wrapping(rank)
    refuse_fully_shard(rank)
    return [search(rank, *case) for case in cases]


def test_two_processes_cut_the_tickets_of_one():
    """Without uniting what they saw, tickets keep no user of the second process. Wrong wrapping is refused."""
    cases = [
        (torch.float64, False, "feature-dimension"),
        (torch.float64, False, "global"),
        (torch.float64, True, "feature"),
        (torch.float32, False, "dimension"),
    ]
    first, second = run_in_processes(all_cases, cases)
    for case, found, other in zip(cases, first, second, strict=True):
        expected, clock, seen = search(None, *case)
        assert torch.equal(found[2], seen)
        assert found[1] == other[1] == pytest.approx(clock, rel=1e-6)
        for masks, same, reference in zip(found[0], other[0], expected, strict=True):
            assert all(torch.equal(masks[name], same[name]) for name in masks)
            num_equal = sum(int((masks[name] & reference[name]).sum()) for name in reference)
            num_kept = sum(int(mask.sum()) for mask in reference.values())
            assert num_equal == num_kept if case[0] == torch.float64 else num_equal >= 0.999 * num_kept
            assert masks["users"][1::2].any()  # of the second process
            assert masks["users"][::2].any()
