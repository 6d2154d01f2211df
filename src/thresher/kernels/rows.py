"""Distinct rows and the batch: each row looked up once, spread to every place where its id stands, gradients back.

Not here: thresholds (`threshold_lookup`), and sums over a sample that never spread the rows (`fm`, `joined`, `linear`).
"""

import torch
from numba import prange
from numpy import float32
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from thresher.kernels.distinct import DistinctIds
from thresher.kernels.parallel import parallel_kernel, runs_on_kernels, serial_kernel
from thresher.kernels.prefetch import prefetch_row

CHUNKS_PER_THREAD = 4

# In the kernels below a row has a name of its own before it is read or written: indexed by two numbers in the innermost
# loop, rows of 64 take eight times as long.


def lookup_rows(weight: Tensor, distinct: DistinctIds) -> Tensor:
    """The distinct rows of a table `[N, D]` → `[U, D]`; the table's gradient is row-sparse."""
    if not runs_on_kernels(weight, distinct.ids):
        return functional.embedding(distinct.ids, weight, sparse=True)
    rows: Tensor = _LookupRows.apply(weight, distinct.ids)  # type: ignore[no-untyped-call]
    return rows


def expand_rows(rows: Tensor, distinct: DistinctIds) -> Tensor:
    """Distinct rows `[U, D]` → one per place of the batch, `[..., D]`; zeros where the id was left out."""
    if not runs_on_kernels(rows, distinct.places):
        return functional.embedding(distinct.places, torch.cat((rows, rows.new_zeros(1, rows.shape[1]))))
    expanded: Tensor = _ExpandRows.apply(rows, distinct)  # type: ignore[no-untyped-call]
    return expanded


def row_gradient(shape: torch.Size, ids: Tensor, values: Tensor) -> Tensor:
    """A gradient that is 0 outside the rows `ids` (int64 `[U]`, ascending), as PyTorch writes it: coalesced COO."""
    return torch.sparse_coo_tensor(ids.unsqueeze(0), values, shape, check_invariants=False, is_coalesced=True)


class _LookupRows(torch.autograd.Function):
    """`embedding(sparse=True)` on our own threads: torch's wait busily after each use and would hold ours up."""

    @staticmethod
    def forward(ctx, weight, ids):  # type: ignore[no-untyped-def]
        rows = weight.new_empty(ids.numel(), weight.shape[1])
        _gather.for_work(rows.numel())(weight.detach().numpy(), ids.numpy(), rows.numpy())
        ctx.save_for_backward(ids)
        ctx.shape = weight.shape
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return row_gradient(ctx.shape, ctx.saved_tensors[0], grad.contiguous()), None


class _ExpandRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, rows: Tensor, distinct: DistinctIds) -> Tensor:
        ctx.distinct = distinct  # type: ignore[attr-defined]
        vectors = rows.new_empty(*distinct.places.shape, rows.shape[1])
        flat = vectors.view(-1, rows.shape[1]).numpy()
        _expand.for_work(flat.size)(rows.detach().numpy(), distinct.places.view(-1).numpy(), flat)
        return vectors

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return collect_rows(grad, ctx.distinct), None


def collect_rows(grad: Tensor, distinct: DistinctIds, *, from_samples: bool = False) -> Tensor:
    """The transpose of `expand_rows`: `[..., D]` → the sum over each id's places, `[U, D]`.

    Args:
        from_samples: `grad` is `[B, D]`, and stands for all places of a sample alike.
    """
    if runs_on_kernels(distinct.places) and grad.dtype == torch.float32 and grad.device.type == "cpu":
        collected: Tensor = _CollectRows.apply(grad, distinct, from_samples)  # type: ignore[no-untyped-call]
        return collected
    if from_samples:
        grad = grad.unsqueeze(1).expand(*distinct.places.shape, -1)
    padded = grad.new_zeros(distinct.num_ids + 1, grad.shape[-1])
    return padded.index_add(0, distinct.places.flatten(), grad.reshape(-1, grad.shape[-1]))[:-1]


class _CollectRows(torch.autograd.Function):
    """Expanding and collecting are each other's gradient, as often as one likes."""

    @staticmethod
    def forward(ctx, grad, distinct, from_samples):  # type: ignore[no-untyped-def]
        ctx.distinct, ctx.from_samples = distinct, from_samples
        flat = grad.reshape(-1, grad.shape[-1]).contiguous()
        collected = flat.new_empty(distinct.num_ids, flat.shape[1])
        starts, positions = distinct.occurrences
        num_places = distinct.places.shape[-1] if from_samples else 1
        num_chunks = CHUNKS_PER_THREAD * torch.get_num_threads()
        _collect.for_work(positions.numel() * flat.shape[1])(
            flat.numpy(), starts.numpy(), positions.numpy(), num_places, num_chunks, collected.numpy()
        )
        return collected

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        expanded = expand_rows(grad.contiguous(), ctx.distinct)
        return (expanded.sum(-2) if ctx.from_samples else expanded), None, None


@parallel_kernel
def _gather(table, ids, rows):  # type: ignore[no-untyped-def]
    for u in prange(ids.shape[0]):
        prefetch_row(table, ids, u)
        row, out = table[ids[u]], rows[u]
        for j in range(out.shape[0]):
            out[j] = row[j]


@parallel_kernel
def _expand(rows, places, vectors):  # type: ignore[no-untyped-def]
    for i in prange(places.shape[0]):
        out = vectors[i]
        if places[i] < rows.shape[0]:
            row = rows[places[i]]
            for j in range(out.shape[0]):
                out[j] = row[j]
        else:
            out[:] = float32(0.0)


@serial_kernel
def first_row_of_chunk(starts, chunk, num_chunks):  # type: ignore[no-untyped-def]
    """Where a chunk begins when rows and occurrences together are split evenly: hot ids crowd at a field's start."""
    num_rows = starts.shape[0] - 1
    wanted = (num_rows + starts[num_rows]) * chunk // num_chunks
    first, last = 0, num_rows
    while first < last:
        middle = (first + last) >> 1
        if middle + starts[middle] < wanted:
            first = middle + 1
        else:
            last = middle
    return first


@parallel_kernel
def _collect(grad, starts, positions, num_places, num_chunks, collected):  # type: ignore[no-untyped-def]
    """A row of `grad` is for `num_places` places, one after the other."""
    for chunk in prange(num_chunks):
        first = first_row_of_chunk(starts, chunk, num_chunks)
        last = first_row_of_chunk(starts, chunk + 1, num_chunks)
        for u in range(first, last):
            out = collected[u]
            out[:] = float32(0.0)
            for k in range(starts[u], starts[u + 1]):
                added = grad[positions[k] // num_places]
                for j in range(out.shape[0]):
                    out[j] += added[j]
