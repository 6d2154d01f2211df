"""Sums of the gradient rows that several processes have for the same ids, read where each of them wrote its own."""

import numpy as np
import torch
from torch import Tensor

from thresher.kernels.compiling import serial_kernel


def merge_rows(ids: Tensor, values: Tensor, counts: list[int], wanted: slice) -> tuple[Tensor, Tensor]:
    """The ids in `wanted`, ascending `[U]`, and the sums of their rows `[U, D]`, added in the order of processes.

    Process `p` has `counts[p]` ids, ascending, in `ids[p]` (int64 `[P, N]`), and their rows in `values[p]`
    (`[P, N, D]`).
    """
    bounds = (wanted.start, wanted.stop)
    ranges = np.array([np.searchsorted(part[:count].numpy(), bounds) for part, count in zip(ids, counts, strict=True)])
    most = int((ranges[:, 1] - ranges[:, 0]).sum())
    merged, rows = torch.empty(most, dtype=torch.int64), values.new_empty(most, values.shape[2])
    num_ids = _merge(
        ids.numpy(), values.numpy(), ranges[:, 0].copy(), ranges[:, 1].copy(), merged.numpy(), rows.numpy()
    )
    return merged[:num_ids], rows[:num_ids]


@serial_kernel
def _merge(ids, values, at, ends, merged, rows):  # type: ignore[no-untyped-def]
    """Fill `merged` and `rows`; returns their number. Process `p` has the ids from place `at[p]` to `ends[p]`."""
    num_ids = 0
    while True:
        lowest, found = np.int64(0), False
        for p in range(at.shape[0]):
            if at[p] < ends[p] and (not found or ids[p, at[p]] < lowest):
                lowest, found = ids[p, at[p]], True
        if not found:
            return num_ids
        out = rows[num_ids]
        out[:] = 0
        for p in range(at.shape[0]):
            if at[p] < ends[p] and ids[p, at[p]] == lowest:
                added = values[p, at[p]]
                for j in range(out.shape[0]):
                    out[j] += added[j]
                at[p] += 1
        merged[num_ids] = lowest
        num_ids += 1
