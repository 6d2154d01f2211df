"""Eq. 8 on the distinct rows of a batch and Eq. 11's row gradients; fully pruned rows are skipped (`PrunedRows`)."""

import math
from typing import Any, Literal

import numpy as np
import torch
from numba import prange
from numpy import copysign, float32
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from thresher.errors import NonFiniteError
from thresher.kernels.compiling import parallel_kernel, runs_on_kernels
from thresher.kernels.distinct import DistinctIds
from thresher.kernels.primitives import FUNCTION_CODES, SOFTPLUS, prefetch_row, sigmoid, softplus
from thresher.kernels.rows import row_gradient


class PrunedRows:
    """Per row of `weight` `[N, D]` the lowest clock at which it was found to be all 0 (∞: never).

    Such a row stays 0 at every higher clock until its values or thresholds change, and they do not change, since a
    pruned row gets no gradient. For thresholds with a row per feature. Processes that share the table also share
    `from_clock`, float32 `[N]`.
    """

    def __init__(self, weight: Tensor, deviation: Tensor, from_clock: Tensor | None = None) -> None:
        self.weight, self.deviation, self._shared = weight, deviation, from_clock is not None
        empty = torch.empty(weight.shape[0], device=weight.device) if from_clock is None else from_clock
        self.from_clock = empty.fill_(torch.inf)
        self._versions = self._current_versions()
        self._records, self._any_recorded = True, self._shared

    def forget(self) -> None:
        """Call when whole tensors changed: some optimizers do not mark them as written."""
        if self._any_recorded:
            self.from_clock.fill_(torch.inf)
        self._any_recorded = self._shared  # also by another process

    def up_to_date(self) -> "PrunedRows":
        """These records, empty if a dense optimizer step or a loaded state wrote the whole table."""
        versions = self._current_versions()
        self._records = versions == self._versions  # recording has no use if every step writes the whole table
        if not self._records:
            self.forget()
            self._versions = versions
        return self

    def remove_from(self, distinct: DistinctIds, clock: float) -> DistinctIds:
        """The batch without the ids whose rows are known to be pruned at this clock."""
        if not self.up_to_date()._records:
            return distinct
        if not runs_on_kernels(self.from_clock, distinct.ids):
            return distinct.without(self.from_clock[distinct.ids] <= clock)
        pruned = self.from_clock.numpy()[distinct.ids.numpy()] <= np.float64(clock)
        return distinct.without(torch.from_numpy(pruned))

    def record(self, ids: Tensor, is_pruned: Tensor, clock: float) -> None:
        """Rows `ids` `[U]` were looked up at this clock: record those that were all 0, forget the others."""
        if not self._records:
            return
        self._any_recorded = True
        if runs_on_kernels(self.from_clock, ids):
            self.from_clock.numpy()[ids.numpy()] = np.where(is_pruned.numpy(), clock, np.inf)
        else:
            self.from_clock[ids] = torch.where(is_pruned, clock, torch.inf)

    def _current_versions(self) -> tuple[int, int]:
        return self.weight._version, self.deviation._version


def threshold_lookup(
    weight: Tensor,
    deviation: Tensor,
    clock: float,
    distinct: DistinctIds,
    deviation_rows: Tensor | None = None,
    *,
    function: Literal["softplus", "sigmoid"] = "softplus",
    pruned_rows: PrunedRows | None = None,
) -> tuple[Tensor, DistinctIds]:
    """`sign(v) · relu(|v| − g(clock + deviation))` for the distinct ids of a batch: rows `[U, D]`, and their ids.

    The gradient of `weight` is row-sparse, and so is that of a `deviation` with a row per feature; one that rows share
    gets a dense gradient. While the clock is −∞ this is the plain lookup, and the deviation gets no gradient.

    Shapes: weight `[N, D]`, deviation `[N, 1 | D]`, or `[G, 1 | D]` with the row each distinct id uses,
    `deviation_rows` int64 `[U]`. Rows that `pruned_rows` knows to be all 0 are removed from the ids returned, and new
    ones are recorded. NaN or infinity in a row, in its deviation or, while there are thresholds (they could hide it
    from the optimizer), in the incoming gradient raises `NonFiniteError`.
    """
    clock = float(clock)
    if pruned_rows is not None:
        distinct = pruned_rows.remove_from(distinct, clock)
    rows: Tensor
    rows, is_pruned = _ThresholdLookup.apply(  # type: ignore[no-untyped-call]
        weight, deviation, clock, distinct.ids, deviation_rows, function
    )
    if pruned_rows is not None:
        pruned_rows.record(distinct.ids, is_pruned, clock)
    return rows, distinct


