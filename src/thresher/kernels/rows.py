"""Lookups that train: distinct rows of a dense table, copied to the places of the batch, and rows of a compact table.

The values `[K]` of a compact table are stored row after row: row `r` owns entries `row_starts[r] … row_starts[r + 1]`,
and entry `k` is in column `columns[k]`. The cost follows the batch (plus one zeroed gradient `[K]`), never `N · D`.
"""

from typing import Any

import torch
from numba import prange
from numpy import float32
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from thresher._internal.mapped_tensors import is_traced
from thresher.errors import OutsideTableError
from thresher.kernels.compiling import kernel, num_parts, parallel_kernel, run_parts, runs_on_kernels, serial_kernel
from thresher.kernels.distinct import DistinctIds, check_ids
from thresher.kernels.primitives import prefetch_row

CHUNKS_PER_THREAD = 4

# The kernels assign a row to a variable before they read or write it: with two indexes in the innermost loop, rows of
# 64 take eight times as long.


def lookup_rows(weight: Tensor, distinct: DistinctIds) -> Tensor:
    """The distinct rows of a table `[N, D]` → `[U, D]`; the table's gradient is row-sparse."""
    if not runs_on_kernels(weight, distinct.ids):
        return functional.embedding(distinct.ids, weight, sparse=True)
    return _LookupRows.apply(weight, distinct.ids)  # type: ignore[no-any-return,no-untyped-call]


def expand_rows(rows: Tensor, distinct: DistinctIds) -> Tensor:
    """Distinct rows `[U, D]` → one per place of the batch, `[..., D]`; zeros for removed ids."""
    if not runs_on_kernels(rows, distinct.places):
        return functional.embedding(distinct.places, torch.cat((rows, rows.new_zeros(1, rows.shape[1]))))
    return _ExpandRows.apply(rows, distinct)  # type: ignore[no-any-return,no-untyped-call]


def row_gradient(shape: torch.Size, ids: Tensor, values: Tensor) -> Tensor:
    """A gradient that is 0 outside the rows `ids` (int64 `[U]`, ascending), as a coalesced COO tensor."""
    return torch.sparse_coo_tensor(ids.unsqueeze(0), values, shape, check_invariants=False, is_coalesced=True)


class _LookupRows(torch.autograd.Function):
    """`embedding(sparse=True)` without torch's threads, which spin after each use and slow the kernels down."""

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
    def forward(ctx, rows, distinct):  # type: ignore[no-untyped-def]
        ctx.distinct = distinct
        vectors = rows.new_empty(*distinct.places.shape, rows.shape[1])
        flat = vectors.view(-1, rows.shape[1]).numpy()
        _expand.for_work(flat.size)(rows.detach().numpy(), distinct.places.view(-1).numpy(), flat)
        return vectors

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return collect_rows(grad, ctx.distinct), None


def collect_rows(grad: Tensor, distinct: DistinctIds, *, from_samples: bool = False) -> Tensor:
    """Transpose of `expand_rows`: sums over each id's places `[U, D]`; `from_samples`: of a gradient `[B, D]`."""
    if runs_on_kernels(distinct.places) and grad.dtype == torch.float32 and grad.device.type == "cpu":
        return _CollectRows.apply(grad, distinct, from_samples)  # type: ignore[no-any-return,no-untyped-call]
    if from_samples:
        grad = grad.unsqueeze(1).expand(*distinct.places.shape, -1)
    padded = grad.new_zeros(distinct.num_ids + 1, grad.shape[-1])
    return padded.index_add(0, distinct.places.flatten(), grad.reshape(-1, grad.shape[-1]))[:-1]


class _CollectRows(torch.autograd.Function):
    """Expanding and collecting are each other's gradient, for derivatives of any order."""

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
    """First row of a chunk if rows plus occurrences are split evenly: frequent ids are at the start of each field."""
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
    """A row of `grad` belongs to `num_places` consecutive places."""
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


