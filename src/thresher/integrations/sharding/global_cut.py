"""global_top_masks: the top k of scores whose parts are in several processes, equal to the cut of the whole tables.

Two all-reduced histograms give the highest score that is not kept. Ties go to the earlier table, then to the lower
index of the whole table; if some of them are kept, the last one is found by bisection over all positions.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from thresher.integrations.sharding.shards import Shard
from thresher.kernels.top_scores import ScoresInMemory, key_chunks, kth_key, score_of


def global_top_masks(
    shards: Sequence[Shard], shapes: Mapping[str, tuple[int, int]], num_kept: int, add_up: Callable[[Tensor], Tensor]
) -> tuple[list[Tensor], float]:
    """Masks of the shards of this process, and the highest score that is not kept (−∞ if all are).

    All processes must call it.

    Args:
        shapes: table name → shape of the whole table, for all tables in their order.
        add_up: adds up counts of all processes.
    """
    counted = [shard for shard in shards if shard.counted]
    sizes = [rows * width for rows, width in shapes.values()]
    cut = kth_key(counted, min(num_kept + 1, sum(sizes)), add_up)
    threshold = score_of(cut) if num_kept < sum(sizes) else -math.inf
    masks = [torch.zeros(shard.shape, dtype=torch.bool) for shard in shards]
    ties = [torch.zeros(shard.shape[0], dtype=torch.int64) for shard in shards]  # per row
    for index, start, stop, keys in key_chunks(shards):
        masks[index][start:stop] = keys > cut
        ties[index][start:stop] = (keys == cut).sum(1)
    above = sum(int(mask.count_nonzero()) for mask, shard in zip(masks, shards, strict=True) if shard.counted)
    num_tied = num_kept - int(add_up(torch.tensor(above)))
    if num_tied == 0:
        return masks, threshold
    starts = dict(zip(shapes, accumulate(sizes, initial=0), strict=False))
    tied = [
        _Ties(shard, starts[shard.table], shapes[shard.table][1], cut, rows)
        for shard, rows in zip(shards, ties, strict=True)
    ]

    def count(position: int) -> int:
        own = sum(each.count(position) for each, shard in zip(tied, shards, strict=True) if shard.counted)
        return int(add_up(torch.tensor(own)))

    last = bisect_left(range(sum(sizes)), num_tied, key=count)
    for index, start, stop, keys in key_chunks(shards):
        row, column = tied[index].place(last)
        kept = keys == cut
        kept[max(0, row + 1 - start) :] = False
        if start <= row < stop:
            kept[row - start, column:] = False
        masks[index][start:stop].logical_or_(kept)
    return masks, threshold


class _Ties:
    """The entries of a shard whose score is the k-th one. Positions are those in all tables, one after the other."""

    def __init__(self, shard: Shard, start: int, width: int, cut: int, per_row: Tensor) -> None:
        self.shard, self.start, self.width, self.cut = shard, start, width, cut
        self.up_to_row = torch.cat([torch.zeros(1, dtype=torch.int64), per_row.cumsum(0)])

    def count(self, position: int) -> int:
        """The number of ties at or before a position."""
        row, column = self.place(position)
        inside = 0 if column == 0 else int(self._row(row)[:column].sum())
        return int(self.up_to_row[row]) + inside

    def place(self, position: int) -> tuple[int, int]:
        """The rows of the shard that lie before a position, and in the next row the columns at or before it."""
        row, column = divmod(position - self.start, self.width)
        row -= self.shard.first_row
        num_rows, num_columns = self.shard.shape
        if not 0 <= row < num_rows:
            return (0, 0) if row < 0 else (num_rows, 0)
        return row, max(0, min(column + 1 - self.shard.first_column, num_columns))

    def _row(self, row: int) -> Tensor:
        """Which entries of a row of the shard are ties."""
        scores = self.shard.scores(row, row + 1)
        return _keys(scores)[0] == self.cut


def _keys(scores: Tensor) -> Tensor:
    (*_, keys) = next(key_chunks([ScoresInMemory(scores)]))
    return keys
