"""Trainable lookup in a table of which only the kept values exist: the hot loop of retraining.

The values `[K]` lie row after row; row `r` owns entries `row_starts[r] … row_starts[r + 1]`, and entry `k` belongs to
column `columns[k]`. `compact_lookup` is the one function to call: numba on CPU float32, plain torch elsewhere.
Cost follows the batch (plus one zeroed gradient `[K]`), never `N · D`.

The kernels are serial and release the GIL; a large batch is cut into parts that Python threads take.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from thresher.kernels.compiling import kernel
from thresher.kernels.distinct import check_ids
from thresher.kernels.thread_pool import num_parts, run_parts


def compact_lookup(values: Tensor, row_starts: Tensor, columns: Tensor, ids: Tensor, embedding_dim: int) -> Tensor:
    """Vectors `[..., D]` of ids `[...]`, zero where nothing was kept; differentiable in `values`.

    The gradient is dense `[K]`, summed in batch order whatever the number of threads.

    Raises:
        IndexError: an id is outside the table.
    """
    check_ids(ids)
    if _suits_kernel(values, ids):
        vectors: Tensor = _Lookup.apply(values, row_starts, columns, ids.reshape(-1), embedding_dim)  # type: ignore[no-untyped-call]
    else:
        vectors = compact_lookup_torch(values, row_starts, columns, ids.reshape(-1), embedding_dim)
    return vectors.view(*ids.shape, embedding_dim)


def compact_lookup_torch(
    values: Tensor, row_starts: Tensor, columns: Tensor, ids: Tensor, embedding_dim: int
) -> Tensor:
    """The same in plain torch, ids `[n]` → `[n, D]`, on any device and float type."""
    ids = ids.long()
    first = row_starts[ids].long()
    sizes = row_starts[ids + 1].long() - first  # [n]
    place = torch.repeat_interleave(
        torch.arange(len(ids), device=ids.device), sizes
    )  # [E] which lookup an entry serves
    before = sizes.cumsum(0) - sizes
    entry = torch.arange(len(place), device=ids.device) + (first - before)[place]  # [E]
    cells = place * embedding_dim + columns[entry].long()
    vectors = values.new_zeros(len(ids) * embedding_dim)
    return vectors.scatter(0, cells, values[entry]).view(len(ids), embedding_dim)


def _suits_kernel(values: Tensor, ids: Tensor) -> bool:
    on_cpu = values.device.type == "cpu" and ids.device.type == "cpu"
    plain = values.dtype == torch.float32 and values.is_contiguous() and type(ids) is Tensor
    return on_cpu and plain and not torch.compiler.is_compiling()


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, row_starts: Tensor, columns: Tensor, ids: Tensor, embedding_dim: int
    ) -> Tensor:
        ids = ids.contiguous()
        vectors = torch.empty(len(ids), embedding_dim)
        index = (row_starts.numpy(), columns.numpy(), ids.numpy())
        out, kept = vectors.numpy(), values.detach().numpy()
        parts = num_parts(vectors.numel())
        bounds = [len(ids) * part // parts for part in range(parts + 1)]
        bad = run_parts(lambda part: _look_up(kept, *index, out, bounds[part], bounds[part + 1]), parts)
        if max(bad) >= 0:
            place = next(place for place in bad if place >= 0)
            raise IndexError(f"id {int(ids[place])} is outside a table of {len(row_starts) - 1} rows")
        ctx.save_for_backward(row_starts, columns, ids)
        ctx.num_values = len(values)
        return vectors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        row_starts, columns, ids = ctx.saved_tensors
        of_values = torch.zeros(ctx.num_values)
        index = (row_starts.numpy(), columns.numpy(), ids.numpy())
        of_vectors, out = gradient.contiguous().numpy(), of_values.numpy()
        parts = num_parts(gradient.numel())
        run_parts(lambda part: _add_gradient(of_vectors, *index, out, part, parts), parts)
        return of_values, None, None, None, None


@kernel
def _look_up(values, row_starts, columns, ids, out, first, last):  # type: ignore[no-untyped-def]
    """Write rows first … last − 1 of `out` `[n, D]`; returns the place of an id outside the table, or −1."""
    bad = -1
    for i in range(first, last):
        row = ids[i]
        for c in range(out.shape[1]):  # not all at once: the row is written again while it is still near
            out[i, c] = 0
        if row < 0 or row >= row_starts.shape[0] - 1:
            if bad < 0:
                bad = i
            continue
        for entry in range(row_starts[row], row_starts[row + 1]):
            out[i, columns[entry]] = values[entry]
    return bad


@kernel
def _add_gradient(gradient, row_starts, columns, ids, out, part, num_parts):  # type: ignore[no-untyped-def]
    """Add the gradient of the rows this part owns, in batch order: no two parts write one entry."""
    for i in range(ids.shape[0]):
        row = ids[i]
        if row % num_parts == part:
            for entry in range(row_starts[row], row_starts[row + 1]):
                out[entry] += gradient[i, columns[entry]]
