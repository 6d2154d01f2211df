"""Eq. 8 on the distinct rows of a batch: look up, threshold by `g(clock + deviation)`, and Eq. 11's row gradients.

No temporary has more rows than the batch. Not here: how the clock moves (`thresher.search`), how rows are updated
(`thresher.training.row_adam`).
"""

import math
from typing import Any, Literal

import torch
from numba import prange
from numpy import copysign, float32
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from thresher.errors import NonFiniteError
from thresher.kernels.distinct import DistinctIds
from thresher.kernels.parallel import parallel_kernel, runs_on_kernels
from thresher.kernels.prefetch import prefetch_row
from thresher.kernels.rows import row_gradient
from thresher.kernels.vector_math import FUNCTION_CODES, SOFTPLUS, sigmoid, softplus

ThresholdFunctionName = Literal["softplus", "sigmoid"]


def threshold_lookup(
    weight: Tensor,
    deviation: Tensor,
    clock: float,
    distinct: DistinctIds,
    deviation_rows: Tensor | None = None,
    *,
    function: ThresholdFunctionName = "softplus",
) -> Tensor:
    """`sign(v) · relu(|v| − g(clock + deviation))` for the distinct rows of a batch, `[U, D]`.

    The gradient of `weight` is row-sparse, and so is that of a `deviation` with a row per feature; one that rows share
    gets a dense gradient. While the clock is −∞ thresholds are exactly 0 and the deviation gets none.

    Args:
        weight: `[N, D]`.
        deviation: `[N, 1 | D]`, or `[G, 1 | D]` with `deviation_rows`.
        clock: one number; −∞ for no threshold at all.
        distinct: the ids looked up.
        deviation_rows: int64 `[U]`, which row of the deviation each distinct id uses; its own when absent.
        function: `g`.

    Raises:
        NonFiniteError: a row looked up, its deviation or an arriving gradient is NaN or infinite.
    """
    rows: Tensor = _ThresholdLookup.apply(  # type: ignore[no-untyped-call]
        weight, deviation, float(clock), distinct, deviation_rows, function
    )
    return rows


class _ThresholdLookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, deviation, clock, distinct, deviation_rows, function):  # type: ignore[no-untyped-def]
        used = distinct.ids if deviation_rows is None else deviation_rows
        on_kernels = runs_on_kernels(weight, deviation, distinct.ids, used)
        forward: Any = _forward_by_kernel if on_kernels else _forward_by_torch
        rows, all_finite = forward(weight, deviation, clock, distinct.ids, used, function)
        if not all_finite:
            raise NonFiniteError(
                "the table or its deviation holds NaN or infinity in a row of this batch; "
                "lower the learning rate, clip gradients, or go back to the last checkpoint"
            )
        ctx.save_for_backward(rows, deviation, distinct.ids, used)
        ctx.clock, ctx.function, ctx.on_kernels = clock, function, on_kernels
        ctx.weight_shape, ctx.rows_share = weight.shape, deviation_rows is not None
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        rows, deviation, ids, used = ctx.saved_tensors
        learns = ctx.needs_input_grad[1] and ctx.clock != -math.inf
        backward: Any = _backward_by_kernel if ctx.on_kernels else _backward_by_torch
        values, deviation_values, all_finite = backward(
            grad.contiguous(), rows, deviation, ctx.clock, used, ctx.function, learns
        )
        if not all_finite:
            raise NonFiniteError(
                "the gradient of the looked-up vectors holds NaN or infinity; "
                "lower the learning rate, clip gradients, or check the dense inputs and the labels"
            )
        weight_grad = row_gradient(ctx.weight_shape, ids, values)
        if not learns:
            return weight_grad, None, None, None, None, None
        if ctx.rows_share:
            shared = torch.zeros_like(deviation).index_add_(0, used, deviation_values)
            return weight_grad, shared, None, None, None, None
        return weight_grad, row_gradient(deviation.shape, ids, deviation_values), None, None, None, None


def _forward_by_torch(weight, deviation, clock, ids, used, function):  # type: ignore[no-untyped-def]
    values = functional.embedding(ids, weight)  # [U, D]
    raw = functional.embedding(used, deviation)  # [U, 1 | D]
    all_finite = bool(torch.isfinite(values).all() and torch.isfinite(raw).all())
    threshold = functional.softplus(clock + raw) if function == "softplus" else torch.sigmoid(clock + raw)
    return torch.sign(values) * torch.relu(values.abs() - threshold), all_finite