class _ThresholdLookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, deviation, clock, ids, deviation_rows, function):  # type: ignore[no-untyped-def]
        used = ids if deviation_rows is None else deviation_rows
        on_kernels = runs_on_kernels(weight, deviation, ids, used)
        forward: Any = _forward_by_kernel if on_kernels else _forward_by_torch
        rows, is_pruned, all_finite = forward(weight, deviation, clock, ids, used, function)
        if not all_finite:
            raise NonFiniteError(
                "a row of this batch or its deviation contains NaN or infinity. "
                "Lower the learning rate, clip gradients, or resume from the last checkpoint."
            )
        ctx.save_for_backward(rows, deviation, ids, used)
        ctx.clock, ctx.function, ctx.on_kernels = clock, function, on_kernels
        ctx.weight_shape, ctx.rows_share = weight.shape, deviation_rows is not None
        ctx.mark_non_differentiable(is_pruned)
        return rows, is_pruned

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):  # type: ignore[no-untyped-def]
        rows, deviation, ids, used = ctx.saved_tensors
        others = None, None, None, None
        if ctx.clock == -math.inf:
            return row_gradient(ctx.weight_shape, ids, grad.contiguous()), None, *others
        learns = ctx.needs_input_grad[1]
        backward: Any = _backward_by_kernel if ctx.on_kernels else _backward_by_torch
        values, deviation_values, all_finite = backward(
            grad.contiguous(), rows, deviation, ctx.clock, used, ctx.function, learns
        )
        if not all_finite:
            raise NonFiniteError(
                "the gradient of the looked-up vectors contains NaN or infinity. "
                "Lower the learning rate, clip gradients, or check the dense inputs and the labels."
            )
        weight_grad = row_gradient(ctx.weight_shape, ids, values)
        if not learns:
            return weight_grad, None, *others
        if ctx.rows_share:
            return weight_grad, torch.zeros_like(deviation).index_add_(0, used, deviation_values), *others
        return weight_grad, row_gradient(deviation.shape, ids, deviation_values), *others


def _forward_by_torch(weight, deviation, clock, ids, used, function):  # type: ignore[no-untyped-def]
    values = functional.embedding(ids, weight)  # [U, D]
    raw = functional.embedding(used, deviation)  # [U, 1 | D]
    all_finite = bool(torch.isfinite(values).all() and torch.isfinite(raw).all())
    threshold = functional.softplus(clock + raw) if function == "softplus" else torch.sigmoid(clock + raw)
    rows = torch.sign(values) * torch.relu(values.abs() - threshold)
    return rows, (rows == 0).all(1), all_finite


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
    rows, is_pruned = torch.empty(ids.numel(), weight.shape[1]), torch.empty(ids.numel(), dtype=torch.bool)
    num_bad = _threshold_rows.for_work(rows.numel())(
        weight.detach().numpy(), deviation.detach().numpy(), ids.numpy(), used.numpy(),
        float32(clock), FUNCTION_CODES[function], rows.numpy(), is_pruned.numpy(),
    )  # fmt: skip
    return rows, is_pruned, num_bad == 0


def _backward_by_kernel(grad, rows, deviation, clock, used, function, learns):  # type: ignore[no-untyped-def]
    values = torch.empty_like(rows)
    deviation_values = torch.empty(rows.shape[0] if learns else 0, deviation.shape[1])
    num_bad = _threshold_gradients.for_work(rows.numel())(
        grad.numpy(), rows.detach().numpy(), deviation.detach().numpy(), used.numpy(),
        float32(clock), FUNCTION_CODES[function], learns, values.numpy(), deviation_values.numpy(),
    )  # fmt: skip
    return values, deviation_values, num_bad == 0


@parallel_kernel
def _threshold_rows(weight, deviation, ids, used, clock, function, rows, is_pruned):  # type: ignore[no-untyped-def]
    """Fill `rows` and `is_pruned`; returns the number of rows with NaN or infinity."""
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
            size = zero
            for j in range(D):
                out[j] = values[j]
                size += abs(out[j])
            num_bad += check != zero
            is_pruned[i] = size == zero
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
        size = zero
        for j in range(D):
            size += abs(out[j])
        is_pruned[i] = size == zero
    return num_bad


@parallel_kernel
def _threshold_gradients(grad, rows, deviation, used, clock, function, learns, values, deviation_values):  # type: ignore[no-untyped-def]
    """Fill `values` and, if it `learns`, `deviation_values`; returns the number of rows with NaN or infinity."""
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
