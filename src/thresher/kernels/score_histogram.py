"""A histogram of the scores of a table's entries that follows row updates.

A score is `g⁻¹(|v|) − deviation`; an entry is kept while its score is above the clock, which the histogram sets without
a pass over the table. Tickets use the exact top k (`top_scores.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from numba import prange
from numpy import float32, int32
from torch import Tensor
from torch.nn import functional

from thresher.kernels.compiling import parallel_kernel, runs_on_kernels
from thresher.kernels.primitives import (
    FUNCTION_CODES,
    SOFTPLUS,
    prefetch_row,
    sigmoid_inverse,
    softplus_inverse,
    softplus_inverse_of_small,
)

NUM_BINS = 4096
BINS_PER_UNIT = 64
LOWEST = -40.0  # scores below it are counted in bin 0, scores above the last bin in the last bin
SMALLEST = float32(1.2e-38)  # the smallest normal number; smaller |v| count as this, in bin 0

_UNCOUNTED, _COUNTED, _CHANGING = 0, 1, 2
_CHUNKS_PER_THREAD = 2


@dataclass(frozen=True)
class SharedCounts:
    """The histogram of a table that several processes update: each counts some rows, and the sum is the histogram."""

    row_states: npt.NDArray[np.int8]  # [N], the same memory in all processes
    rows: slice  # counted by this process at a look
    total: Callable[[Tensor], Tensor]  # the sum over all processes


class ScoreHistogram:
    """Counts `[NUM_BINS]` of the scores of one table; rows never seen in training are not counted.

    Rows about to change are subtracted with their old scores (`expect_changes`) and added with their new scores by the
    next `counts()`. After a write to a whole tensor (a dense optimizer step, a loaded state) `counts()` counts all rows
    again, as it always does for a deviation that rows share. Shapes: weight `[N, D]`, deviation `[N, 1 | D]`, or
    `[G, 1 | D]` with the row each feature uses, `deviation_rows` int64 `[N]`; seen bool `[N]`.
    """

    def __init__(
        self,
        weight: Tensor,
        deviation: Tensor,
        seen: Tensor,
        deviation_rows: Tensor | None = None,
        *,
        function: Literal["softplus", "sigmoid"] = "softplus",
        padding_id: int | None = None,
        shared: SharedCounts | None = None,
    ) -> None:
        self.weight, self.deviation, self.seen, self.function = weight, deviation, seen, function
        self.deviation_rows, self.padding_id = deviation_rows, padding_id
        self._counts = torch.zeros(NUM_BINS, dtype=torch.int64)
        self._shared, self._rows = shared, slice(0, weight.shape[0]) if shared is None else shared.rows
        self._row_states = np.zeros(weight.shape[0], np.int8) if shared is None else shared.row_states
        self._any_changing = False
        self._versions: tuple[int, int] | None = None

    def counts(self) -> Tensor:
        if self._versions != self._current_versions():
            self._count_all()
        elif self._any_changing or self._shared is not None:
            rows = np.flatnonzero(self._row_states[self._rows] == _CHANGING) + self._rows.start
            self._row_states[rows] = _UNCOUNTED
            rows = rows[self.seen.cpu().numpy()[rows] & (rows != self.padding_id)]
            self._row_states[rows] = _COUNTED
            self._add(torch.from_numpy(rows), 1)
            self._any_changing = False
        return self._counts if self._shared is None else self._shared.total(self._counts)

    def count_all_next(self) -> None:
        """Call when rows changed that were not expected to: some optimizers do not mark tensors as written."""
        self._versions = None

    def accept_row_update(self) -> None:
        """Call after an optimizer wrote each tensor once, and only the rows that were expected to change."""
        if self._versions is not None:
            now = self._current_versions()
            if all(new - old in (0, 1) for new, old in zip(now, self._versions, strict=True)):
                self._versions = now

    def expect_changes(self, ids: Tensor, looked_up: Tensor | None = None) -> None:
        """Call before rows `ids` (int64 `[U]`, each once) are updated, while they hold their old values.

        Rows `looked_up` are not updated, but those seen for the first time are counted from now on.
        """
        if self._versions != self._current_versions():
            return  # the next counts() counts all rows
        states = self._row_states
        if looked_up is not None:
            seen = looked_up.cpu().numpy()
            states[seen[states[seen] == _UNCOUNTED]] = _CHANGING
        changing = ids.cpu().numpy()
        counted = changing[states[changing] == _COUNTED]
        states[changing] = _CHANGING
        if len(counted):
            self._add(torch.from_numpy(counted), -1)
        self._any_changing = True

    def _count_all(self) -> None:
        self._versions = self._current_versions()
        self._any_changing = False
        self._counts.zero_()
        rows = np.flatnonzero(self.counted_rows()[self._rows]) + self._rows.start
        self._add(torch.from_numpy(rows), 1)
        self._row_states[self._rows] = _UNCOUNTED
        self._row_states[rows] = _COUNTED

    def counted_rows(self) -> npt.NDArray[np.bool_]:
        """Bool `[N]`: rows seen in training, without the padding row."""
        rows: npt.NDArray[np.bool_] = self.seen.cpu().numpy().copy()
        if self.padding_id is not None:
            rows[self.padding_id] = False
        return rows

    def _add(self, rows: Tensor, sign: int) -> None:
        rows = rows.to(self.weight.device)
        used = rows if self.deviation_rows is None else self.deviation_rows[rows]
        weight, deviation = self.weight.detach(), self.deviation.detach()
        count = _count_by_kernel if runs_on_kernels(weight, deviation, rows, used) else _count_by_torch
        self._counts += sign * count(weight, deviation, rows, used, self.function)

    def _current_versions(self) -> tuple[int, int]:
        return self.weight._version, self.deviation._version


def clock_from_counts(counts: Tensor, num_kept: int) -> float:
    """The clock above which about `num_kept` scores are, interpolated within a bin; −∞ if there are no more scores."""
    from_top = counts.flip(0).cumsum(0)
    place = int(torch.searchsorted(from_top, num_kept, right=True))  # the first bin from the top that exceeds num_kept
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
        FUNCTION_CODES[function], bins.numpy(), counts.numpy(),
    )  # fmt: skip
    return counts.sum(0)


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
            if function == SOFTPLUS and per_dimension and num_large == 0:  # most rows
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
