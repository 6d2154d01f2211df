"""The sum of a sample's rows: `Σ_f r[place_f]` without spreading them to `[B, F, H]`.

With it the first layer of a perceptron, `Σ_f W_f v_f`, multiplies each distinct vector of a batch once. Not here: sums
of first-order weights, one number wide (`linear`).
"""

import torch
from numba import prange
from numpy import float32
from torch import Tensor

from thresher.kernels.distinct import DistinctIds
from thresher.kernels.parallel import parallel_kernel, runs_on_kernels
from thresher.kernels.rows import collect_rows, expand_rows


def join_rows(rows: Tensor, distinct: DistinctIds) -> Tensor:
    """Rows `[U, H]` at places `[B, F]` → their sum over the fields `[B, H]`; ids left out add nothing."""
    if runs_on_kernels(rows, distinct.places):
        joined: Tensor = _JoinRows.apply(rows, distinct)  # type: ignore[no-untyped-call]
        return joined
    return expand_rows(rows, distinct).sum(1)


class _JoinRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, distinct):  # type: ignore[no-untyped-def]
        joined = rows.new_empty(distinct.places.shape[0], rows.shape[1])
        _join.for_work(distinct.places.numel() * rows.shape[1])(
            rows.detach().numpy(), distinct.places.numpy(), joined.numpy()
        )
        ctx.distinct = distinct
        return joined

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return collect_rows(grad, ctx.distinct, from_samples=True), None


@parallel_kernel
def _join(rows, places, joined):  # type: ignore[no-untyped-def]
    for b in prange(places.shape[0]):
        total = joined[b]
        total[:] = float32(0.0)
        for f in range(places.shape[1]):
            if places[b, f] < rows.shape[0]:
                row = rows[places[b, f]]
                for j in range(total.shape[0]):
                    total[j] += row[j]
