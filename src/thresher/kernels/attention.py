"""Attention over the few fields of a sample, `softmax(Q Kᵀ) V` per head, and dropout that draws four numbers at once.

General attention is built for thousands of vectors. For ten it spends its time on copies of the heads, on matrices too
small for a matrix product, and on random numbers. Dropout takes four 16-bit numbers from each 64-bit draw of torch's
generator, so seeds repeat it; rates are multiples of 1/65536.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import prange
from numpy import float32
from torch import Tensor
from torch.nn import functional

from thresher.kernels.compiling import parallel_kernel, runs_on_kernels
from thresher.kernels.primitives import exp

FEW_FIELDS = 12
"""The kernels are faster up to this number of fields; beyond it torch's matrix products are."""

_DRAWS = 1 << 16


@dataclass(frozen=True)
class DropoutRule:
    """Entries whose draw is below `limit` are dropped; the others are multiplied by `scale`."""

    limit: int
    scale: float

    @classmethod
    def of(cls, rate: float) -> "DropoutRule":
        num_dropped = min(round(rate * _DRAWS), _DRAWS - 1)
        return cls(num_dropped - _DRAWS // 2, _DRAWS / (_DRAWS - num_dropped))


def draw(shape: Sequence[int]) -> Tensor:
    """Uniform random int16."""
    count = math.prod(shape)
    draws = torch.empty(-(-count // 4), dtype=torch.int64, device="cpu").random_(-(1 << 63), None)
    return draws.view(torch.int16)[:count].view(*shape)


def drop_out(values: Tensor, rate: float) -> Tensor:
    """Each entry becomes 0 with probability `rate`, and is else multiplied by `1 / (1 − rate)`: the mean stays."""
    if rate in (0.0, 1.0) or not runs_on_kernels(values):
        return functional.dropout(values, rate)
    rule = DropoutRule.of(rate)
    return values * (draw(values.shape) >= rule.limit).float().mul_(rule.scale)


def attend(query: Tensor, key: Tensor, value: Tensor, num_heads: int, *, dropout: float = 0.0) -> Tensor:
    """Query, key and value `[B, F, A]`, the heads side by side in `A` → `[B, F, A]`. Dot products are not scaled."""
    if query.shape[1] <= FEW_FIELDS and runs_on_kernels(query, key, value):
        attended: Tensor = _Attend.apply(query, key, value, num_heads, dropout)  # type: ignore[no-untyped-call]
        return attended
    return attend_by_torch(query, key, value, num_heads, dropout=dropout)


def attend_by_torch(query: Tensor, key: Tensor, value: Tensor, num_heads: int, *, dropout: float = 0.0) -> Tensor:
    """The plain-torch twin, on any device and for any number of fields."""
    attended = functional.scaled_dot_product_attention(
        _by_head(query, num_heads), _by_head(key, num_heads), _by_head(value, num_heads), dropout_p=dropout, scale=1.0
    )  # [B, H, F, A/H]
    return attended.transpose(1, 2).flatten(2)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, num_heads, dropout):  # type: ignore[no-untyped-def]
        shape = (query.shape[0], num_heads, query.shape[1], query.shape[1])
        rule = DropoutRule.of(dropout)
        scale = float32(rule.scale)
        softmax, attended = query.new_empty(shape), torch.empty_like(query)
        draws = draw(shape if rule.scale > 1 else (0, 0, 0, 0))
        _forward.for_work(softmax.numel() * query.shape[2])(
            _array(query), _array(key), _array(value), draws.numpy(), rule.limit, scale,
            softmax.numpy(), attended.numpy(),
        )  # fmt: skip
        ctx.save_for_backward(query, key, value, softmax)
        ctx.scale = scale
        return attended

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        query, key, value, softmax = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives are wanted
            kept = (softmax >= 0) * float(ctx.scale)  # [B, H, F, F]
            attended = _formula(query, key, value, kept)
            return *torch.autograd.grad(attended, (query, key, value), grad, create_graph=True), None, None
        query_grad, key_grad, value_grad = (torch.zeros_like(query) for _ in range(3))
        _backward.for_work(softmax.numel() * query.shape[2])(
            _array(query), _array(key), _array(value), softmax.numpy(), _array(grad.contiguous()), ctx.scale,
            query_grad.numpy(), key_grad.numpy(), value_grad.numpy(),
        )  # fmt: skip
        return query_grad, key_grad, value_grad, None, None


def _formula(query: Tensor, key: Tensor, value: Tensor, kept: Tensor) -> Tensor:
    """The same for given dropout weights `[B, H, F, F]`; torch can differentiate it twice."""
    query, key, value = (_by_head(x, kept.shape[1]) for x in (query, key, value))
    weights = torch.softmax(query @ key.transpose(2, 3), dim=3) * kept
    return (weights @ value).transpose(1, 2).flatten(2)


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
