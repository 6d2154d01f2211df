"""The highest scores over all tables together, exactly and in bounded memory: no list of all scores is ever made.

Scores come in chunks of rows. The k-th is found by two histograms (the upper 16 bits of a score's place in the order of
all floats, then the lower 16), the masks by a last pass. Ties go to the lower index.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from thresher._internal.mapped_tensors import new_zeros

CHUNK_ENTRIES = 1 << 20
_HALF = 1 << 16
_BELOW_ALL = -(1 << 31)  # the key no score has: −∞ is above it


class ScoredTable(Protocol):
    """A table `[N, D]` whose scores can be had a few rows at a time."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def padding_id(self) -> int | None:
        """A row that is no feature and is never kept, not even where scores of −∞ are."""

    def scores(self, start: int, stop: int) -> Tensor:
        """Scores of rows `start … stop − 1`, float32 `[stop − start, D]`, not NaN."""
        ...


@dataclass(frozen=True)
class ScoresInMemory:
    """Scores `[N, D]` that somebody has already."""

    all_scores: Tensor
    padding_id: int | None = None

    @property
    def shape(self) -> tuple[int, int]:
        num_rows, width = self.all_scores.shape
        return num_rows, width

    def scores(self, start: int, stop: int) -> Tensor:
        return self.all_scores[start:stop]


def count_above(tables: Sequence[ScoredTable], score: float) -> int:
    """How many scores are higher than `score`."""
    return sum(int((table.scores(start, stop) > score).sum()) for _, table, start, stop in _chunks(tables))


def kth_score(tables: Sequence[ScoredTable], k: int) -> float:
    """The k-th highest score, counted from 1; −∞ is a score like any other, and what comes after all scores."""
    key = _kth_key(tables, k)
    return -math.inf if key == _BELOW_ALL else _score_of_key(key)


def top_masks(tables: Sequence[ScoredTable], num_kept: int) -> list[Tensor]:
    """Per table a bool mask `[N, D]`, True for the `num_kept` highest scores of all tables together.

    Ties go to the earlier table, then to the lower index.
    """
    masks = [new_zeros(*table.shape, dtype=torch.bool) for table in tables]
    if num_kept == 0:
        return masks
    cut = _kth_key(tables, num_kept)
    num_tied = num_kept
    for index, start, stop, keys in _key_chunks(tables):
        masks[index][start:stop] = above = keys > cut
        num_tied -= int(above.sum())
    for index, start, _, keys in _key_chunks(tables):
        if num_tied == 0:
            break
        tied = (keys == cut).flatten().nonzero().squeeze(1)[:num_tied]
        masks[index].view(-1)[start * keys.shape[1] + tied] = True
        num_tied -= tied.numel()
    return masks


def _kth_key(tables: Sequence[ScoredTable], k: int) -> int:
    num_entries = sum(table.shape[0] * table.shape[1] for table in tables)
    if not 1 <= k <= num_entries:
        raise ValueError(f"k is {k}; there are {num_entries} scores")
    upper = torch.zeros(_HALF, dtype=torch.int64)
    for *_, keys in _key_chunks(tables):
        upper += torch.bincount((keys >> 16).flatten() + _HALF // 2, minlength=_HALF)
    high, k = _bin_of(upper, k)
    lower = torch.zeros(_HALF, dtype=torch.int64)
    for *_, keys in _key_chunks(tables):
        chosen = keys[(keys >> 16) == high - _HALF // 2]
        lower += torch.bincount(chosen & (_HALF - 1), minlength=_HALF)
    low, _ = _bin_of(lower, k)
    return ((high - _HALF // 2) << 16) + low


def _bin_of(counts: Tensor, k: int) -> tuple[int, int]:
    """The bin the k-th entry from the top is in, and its number counted from that bin's top."""
    from_top = counts.flip(0).cumsum(0)
    place = int(torch.searchsorted(from_top, k))
    return len(counts) - 1 - place, k - (int(from_top[place - 1]) if place else 0)


def _key_chunks(tables: Sequence[ScoredTable]) -> Iterator[tuple[int, int, int, Tensor]]:
    """`(table's index, start, stop, keys int64 [rows, D])`: integers in the order of the scores."""
    for index, table, start, stop in _chunks(tables):
        bits = (table.scores(start, stop).float().cpu() + 0.0).contiguous().view(torch.int32)  # + 0 makes −0 equal 0
        keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
        if table.padding_id is not None and start <= table.padding_id < stop:
            keys[table.padding_id - start] = _BELOW_ALL
        yield index, start, stop, keys


def _chunks(tables: Sequence[ScoredTable]) -> Iterator[tuple[int, ScoredTable, int, int]]:
    for index, table in enumerate(tables):
        num_rows, width = table.shape
        step = max(1, CHUNK_ENTRIES // width)
        for start in range(0, num_rows, step):
            yield index, table, start, min(start + step, num_rows)


def _score_of_key(key: int) -> float:
    bits = np.int32(key if key >= 0 else key ^ 0x7FFFFFFF)
    return float(bits.view(np.float32))
