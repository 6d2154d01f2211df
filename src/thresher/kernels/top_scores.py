"""The exact top k of the scores of several tables, which come in chunks of rows.

Two histograms (the upper, then the lower 16 bits of a score's rank among all floats) find the k-th score; small tables
are partially sorted instead, which is faster.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from numba import prange
from numpy import float32
from torch import Tensor

from thresher._internal.mapped_tensors import CHUNK_ENTRIES, new_zeros
from thresher.kernels.compiling import parallel_kernel, runs_on_kernels
from thresher.kernels.primitives import FUNCTION_CODES, SOFTPLUS, sigmoid_inverse, softplus_inverse
from thresher.kernels.score_histogram import SMALLEST

_HALF = 1 << 16
_BELOW_ALL = -(1 << 31)  # a key that no score has: −∞ is above it
_SORTED_ENTRIES = 1 << 22  # most entries of tables that are partially sorted
_CHUNKS_PER_THREAD = 2


class ScoredTable(Protocol):
    """A table `[N, D]` that computes the scores of rows `start … stop − 1`, never NaN; a padding row is never kept."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def padding_id(self) -> int | None: ...
    def scores(self, start: int, stop: int) -> Tensor: ...


@dataclass(frozen=True)
class ScoresInMemory:
    """Scores `[N, D]` that are already computed."""

    all_scores: Tensor
    padding_id: int | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.all_scores.shape[0], self.all_scores.shape[1]

    def scores(self, start: int, stop: int) -> Tensor:
        return self.all_scores[start:stop]


def count_above(tables: Sequence[ScoredTable], score: float) -> int:
    return sum(int((table.scores(start, stop) > score).sum()) for _, table, start, stop in _chunks(tables))


def kth_score(tables: Sequence[ScoredTable], k: int) -> float:
    """The k-th highest score, counted from 1; −∞ for a padding row."""
    return score_of(kth_key(tables, k))


def score_of(key: int) -> float:
    """The score of a key of `key_chunks`."""
    bits = np.int32(key if key >= 0 else key ^ 0x7FFFFFFF)
    return -math.inf if key == _BELOW_ALL else float(bits.view(np.float32))


def top_masks(tables: Sequence[ScoredTable], num_kept: int) -> list[Tensor]:
    """Masks `[N, D]` of the `num_kept` highest scores of all tables; ties go to the earlier table, then lower index."""
    masks = [new_zeros(*table.shape, dtype=torch.bool) for table in tables]
    if num_kept == 0:
        return masks
    cut = kth_key(tables, num_kept)
    num_tied = num_kept
    for index, start, stop, keys in key_chunks(tables):
        masks[index][start:stop] = above = keys > cut
        num_tied -= int(above.sum())
    for index, start, _, keys in key_chunks(tables):
        if num_tied == 0:
            break
        tied = (keys == cut).flatten().nonzero().squeeze(1)[:num_tied]
        masks[index].view(-1)[start * keys.shape[1] + tied] = True
        num_tied -= tied.numel()
    return masks


