"""Attention over a sample's few fields, in one pass: `softmax(Q Kᵀ) V` for each head, with dropout of its weights.

General attention is made for thousands of vectors. For ten it spends its time on copies of the heads, on matrices too
small for a matrix product, and on drawing random numbers one by one.
"""

from typing import Any

import numpy as np
import torch
from numba import prange
from numpy import float32
from torch import Tensor
from torch.nn import functional

from thresher.kernels.dropout import DropoutRule, draw
from thresher.kernels.parallel import parallel_kernel, runs_on_kernels
from thresher.kernels.vector_math import exp

FEW_FIELDS = 12
"""Up to so many the kernels are ahead; beyond, torch's matrix products are."""


def attend(query: Tensor, key: Tensor, value: Tensor, num_heads: int, *, dropout: float = 0.0) -> Tensor:
    """Three times `[B, F, A]`, the heads side by side in `A` → `[B, F, A]`. The dot products are not scaled."""
    if query.shape[1] <= FEW_FIELDS and runs_on_kernels(query, key, value):
        attended: Tensor = _Attend.apply(query, key, value, num_heads, dropout)  # type: ignore[no-untyped-call]
        return attended
    return attend_by_torch(query, key, value, num_heads, dropout=dropout)


def attend_by_torch(query: Tensor, key: Tensor, value: Tensor, num_heads: int, *, dropout: float = 0.0) -> Tensor:
    """The same, on any device and for any number of fields."""
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
        if torch.is_grad_enabled():  # somebody wants second derivatives
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
    """The same for given weights of the dropout `[B, H, F, F]`, in operations that torch can differentiate twice."""
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
    """`softmax` is negative where a weight is dropped: backward needs to know both."""
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
                    total += score - score  # 0, or NaN, which `exp` would hide
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
    """Adds to three gradients that start at 0."""
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
