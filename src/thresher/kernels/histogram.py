"""How the scores of a table are spread, kept up to date row by row, so that the clock needs no pass over the table.

A score is `g⁻¹(|v|) − deviation`; an entry survives while it is above the clock. Rows about to change are taken out of
the counts with their old scores (`expect_changes`) and put back with their new ones when somebody asks. Scores here are
good to rounding; tickets are cut by exact ones (`top_scores`).
"""

from collections.abc import Sequence
from typing import Literal

import torch
from numba import prange
from numpy import float32, int32
from torch import Tensor
from torch.nn import functional

from thresher.kernels.parallel import parallel_kernel, runs_on_kernels, serial_kernel
from thresher.kernels.prefetch import prefetch_row
from thresher.kernels.vector_math import (
    FUNCTION_CODES,
    SOFTPLUS,
    sigmoid_inverse,
    softplus_inverse,
    softplus_inverse_of_small,
)

NUM_BINS = 4096
BINS_PER_UNIT = 64
LOWEST = -40.0  # bin 0 also holds everything below, and −∞; the last bin everything above its lower end
SMALLEST = float32(1.2e-38)  # |v| below the smallest normal number counts as it: bin 0 either way

_UNCOUNTED, _COUNTED, _CHANGING = 0, 1, 2
_CHUNKS_PER_THREAD = 2


class ScoreHistogram:
    """Counts `[NUM_BINS]` of the scores of one table; rows never seen in training are not counted.

    It watches its tensors: when somebody writes into them as a whole (a dense optimizer, a loaded state), the next
    `counts()` is a full pass. That is also the way it always works for a deviation that rows share.

    Args:
        weight: `[N, D]`.
        deviation: `[N, 1 | D]`, or `[G, 1 | D]` with `deviation_rows`.
        seen: bool `[N]`, read at each full pass.
        deviation_rows: int64 `[N]`, which row of the deviation each row uses; its own when absent.
        function: `g`.
    """

    def __init__(
        self,
        weight: Tensor,
        deviation: Tensor,
        seen: Tensor,
        deviation_rows: Tensor | None = None,
        *,
        function: Literal["softplus", "sigmoid"] = "softplus",
    ) -> None:
        self.weight, self.deviation, self.seen, self.function = weight, deviation, seen, function
        self.deviation_rows = deviation_rows
        self._counts = torch.zeros(NUM_BINS, dtype=torch.int64)
        self._row_states = torch.zeros(weight.shape[0], dtype=torch.int8)
        self._any_changing = False
        self._versions: tuple[int, int] | None = None

    def counts(self) -> Tensor:
        """How many scores fall into each bin now, int64 `[NUM_BINS]`."""
        if self._versions != self._current_versions():
            self._count_all()
        elif self._any_changing:
            rows = torch.empty(_count_changing(self._row_states.numpy()), dtype=torch.int64)
            _take_changing(self._row_states.numpy(), rows.numpy())
            self._add(rows, 1)
            self._any_changing = False
        return self._counts

    def expect_changes(self, ids: Tensor, looked_up: Tensor | None = None) -> None:
        """Rows `ids` (int64 `[U]`, distinct) are about to be updated; to be called while they hold their old values.

        Rows `looked_up` besides them are not, but if any was never seen before it counts from now on.
        """
        if self._versions != self._current_versions():
            return  # the next counts() is a full pass anyway
        ids = ids.cpu()
        if looked_up is not None:
            _note_new(self._row_states.numpy(), looked_up.cpu().numpy())
        counted = torch.empty_like(ids)
        num_counted = _note_changes(self._row_states.numpy(), ids.numpy(), counted.numpy())
        if num_counted:
            self._add(counted[:num_counted], -1)
        self._any_changing = True

    def _count_all(self) -> None:
        self._versions = self._current_versions()
        self._any_changing = False
        self._counts.zero_()
        rows = self.seen.nonzero().squeeze(1).cpu()
        self._add(rows, 1)
        self._row_states.zero_()
        self._row_states[rows] = _COUNTED

    def _add(self, rows: Tensor, sign: int) -> None:
        rows = rows.to(self.weight.device)
        used = rows if self.deviation_rows is None else self.deviation_rows[rows]
        weight, deviation = self.weight.detach(), self.deviation.detach()
        count = _count_by_kernel if runs_on_kernels(weight, deviation, rows, used) else _count_by_torch
        self._counts += sign * count(weight, deviation, rows, used, self.function)

    def _current_versions(self) -> tuple[int, int]:
        return self.weight._version, self.deviation._version


def clock_from_counts(counts: Tensor, num_kept: int) -> float:
    """The clock above which about `num_kept` scores lie: within its bin scores are taken as evenly spread.

    −∞ when there are no more than `num_kept`, or when the scores to cut at are below every bin.
    """
    from_top = counts.flip(0).cumsum(0)
    place = int(torch.searchsorted(from_top, num_kept, right=True))  # the first bin, from the top, that goes beyond
    if place >= NUM_BINS - 1:
        return -torch.inf
    above = int(from_top[place - 1]) if place else 0
    share = (num_kept - above) / (int(from_top[place]) - above)
    return LOWEST + (NUM_BINS - place - share) / BINS_PER_UNIT


