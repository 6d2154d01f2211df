"""The sum of a sample's rows, wide ones: `Σ_f r[place_f]` without spreading them to `[B, F, H]`.

With it the first layer of a perceptron, `Σ_f W_f v_f`, multiplies each distinct vector of a batch once. Not here: sums
of first-order weights, one number wide (`linear`).
"""

import torch
from numba import prange
from numpy import float32
from torch import Tensor
from torch.autograd.function import once_differentiable

from thresher.kernels.distinct import DistinctIds
from thresher.kernels.parallel import parallel_kernel, runs_on_kernels
from thresher.kernels.rows import CHUNKS_PER_THREAD, expand_rows, first_row_of_chunk


def join_rows(rows: Tensor, distinct: DistinctIds) -> Tensor:
    """Rows `[U, H]` at places `[B, F]` → their sum over the fields `[B, H]`; ids left out add nothing."""
    if runs_on_kernels(rows, distinct.places):
        joined: Tensor = _JoinRows.apply(rows, distinct)  # type: ignore[no-untyped-call]
        return joined
    return expand_rows(rows, distinct).sum(1)


class _JoinRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, distinct):  # type: ignore[no-untyped-def]
        joined = torch.empty(distinct.places.shape[0], rows.shape[1])
        _join.for_work(distinct.places.numel() * rows.shape[1])(
            rows.detach().numpy(), distinct.places.numpy(), joined.numpy()
        )
        ctx.distinct = distinct
        return joined

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        distinct = ctx.distinct
        starts, positions = distinct.occurrences
        row_grads = torch.empty(distinct.num_ids, grad.shape[1])
        num_chunks = CHUNKS_PER_THREAD * torch.get_num_threads()
        _share_out.for_work(positions.numel() * grad.shape[1])(
            grad.contiguous().numpy(), starts.numpy(), positions.numpy(), distinct.places.shape[1], num_chunks,
            row_grads.numpy(),
        )  # fmt: skip
        return row_grads, None


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


@parallel_kernel
def _share_out(grad, starts, positions, num_fields, num_chunks, row_grads):  # type: ignore[no-untyped-def]
    """Row `u` gets the sum of the gradients of the samples it occurs in."""
    for chunk in prange(num_chunks):
        first = first_row_of_chunk(starts, chunk, num_chunks)
        last = first_row_of_chunk(starts, chunk + 1, num_chunks)
        for u in range(first, last):
            out = row_grads[u]
            out[:] = float32(0.0)
            for k in range(starts[u], starts[u + 1]):
                added = grad[positions[k] // num_fields]
                for j in range(out.shape[0]):
                    out[j] += added[j]
