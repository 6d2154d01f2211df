"""Rows of a table with an entry whose score is above a bound: the exact top entries are among them.

One pass at the speed of reading the table. A ticket of 5 % of a table then scores a few rows exactly instead of all.
"""

from typing import Literal

import torch
from numba import prange
from numpy import float32
from torch import Tensor

from thresher.kernels.compiling import parallel_kernel, runs_on_kernels
from thresher.kernels.primitives import FUNCTION_CODES, SOFTPLUS, sigmoid_inverse, softplus_inverse
from thresher.kernels.score_histogram import SMALLEST

_CHUNKS_PER_THREAD = 2


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
