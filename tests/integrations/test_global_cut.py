"""The cut of a sharded search equals the cut of the whole tables."""

import threading
import warnings

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # FBGEMM deprecates modules that it imports itself
    pytest.importorskip("torchrec", reason="TorchRec is not installed: make torchrec", exc_type=ImportError)

from thresher.integrations.sharding.global_cut import global_top_masks
from thresher.integrations.sharding.shards import Shard
from thresher.kernels.top_scores import ScoresInMemory, top_masks


def parts_of(name, weight, seen, split):
    """The shards of two processes: by rows, by columns, in one process only, or whole in both."""
    half = [size // 2 for size in weight.shape]
    parts = {
        "row": [(slice(0, half[0]), slice(None)), (slice(half[0], None), slice(None))],
        "column": [(slice(None), slice(0, half[1])), (slice(None), slice(half[1], None))],
        "table": [None, (slice(None), slice(None))],
        "data": [(slice(None), slice(None))] * 2,
    }[split]
    for rank, part in enumerate(parts):
        shards = []
        if part is not None:
            rows, columns = part
            shard = Shard(name, weight[part].clone(), rows.start or 0, columns.start or 0, split != "data" or rank == 0)
            shard.seen.copy_(seen[rows])
            shards = [shard]
        yield shards


class Adder:
    """Adds up the values of two threads."""

    def __init__(self):
        self.barrier, self.values = threading.Barrier(2, timeout=60), {}

    def of(self, rank):
        def add_up(values):
            self.values[rank] = values
            self.barrier.wait()
            total = self.values[0] + self.values[1]
            self.barrier.wait()
            return total

        return add_up


@pytest.mark.parametrize("seed", range(12))
def test_a_cut_of_shards_equals_the_cut_of_the_whole_tables(seed):
    """Few different values, so that many entries tie, as zeros and rows never seen do."""
    draw = torch.Generator().manual_seed(seed)
    splits = [["row", "column", "table", "data"][at] for at in torch.randperm(4, generator=draw)]
    weights = {f"t{at}": torch.randint(-2, 3, (5 + 3 * at, 4), generator=draw).float() for at in range(4)}
    seen = {name: torch.rand(len(weight), generator=draw) < (0.7 if seed else 1) for name, weight in weights.items()}
    scores = [w.abs().masked_fill(~seen[name][:, None], -torch.inf) for name, w in weights.items()]
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    shards = [[], []]
    for (name, weight), split in zip(weights.items(), splits, strict=True):
        for rank, found in enumerate(parts_of(name, weight, seen[name], split)):
            shards[rank] += found
    total = sum(weight.numel() for weight in weights.values())
    for num_kept in (1, total // 7, total // 2, total - 3, total):
        adder, masks = Adder(), {}

        def cut(rank, num_kept=num_kept, adder=adder, masks=masks):
            masks[rank] = global_top_masks(shards[rank], shapes, num_kept, adder.of(rank))

        threads = [threading.Thread(target=cut, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        following = torch.cat([table.flatten() for table in scores]).sort(descending=True).values[num_kept:].tolist()
        masks, thresholds = zip(*(masks[rank] for rank in range(2)), strict=True)
        assert set(thresholds) == {following[0] if following else -torch.inf}  # the highest score that is not kept
        for name, expected in zip(
            weights, top_masks([ScoresInMemory(table) for table in scores], num_kept), strict=True
        ):
            whole = torch.zeros_like(expected)
            for rank in range(2):
                for shard, mask in zip(shards[rank], masks[rank], strict=True):
                    if shard.table == name:
                        assert torch.equal(mask, expected[shard.rows, shard.columns])
                        whole[shard.rows, shard.columns] |= mask
            assert torch.equal(whole, expected)