def _backward_by_torch(grad, rows, deviation, clock, used, function, learns):  # type: ignore[no-untyped-def]
    all_finite = bool(torch.isfinite(grad).all())
    values = grad.where(rows != 0, 0.0)
    if not learns:
        return values, None, all_finite
    slope = torch.sigmoid(clock + functional.embedding(used, deviation))  # [U, 1 | D], softplus′
    if function == "sigmoid":
        slope = slope * (1 - slope)
    by_entry = -torch.sign(rows) * values * slope  # [U, D]
    return values, by_entry if deviation.shape[1] == rows.shape[1] else by_entry.sum(1, keepdim=True), all_finite


def _forward_by_kernel(weight, deviation, clock, ids, used, function):  # type: ignore[no-untyped-def]
    rows = torch.empty(ids.numel(), weight.shape[1])
    num_bad = _threshold_rows(
        weight.detach().numpy(), deviation.detach().numpy(), ids.numpy(), used.numpy(),
        float32(clock), FUNCTION_CODES[function], rows.numpy(),
    )  # fmt: skip
    return rows, num_bad == 0


def _backward_by_kernel(grad, rows, deviation, clock, used, function, learns):  # type: ignore[no-untyped-def]
    values = torch.empty_like(rows)
    deviation_values = torch.empty(rows.shape[0] if learns else 0, deviation.shape[1])
    num_bad = _threshold_gradients(
        grad.numpy(), rows.detach().numpy(), deviation.detach().numpy(), used.numpy(),
        float32(clock), FUNCTION_CODES[function], learns, values.numpy(), deviation_values.numpy(),
    )  # fmt: skip
    return values, deviation_values, num_bad == 0


@parallel_kernel
def _threshold_rows(weight, deviation, ids, used, clock, function, rows):  # type: ignore[no-untyped-def]
    """Fill `rows`; returns how many of them met NaN or infinity."""
    zero, without_threshold = float32(0.0), clock == float32(-math.inf)
    D, per_dimension = weight.shape[1], deviation.shape[1] == weight.shape[1]
    num_bad = 0
    for i in prange(ids.shape[0]):
        prefetch_row(weight, ids, i)
        values, raw, out = weight[ids[i]], deviation[used[i]], rows[i]
        check = zero  # 0 · x is 0 unless x is NaN or infinite
        for j in range(D):
            check += zero * values[j]
        if without_threshold:
            for j in range(D):
                out[j] = values[j]
            num_bad += check != zero
            continue
        prefetch_row(deviation, used, i)
        for j in range(raw.shape[0]):
            check += zero * raw[j]
        num_bad += check != zero
        if not per_dimension:
            threshold = softplus(clock + raw[0]) if function == SOFTPLUS else sigmoid(clock + raw[0])
            for j in range(D):
                out[j] = copysign(max(abs(values[j]) - threshold, zero), values[j])
        elif function == SOFTPLUS:
            for j in range(D):
                out[j] = copysign(max(abs(values[j]) - softplus(clock + raw[j]), zero), values[j])
        else:
            for j in range(D):
                out[j] = copysign(max(abs(values[j]) - sigmoid(clock + raw[j]), zero), values[j])
    return num_bad


@parallel_kernel
def _threshold_gradients(grad, rows, deviation, used, clock, function, learns, values, deviation_values):  # type: ignore[no-untyped-def]
    """Fill `values` and, when the deviation learns, `deviation_values`; returns how many rows met NaN or infinity."""
    zero, one = float32(0.0), float32(1.0)
    D, per_dimension = rows.shape[1], deviation.shape[1] == rows.shape[1]
    num_bad = 0
    for i in prange(rows.shape[0]):
        check = zero
        for j in range(D):
            check += zero * grad[i, j]
            values[i, j] = grad[i, j] if rows[i, j] != zero else zero
        num_bad += check != zero
        if learns:
            prefetch_row(deviation, used, i)
            raw = deviation[used[i]]
            if not per_dimension:
                total = zero
                for j in range(D):
                    total -= values[i, j] * copysign(one, rows[i, j])
                slope = sigmoid(clock + raw[0])
                deviation_values[i, 0] = total * (slope if function == SOFTPLUS else slope * (one - slope))
            elif function == SOFTPLUS:
                for j in range(D):
                    slope = sigmoid(clock + raw[j])
                    deviation_values[i, j] = -values[i, j] * copysign(one, rows[i, j]) * slope
            else:
                for j in range(D):
                    slope = sigmoid(clock + raw[j])
                    deviation_values[i, j] = -values[i, j] * copysign(one, rows[i, j]) * slope * (one - slope)
    return num_bad