def compact_lookup(values: Tensor, row_starts: Tensor, columns: Tensor, ids: Tensor, embedding_dim: int) -> Tensor:
    """Vectors `[..., D]` of ids `[...]`; zero where nothing was kept. The gradient is dense `[K]`, in batch order."""
    check_ids(ids)
    on_cpu = values.device.type == "cpu" and ids.device.type == "cpu" and not is_traced()
    on_kernel = on_cpu and values.dtype == torch.float32 and values.is_contiguous() and type(ids) is Tensor
    look_up: Any = _CompactLookup.apply if on_kernel else compact_lookup_by_torch
    vectors: Tensor = look_up(values, row_starts, columns, ids.reshape(-1), embedding_dim)
    return vectors.view(*ids.shape, embedding_dim)


def compact_lookup_by_torch(
    values: Tensor, row_starts: Tensor, columns: Tensor, ids: Tensor, embedding_dim: int
) -> Tensor:
    """The plain-torch twin: ids `[n]` → `[n, D]`, on any device and float type.

    No shape depends on values, so that it can be exported and mapped over (vmap), and does not wait for a device.
    """
    if not len(values):
        return values.new_zeros(ids.shape[0], embedding_dim) + values.sum()  # 0, and part of the graph
    ids = ids.long()
    starts = row_starts.unsqueeze(1)
    first = functional.embedding(ids, starts).long()  # [n, 1]; unlike an index, it refuses negative ids
    sizes = functional.embedding(ids + 1, starts).long() - first
    places = torch.arange(embedding_dim, device=ids.device)  # a row has at most D entries
    entries = (first + places).clamp(max=len(values) - 1)  # [n, D]
    is_own = places < sizes
    cells = torch.where(is_own, columns[entries].long(), embedding_dim)  # an extra column for unused places
    vectors = values.new_zeros(ids.shape[0], embedding_dim + 1)
    return vectors.scatter(1, cells, values[entries])[:, :embedding_dim]


class _CompactLookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, row_starts, columns, ids, embedding_dim):  # type: ignore[no-untyped-def]
        ids = ids.contiguous()
        vectors = torch.empty(len(ids), embedding_dim)
        index = (row_starts.numpy(), columns.numpy(), ids.numpy())
        out, kept = vectors.numpy(), values.detach().numpy()
        parts = num_parts(vectors.numel())
        bounds = [len(ids) * part // parts for part in range(parts + 1)]
        bad = run_parts(lambda part: _look_up_compact(kept, *index, out, bounds[part], bounds[part + 1]), parts)
        if max(bad) >= 0:
            place = next(place for place in bad if place >= 0)
            raise OutsideTableError.of(int(ids[place]), len(row_starts) - 1)
        ctx.save_for_backward(row_starts, columns, ids)
        ctx.num_values = len(values)
        return vectors

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        row_starts, columns, ids = ctx.saved_tensors
        of_values = torch.zeros(ctx.num_values)
        index = (row_starts.numpy(), columns.numpy(), ids.numpy())
        of_vectors, out = gradient.contiguous().numpy(), of_values.numpy()
        parts = num_parts(gradient.numel())
        run_parts(lambda part: _add_compact_gradient(of_vectors, *index, out, part, parts), parts)
        return of_values, None, None, None, None


@kernel
def _look_up_compact(values, row_starts, columns, ids, out, first, last):  # type: ignore[no-untyped-def]
    """Write rows first … last − 1 of `out` `[n, D]`; returns the place of an id outside the table, or −1."""
    bad = -1
    for i in range(first, last):
        row = ids[i]
        for c in range(out.shape[1]):  # here, while the row is in the cache
            out[i, c] = 0
        if row < 0 or row >= row_starts.shape[0] - 1:
            if bad < 0:
                bad = i
            continue
        for entry in range(row_starts[row], row_starts[row + 1]):
            out[i, columns[entry]] = values[entry]
    return bad


@kernel
def _add_compact_gradient(gradient, row_starts, columns, ids, out, part, num_parts):  # type: ignore[no-untyped-def]
    """Add the gradient of the rows this part owns, in batch order: no two parts write one entry."""
    for i in range(ids.shape[0]):
        row = ids[i]
        if row % num_parts == part:
            for entry in range(row_starts[row], row_starts[row + 1]):
                out[entry] += gradient[i, columns[entry]]
