"""How the fields of a sample interact: attention, the FM term and sums over fields.

General attention is built for thousands of vectors. For ten it spends its time on copies of the heads, on matrices too
small for a matrix product, and on random numbers. Dropout takes four 16-bit numbers from each 64-bit draw of torch's
generator, so seeds repeat it; rates are multiples of 1/65536. Sums are taken straight from the distinct rows of a batch
(`DistinctIds`), without copying them to `[B, F, D]`.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import prange
from numpy import float32
from torch import Tensor
from torch.nn import functional

from thresher.kernels.compiling import parallel_kernel, runs_on_kernels
from thresher.kernels.distinct import DistinctIds
from thresher.kernels.primitives import exp
from thresher.kernels.rows import CHUNKS_PER_THREAD, collect_rows, expand_rows, first_row_of_chunk

FEW_FIELDS = 12  # up to this number the kernels of attention are faster, beyond it torch's matrix products

_DRAWS = 1 << 16


def _dropout_rule(rate: float) -> tuple[int, float]:
    """A limit and a scale: entries whose draw is below the limit are dropped, the others multiplied by the scale."""
    num_dropped = min(round(rate * _DRAWS), _DRAWS - 1)
    return num_dropped - _DRAWS // 2, _DRAWS / (_DRAWS - num_dropped)


def draw(shape: Sequence[int]) -> Tensor:
    """Uniform random int16."""
    count = math.prod(shape)
    draws = torch.empty(-(-count // 4), dtype=torch.int64, device="cpu").random_(-(1 << 63), None)
    return draws.view(torch.int16)[:count].view(*shape)


def drop_out(values: Tensor, rate: float) -> Tensor:
    """Each entry becomes 0 with probability `rate`, and is else multiplied by `1 / (1 − rate)`: the mean stays."""
    if rate in (0.0, 1.0) or not runs_on_kernels(values):
        return functional.dropout(values, rate)
    limit, scale = _dropout_rule(rate)
    return values * (draw(values.shape) >= limit).float().mul_(scale)


def attend(query: Tensor, key: Tensor, value: Tensor, num_heads: int, *, dropout: float = 0.0) -> Tensor:
    """Query, key and value `[B, F, A]`, the heads side by side in `A` → `[B, F, A]`. Dot products are not scaled."""
    if query.shape[1] <= FEW_FIELDS and runs_on_kernels(query, key, value):
        return _Attend.apply(query, key, value, num_heads, dropout)  # type: ignore[no-any-return,no-untyped-call]
    return attend_by_torch(query, key, value, num_heads, dropout=dropout)


def attend_by_torch(query: Tensor, key: Tensor, value: Tensor, num_heads: int, *, dropout: float = 0.0) -> Tensor:
    """The plain-torch twin, on any device and for any number of fields."""
    query, key, value = (_by_head(x, num_heads) for x in (query, key, value))  # [B, H, F, A/H]
    attended = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=1.0)
    return attended.transpose(1, 2).flatten(2)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, num_heads, dropout):  # type: ignore[no-untyped-def]
        shape = (query.shape[0], num_heads, query.shape[1], query.shape[1])
        limit, scale = _dropout_rule(dropout)
        softmax, attended = query.new_empty(shape), torch.empty_like(query)
        draws = draw(shape if scale > 1 else (0, 0, 0, 0))
        _forward.for_work(softmax.numel() * query.shape[2])(
            _array(query), _array(key), _array(value), draws.numpy(), limit, float32(scale),
            softmax.numpy(), attended.numpy(),
        )  # fmt: skip
        ctx.save_for_backward(query, key, value, softmax)
        ctx.scale = float32(scale)
        return attended

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        query, key, value, softmax = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives are wanted
            heads = [_by_head(x, softmax.shape[1]) for x in (query, key, value)]
            weights = torch.softmax(heads[0] @ heads[1].transpose(2, 3), dim=3) * (softmax >= 0) * float(ctx.scale)
            attended = (weights @ heads[2]).transpose(1, 2).flatten(2)
            return *torch.autograd.grad(attended, (query, key, value), grad, create_graph=True), None, None
        query_grad, key_grad, value_grad = (torch.zeros_like(query) for _ in range(3))
        _backward.for_work(softmax.numel() * query.shape[2])(
            _array(query), _array(key), _array(value), softmax.numpy(), _array(grad.contiguous()), ctx.scale,
            query_grad.numpy(), key_grad.numpy(), value_grad.numpy(),
        )  # fmt: skip
        return query_grad, key_grad, value_grad, None, None


def _by_head(projected: Tensor, num_heads: int) -> Tensor:
    """`[B, F, A]` → `[B, H, F, A/H]`."""
    return projected.reshape(*projected.shape[:2], num_heads, -1).transpose(1, 2)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().numpy()


@parallel_kernel
def _forward(query, key, value, draws, limit, scale, softmax, attended):  # type: ignore[no-untyped-def]
    """`softmax` is negative where a weight is dropped: backward needs the weight and whether it was dropped."""
    num_heads, num_fields = softmax.shape[1], softmax.shape[2]
    width = query.shape[2] // num_heads
    for b in prange(query.shape[0]):
        for h in range(num_heads):
            first = h * width
            for i in range(num_fields):
                weights = softmax[b, h, i]
                largest, total = float32(-np.inf), float32(0.0)
                for j in range(num_fields):
                    score = float32(0.0)
                    for d in range(width):
                        score += query[b, i, first + d] * key[b, j, first + d]
                    weights[j] = score
                    largest = max(largest, score)
                    total += score - score  # 0, or NaN, which `exp` does not propagate
                for j in range(num_fields):
                    weights[j] = exp(weights[j] - largest)
                    total += weights[j]
                for d in range(width):
                    attended[b, i, first + d] = float32(0.0)
                for j in range(num_fields):
                    weights[j] /= total
                    if draws.size and draws[b, h, i, j] < limit:
                        weights[j] = -weights[j]
                        continue
                    weight = weights[j] * scale
                    for d in range(width):
                        attended[b, i, first + d] += weight * value[b, j, first + d]


@parallel_kernel
def _backward(query, key, value, softmax, grad, scale, query_grad, key_grad, value_grad):  # type: ignore[no-untyped-def]
    """Adds to three zeroed gradients."""
    num_heads, num_fields = softmax.shape[1], softmax.shape[2]
    width = query.shape[2] // num_heads
    for b in prange(query.shape[0]):
        weight_grads = np.empty(num_fields, float32)
        for h in range(num_heads):
            first = h * width
            for i in range(num_fields):
                weights = softmax[b, h, i]
                mean = float32(0.0)
                for j in range(num_fields):
                    weight_grads[j] = float32(0.0)
                    if weights[j] < 0:
                        continue
                    weight_grad, weight = float32(0.0), weights[j] * scale
                    for d in range(width):
                        weight_grad += grad[b, i, first + d] * value[b, j, first + d]
                    for d in range(width):
                        value_grad[b, j, first + d] += weight * grad[b, i, first + d]
                    weight_grads[j] = weight_grad * scale
                    mean += weights[j] * weight_grads[j]
                for j in range(num_fields):
                    score_grad = abs(weights[j]) * (weight_grads[j] - mean)
                    for d in range(width):
                        query_grad[b, i, first + d] += score_grad * key[b, j, first + d]
                    for d in range(width):
                        key_grad[b, j, first + d] += score_grad * query[b, i, first + d]


def fm_from_rows(rows: Tensor, distinct: DistinctIds) -> Tensor:
    """Sum of the dot products of all pairs of fields: rows `[U, D]` at places `[B, F]` → `[B]`."""
    if runs_on_kernels(rows, distinct.places):
        return _FmFromRows.apply(rows, distinct)  # type: ignore[no-any-return,no-untyped-call]
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
        return _JoinRows.apply(rows, distinct)  # type: ignore[no-any-return,no-untyped-call]
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