def kth_key(tables: Sequence[ScoredTable], k: int, add_up: Callable[[Tensor], Tensor] | None = None) -> int:
    """The k-th highest score as a key of `key_chunks`.

    Args:
        add_up: adds up counts of all processes, if each of them holds other parts of the tables.
    """
    num_entries = sum(table.shape[0] * table.shape[1] for table in tables)
    if add_up is not None:
        num_entries = int(add_up(torch.tensor(num_entries)))
    if not 1 <= k <= num_entries:
        raise ValueError(f"k is {k}: expected 1 to {num_entries}, the number of scores.")
    if num_entries <= _SORTED_ENTRIES and add_up is None:
        every = torch.cat([keys.flatten() for *_, keys in key_chunks(tables)]).numpy()
        return int(np.partition(every, num_entries - k)[num_entries - k])
    upper = torch.zeros(_HALF, dtype=torch.int64)
    for *_, keys in key_chunks(tables):
        upper += torch.bincount((keys >> 16).flatten() + _HALF // 2, minlength=_HALF)
    high, k = _bin_of(upper if add_up is None else add_up(upper), k)
    lower = torch.zeros(_HALF, dtype=torch.int64)
    for *_, keys in key_chunks(tables):
        chosen = keys[(keys >> 16) == high - _HALF // 2]
        lower += torch.bincount(chosen & (_HALF - 1), minlength=_HALF)
    low, _ = _bin_of(lower if add_up is None else add_up(lower), k)
    return ((high - _HALF // 2) << 16) + low


def _bin_of(counts: Tensor, k: int) -> tuple[int, int]:
    """The bin of the k-th entry from the top, and its rank within that bin."""
    from_top = counts.flip(0).cumsum(0)
    place = int(torch.searchsorted(from_top, k))
    return len(counts) - 1 - place, k - (int(from_top[place - 1]) if place else 0)


def key_chunks(tables: Sequence[ScoredTable]) -> Iterator[tuple[int, int, int, Tensor]]:
    """`(index of the table, start, stop, keys int32 [rows, D])`: keys are integers in the order of the scores."""
    for index, table, start, stop in _chunks(tables):
        bits = (table.scores(start, stop).float().cpu() + 0.0).contiguous().view(torch.int32)  # + 0 makes −0 equal 0
        keys = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        if table.padding_id is not None and start <= table.padding_id < stop:
            keys[table.padding_id - start] = _BELOW_ALL
        yield index, start, stop, keys


def _chunks(tables: Sequence[ScoredTable]) -> Iterator[tuple[int, ScoredTable, int, int]]:
    for index, table in enumerate(tables):
        num_rows, width = table.shape
        step = max(1, CHUNK_ENTRIES // width)
        for start in range(0, num_rows, step):
            yield index, table, start, min(start + step, num_rows)


def rows_above(
    weight: Tensor,
    deviation: Tensor,
    counted: Tensor,
    bound: float,
    deviation_rows: Tensor | None = None,
    *,
    function: Literal["softplus", "sigmoid"] = "softplus",
) -> tuple[Tensor, int] | None:
    """The rows (int64 `[U]`, ascending) among `counted` (bool `[N]`), and how many of their scores are above `bound`.

    Shapes as for `ScoreHistogram`. Scores are those of the histogram, a little different from the exact ones, so leave
    a margin. None if the kernel does not accept these tensors.
    """
    used = torch.empty(0, dtype=torch.int64) if deviation_rows is None else deviation_rows
    if not runs_on_kernels(weight, deviation, used):
        return None
    reaches = torch.empty(len(weight), dtype=torch.bool)
    num_chunks = _CHUNKS_PER_THREAD * torch.get_num_threads()
    num_above = _mark_rows.for_work(weight.numel())(
        weight.detach().numpy(), deviation.detach().numpy(), used.numpy(), counted.numpy(), float32(bound),
        FUNCTION_CODES[function], num_chunks, reaches.numpy(),
    )  # fmt: skip
    return reaches.nonzero().squeeze(1), int(num_above)


@parallel_kernel
def _mark_rows(weight, deviation, used, counted, bound, function, num_chunks, reaches):  # type: ignore[no-untyped-def]
    N, D, per_dimension = weight.shape[0], weight.shape[1], deviation.shape[1] == weight.shape[1]
    total = 0
    for chunk in prange(num_chunks):
        above = 0
        for i in range(N * chunk // num_chunks, N * (chunk + 1) // num_chunks):
            in_row = 0
            if counted[i]:
                values, raw = weight[i], deviation[used[i] if used.shape[0] else i]
                for j in range(D):
                    size = max(abs(values[j]), SMALLEST)
                    inverse = softplus_inverse(size) if function == SOFTPLUS else sigmoid_inverse(size)
                    if inverse - raw[j if per_dimension else 0] > bound:
                        in_row += 1
            reaches[i] = in_row > 0
            above += in_row
        total += above
    return total
