"""The linear term straight from distinct rows: `Σ_f w[id_f]` without spreading the weights to `[B, F, 1]`.

Not here: the FM term (`fm`), and rows that are spread (`rows`).
"""

import torch
from numpy import float32
from torch import Tensor
from torch.autograd.function import once_differentiable

from thresher.kernels.distinct import DistinctIds
from thresher.kernels.parallel import runs_on_kernels, serial_kernel
from thresher.kernels.rows import expand_rows


def sum_from_rows(rows: Tensor, distinct: DistinctIds) -> Tensor:
    """The sum of a sample's weights: rows `[U, 1]` at places `[B, F]` → `[B]`."""
    if runs_on_kernels(rows, distinct.places):
        total: Tensor = _SumFromRows.apply(rows, distinct)  # type: ignore[no-untyped-call]
        return total
    return expand_rows(rows, distinct).sum((1, 2))


class _SumFromRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, distinct):  # type: ignore[no-untyped-def]
        total = torch.empty(distinct.places.shape[0])
        _sum_weights(rows.detach().numpy(), distinct.places.numpy(), total.numpy())
        ctx.distinct = distinct
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        row_grads = torch.zeros(ctx.distinct.num_ids, 1)
        _add_gradients(grad.contiguous().numpy(), ctx.distinct.places.numpy(), row_grads.numpy())
        return row_grads, None


# One number per place of the batch: both are done before another thread would be awake.


@serial_kernel
def _sum_weights(rows, places, total):  # type: ignore[no-untyped-def]
    for b in range(places.shape[0]):
        sum_ = float32(0.0)
        for f in range(places.shape[1]):
            if places[b, f] < rows.shape[0]:
                sum_ += rows[places[b, f], 0]
        total[b] = sum_


@serial_kernel
def _add_gradients(grad, places, row_grads):  # type: ignore[no-untyped-def]
    for b in range(places.shape[0]):
        for f in range(places.shape[1]):
            if places[b, f] < row_grads.shape[0]:
                row_grads[places[b, f], 0] += grad[b]
