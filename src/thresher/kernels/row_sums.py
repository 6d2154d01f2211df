"""Sums over the fields of a sample, straight from distinct rows, without copying them to `[B, F, D]`.

- `fm_from_rows`: the FM term `½ Σ_d ((Σ_f v)² − Σ_f v²)`.
- `join_rows`: `Σ_f r[place_f]`. With it the first layer of a perceptron, `Σ_f W_f v_f`, multiplies each distinct vector
  of a batch once.
- `sum_from_rows`: the linear term, the same for rows of one number.
"""

import torch
from numba import prange
from numpy import float32
from torch import Tensor

from thresher.kernels.compiling import parallel_kernel, runs_on_kernels
from thresher.kernels.distinct import DistinctIds
from thresher.kernels.rows import CHUNKS_PER_THREAD, collect_rows, expand_rows, first_row_of_chunk


def fm_from_rows(rows: Tensor, distinct: DistinctIds) -> Tensor:
    """Sum of the dot products of all pairs of fields: rows `[U, D]` at places `[B, F]` → `[B]`."""
    if runs_on_kernels(rows, distinct.places):
        term: Tensor = _FmFromRows.apply(rows, distinct)  # type: ignore[no-untyped-call]
        return term
    return _fm_by_torch(rows, distinct)


def _fm_by_torch(rows: Tensor, distinct: DistinctIds) -> Tensor:
    """The plain-torch twin, which can be differentiated twice."""
    vectors = expand_rows(rows, distinct)  # [B, F, D]
    return 0.5 * (vectors.sum(1).square() - vectors.square().sum(1)).sum(1)


class _FmFromRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, distinct):  # type: ignore[no-untyped-def]
        num_samples = distinct.places.shape[0]
        totals, term = rows.new_empty(num_samples, rows.shape[1]), rows.new_empty(num_samples)
        work = distinct.places.numel() * rows.shape[1]
        _fm_forward.for_work(work)(rows.detach().numpy(), distinct.places.numpy(), totals.numpy(), term.numpy())
        ctx.save_for_backward(rows, totals)
        ctx.distinct = distinct
        return term

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        rows, totals = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives are wanted
            return *torch.autograd.grad(_fm_by_torch(rows, ctx.distinct), rows, grad, create_graph=True), None
        starts, positions = ctx.distinct.occurrences
        row_grads = torch.empty_like(rows)
        num_chunks = CHUNKS_PER_THREAD * torch.get_num_threads()
        work = positions.numel() * rows.shape[1]
        _fm_backward.for_work(work)(
            grad.contiguous().numpy(), rows.detach().numpy(), totals.numpy(), starts.numpy(), positions.numpy(),
            ctx.distinct.places.shape[1], num_chunks, row_grads.numpy(),
        )  # fmt: skip
        return row_grads, None


@parallel_kernel
def _fm_forward(rows, places, totals, term):  # type: ignore[no-untyped-def]
    for b in prange(places.shape[0]):
        total = totals[b]
        total[:] = float32(0.0)
        squares = float32(0.0)
        for f in range(places.shape[1]):
            if places[b, f] >= rows.shape[0]:
                continue
            row = rows[places[b, f]]
            for j in range(row.shape[0]):
                total[j] += row[j]
                squares += row[j] * row[j]
        for j in range(total.shape[0]):
            squares -= total[j] * total[j]
        term[b] = float32(-0.5) * squares


@parallel_kernel
def _fm_backward(grad, rows, totals, starts, positions, num_fields, num_chunks, row_grads):  # type: ignore[no-untyped-def]
    """Row `u` gets `Σ grad_b · (total_b − v_u)` over the samples `b` it occurs in."""
    for chunk in prange(num_chunks):
        first = first_row_of_chunk(starts, chunk, num_chunks)
        last = first_row_of_chunk(starts, chunk + 1, num_chunks)
        for u in range(first, last):
            out, row = row_grads[u], rows[u]
            out[:] = float32(0.0)
            weight = float32(0.0)
            for k in range(starts[u], starts[u + 1]):
                b = positions[k] // num_fields
                weight += grad[b]
                total = totals[b]
                for j in range(out.shape[0]):
                    out[j] += grad[b] * total[j]
            for j in range(out.shape[0]):
                out[j] -= weight * row[j]


def join_rows(rows: Tensor, distinct: DistinctIds) -> Tensor:
    """Rows `[U, H]` at places `[B, F]` → their sum over the fields `[B, H]`; removed ids add nothing."""
    if runs_on_kernels(rows, distinct.places):
        joined: Tensor = _JoinRows.apply(rows, distinct)  # type: ignore[no-untyped-call]
        return joined
    return expand_rows(rows, distinct).sum(1)


class _JoinRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, distinct):  # type: ignore[no-untyped-def]
        joined = rows.new_empty(distinct.places.shape[0], rows.shape[1])
        _sum_rows.for_work(distinct.places.numel() * rows.shape[1])(
            rows.detach().numpy(), distinct.places.numpy(), joined.numpy()
        )
        ctx.distinct = distinct
        return joined

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return collect_rows(grad, ctx.distinct, from_samples=True), None


@parallel_kernel
def _sum_rows(rows, places, joined):  # type: ignore[no-untyped-def]
    for b in prange(places.shape[0]):
        total = joined[b]
        total[:] = float32(0.0)
        for f in range(places.shape[1]):
            if places[b, f] < rows.shape[0]:
                row = rows[places[b, f]]
                for j in range(total.shape[0]):
                    total[j] += row[j]


def sum_from_rows(rows: Tensor, distinct: DistinctIds) -> Tensor:
    """The sum of the weights of a sample: rows `[U, 1]` at places `[B, F]` → `[B]`."""
    return join_rows(rows, distinct).squeeze(1)