def sum_of_counts(histograms: Sequence[ScoreHistogram]) -> Tensor:
    return torch.stack([histogram.counts() for histogram in histograms]).sum(0)


def _count_by_torch(weight: Tensor, deviation: Tensor, rows: Tensor, used: Tensor, function: str) -> Tensor:
    counts = torch.zeros(NUM_BINS, dtype=torch.int64)
    for chosen, groups in zip(torch.split(rows, 1 << 14), torch.split(used, 1 << 14), strict=True):
        sizes = functional.embedding(chosen, weight).abs().clamp(min=float(SMALLEST))
        if function == "softplus":
            scores = sizes + torch.log(-torch.expm1(-sizes))
        else:
            scores = torch.logit(sizes.clamp(max=1.0))
        scores = scores - functional.embedding(groups, deviation)
        bins = ((scores - LOWEST) * BINS_PER_UNIT).clamp(0, NUM_BINS - 1).long()
        counts += torch.bincount(bins.flatten(), minlength=NUM_BINS).cpu()
    return counts


def _count_by_kernel(weight: Tensor, deviation: Tensor, rows: Tensor, used: Tensor, function: str) -> Tensor:
    num_chunks = _CHUNKS_PER_THREAD * torch.get_num_threads()
    counts = torch.zeros(num_chunks, NUM_BINS, dtype=torch.int32)
    bins = torch.empty(num_chunks, weight.shape[1], dtype=torch.int32)
    _count_rows.for_work(rows.numel() * weight.shape[1])(
        weight.numpy(), deviation.numpy(), rows.numpy(), used.numpy(),
        FUNCTION_CODES[function], bins.numpy(), counts.numpy(),  # type: ignore[index]
    )  # fmt: skip
    return counts.sum(0)


@serial_kernel
def _note_new(row_states, ids):  # type: ignore[no-untyped-def]
    for i in range(ids.shape[0]):
        if row_states[ids[i]] == _UNCOUNTED:
            row_states[ids[i]] = _CHANGING


@serial_kernel
def _note_changes(row_states, ids, counted):  # type: ignore[no-untyped-def]
    """Fill `counted` with the rows to take out of the counts; returns how many."""
    num_counted = 0
    for i in range(ids.shape[0]):
        if row_states[ids[i]] == _COUNTED:
            counted[num_counted] = ids[i]
            num_counted += 1
        row_states[ids[i]] = _CHANGING
    return num_counted


@serial_kernel
def _count_changing(row_states):  # type: ignore[no-untyped-def]
    num_rows = 0
    for row in range(row_states.shape[0]):
        num_rows += row_states[row] == _CHANGING
    return num_rows


@serial_kernel
def _take_changing(row_states, rows):  # type: ignore[no-untyped-def]
    """Fill `rows` with those that changed, ascending, and call them counted."""
    num_rows = 0
    for row in range(row_states.shape[0]):
        if row_states[row] == _CHANGING:
            rows[num_rows] = row
            num_rows += 1
            row_states[row] = _COUNTED


@parallel_kernel
def _count_rows(weight, deviation, rows, used, function, chunk_bins, counts):  # type: ignore[no-untyped-def]
    num_chunks, D, per_dimension = counts.shape[0], weight.shape[1], deviation.shape[1] == weight.shape[1]
    lowest, per_unit, last = float32(LOWEST), float32(BINS_PER_UNIT), float32(NUM_BINS - 1)
    for chunk in prange(num_chunks):
        bins, local = chunk_bins[chunk], counts[chunk]
        for i in range(rows.shape[0] * chunk // num_chunks, rows.shape[0] * (chunk + 1) // num_chunks):
            prefetch_row(weight, rows, i)
            prefetch_row(deviation, used, i)
            values, raw = weight[rows[i]], deviation[used[i]]
            num_large = int32(0)
            for j in range(D):
                num_large += int32(abs(values[j]) > float32(1.0))
            if function == SOFTPLUS and per_dimension and num_large == 0:  # by far the most rows
                for j in range(D):
                    score = softplus_inverse_of_small(max(abs(values[j]), SMALLEST)) - raw[j]
                    bins[j] = int32(min(max((score - lowest) * per_unit, float32(0.0)), last))
            else:
                for j in range(D):
                    size = max(abs(values[j]), SMALLEST)
                    inverse = softplus_inverse(size) if function == SOFTPLUS else sigmoid_inverse(size)
                    score = inverse - raw[j if per_dimension else 0]
                    bins[j] = int32(min(max((score - lowest) * per_unit, float32(0.0)), last))
            for j in range(D):
                local[bins[j]] += int32(1)
