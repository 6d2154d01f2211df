"""One Adam step on the rows a gradient names, and on nothing else. What it means: `docs/row_updates.md`.

The moments of a row move only when the row does. Weight decay that fell due meanwhile is caught up, up to a limit. Rows
whose gradient is all 0 are not touched: that is how wholly pruned rows come to cost nothing.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from numba import prange
from numpy import float32
from torch import Tensor

from thresher.kernels.parallel import parallel_kernel, runs_on_kernels
from thresher.kernels.prefetch import prefetch_row

BiasCorrection = Literal["row", "global"]
_NEGLIGIBLE = 1e-8


@dataclass(frozen=True, kw_only=True)
class RowAdamSettings:
    """Numbers of one step; `bias_correction` goes by each row's own touches or by the optimizer's steps."""

    learning_rate: float
    betas: tuple[float, float]
    epsilon: float
    weight_decay: float
    max_decay_steps: int
    bias_correction: BiasCorrection
    gradient_scale: float = 1.0


@dataclass(frozen=True)
class RowAdamState:
    """Moments and times of a table `[N, D]`.

    Attributes:
        exp_avg: first moments, `[N, D]`.
        exp_avg_sq: second moments, `[N, D]`, or `[N, 1]` for one per row (the mean over its entries).
        row_steps: int32 `[N, 2]`: the step a row was last touched at (0: never) and how often it was.
    """

    exp_avg: Tensor
    exp_avg_sq: Tensor
    row_steps: Tensor


def row_adam_step_(
    weight: Tensor, rows: Tensor, gradient: Tensor, state: RowAdamState, step: int, settings: RowAdamSettings
) -> int:
    """Update the rows `rows` (int64 `[U]`, distinct) of `weight` and their state by `gradient` `[U, D]`.

    Returns how many rows had NaN or infinity in their gradient; those were left as they are.
    """
    on_kernels = runs_on_kernels(weight, rows, gradient, state.exp_avg, state.exp_avg_sq, state.row_steps)
    update = _update_by_kernel if on_kernels else _update_by_torch
    return update(weight.detach(), rows, gradient, state, step, settings)


def _update_by_torch(
    weight: Tensor, rows: Tensor, gradient: Tensor, state: RowAdamState, step: int, settings: RowAdamSettings
) -> int:
    finite = torch.isfinite(gradient).all(1)
    used = finite & (gradient != 0).any(1)
    rows, gradient = rows[used], gradient[used] * settings.gradient_scale  # [U], [U, D]
    values, row_steps = weight[rows], state.row_steps[rows]
    gap = (step - row_steps[:, :1]).clamp(max=settings.max_decay_steps)  # [U, 1]
    gradient = gradient + settings.weight_decay * gap * values
    beta1, beta2 = settings.betas
    first = beta1 * state.exp_avg[rows] + (1 - beta1) * gradient
    square = gradient.square()
    if state.exp_avg_sq.shape[1] < square.shape[1]:
        square = square.mean(1, keepdim=True)
    second = beta2 * state.exp_avg_sq[rows] + (1 - beta2) * square
    touches = row_steps[:, 1] + 1
    first_scale, second_scale = (scale.to(values.device) for scale in _scales(step, settings))
    index = touches.clamp(max=len(first_scale) - 1).long()
    size = settings.learning_rate * first_scale[index].unsqueeze(1)  # [U, 1]
    root = second.sqrt() * second_scale[index].unsqueeze(1) + settings.epsilon
    weight.index_copy_(0, rows, values - size * first / root)
    state.exp_avg.index_copy_(0, rows, first)
    state.exp_avg_sq.index_copy_(0, rows, second)
    state.row_steps[rows] = torch.stack((torch.full_like(touches, step), touches), dim=1)
    return int((~finite).sum())


def _update_by_kernel(
    weight: Tensor, rows: Tensor, gradient: Tensor, state: RowAdamState, step: int, settings: RowAdamSettings
) -> int:
    first_scale, second_scale = _scales(step, settings)
    update = _step_rows if state.exp_avg_sq.shape == state.exp_avg.shape else _step_rows_by_mean
    return int(
        update.for_work(gradient.numel())(
            weight.numpy(), rows.numpy(), gradient.detach().numpy(),
            state.exp_avg.numpy(), state.exp_avg_sq.numpy(), state.row_steps.numpy(),
            step, settings.max_decay_steps, first_scale.numpy(), second_scale.numpy(),
            float32(settings.learning_rate), _share(settings.betas[0]), _share(settings.betas[1]),
            float32(settings.epsilon), float32(settings.weight_decay), float32(settings.gradient_scale),
        )
    )  # fmt: skip


def _share(beta: float) -> tuple[float32, float32]:
    """What a moment keeps and what it takes in; the latter not from the rounded former, which would lose digits."""
    return float32(beta), float32(1 - beta)


def _scales(step: int, settings: RowAdamSettings) -> tuple[Tensor, Tensor]:
    """Bias corrections `1 / (1 − β₁ᵗ)` and `1 / √(1 − β₂ᵗ)` by a row's touches; of length 1 when all share them."""
    if settings.bias_correction == "row":
        return _scales_by_touches(*settings.betas)
    beta1, beta2 = settings.betas
    return torch.tensor([1 / (1 - beta1**step)]), torch.tensor([1 / math.sqrt(1 - beta2**step)])


@lru_cache(maxsize=8)
def _scales_by_touches(beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
    slowest = max(beta1, beta2)
    length = 2 if slowest == 0 else 2 + math.ceil(math.log(_NEGLIGIBLE) / math.log(slowest))
    touches = np.arange(1, length, dtype=np.float64)
    first, second = 1 / (1 - beta1**touches), 1 / np.sqrt(1 - beta2**touches)
    return tuple(torch.from_numpy(np.r_[1.0, scale].astype(np.float32)) for scale in (first, second))  # type: ignore[return-value]


@parallel_kernel
def _step_rows(  # type: ignore[no-untyped-def]
    weight, rows, gradient, exp_avg, exp_avg_sq, row_steps, step, max_decay_steps, first_scale, second_scale,
    learning_rate, beta1, beta2, epsilon, weight_decay, gradient_scale,
):  # fmt: skip
    zero = float32(0.0)
    num_bad = 0
    for i in prange(rows.shape[0]):
        prefetch_row(weight, rows, i)
        prefetch_row(exp_avg, rows, i)
        prefetch_row(row_steps, rows, i)
        prefetch_row(exp_avg_sq, rows, i)
        row = rows[i]
        grad, values, first, second = gradient[i], weight[row], exp_avg[row], exp_avg_sq[row]
        check, size = zero, zero
        for j in range(grad.shape[0]):
            check += zero * grad[j]  # 0 unless NaN or infinite
            size += abs(grad[j])
        num_bad += check != zero
        if check != zero or size == zero:
            continue
        decay = weight_decay * float32(min(step - row_steps[row, 0], max_decay_steps))
        row_steps[row, 0] = step
        row_steps[row, 1] += 1
        touches = min(row_steps[row, 1], first_scale.shape[0] - 1)
        length, root_scale = learning_rate * first_scale[touches], second_scale[touches]
        for j in range(grad.shape[0]):
            g = grad[j] * gradient_scale + decay * values[j]
            m = beta1[0] * first[j] + beta1[1] * g
            q = beta2[0] * second[j] + beta2[1] * g * g
            first[j], second[j] = m, q
            values[j] -= length * m / (np.sqrt(q) * root_scale + epsilon)
    return num_bad


@parallel_kernel
def _step_rows_by_mean(  # type: ignore[no-untyped-def]
    weight, rows, gradient, exp_avg, exp_avg_sq, row_steps, step, max_decay_steps, first_scale, second_scale,
    learning_rate, beta1, beta2, epsilon, weight_decay, gradient_scale,
):  # fmt: skip
    """As `_step_rows`, with one second moment per row: the mean over its entries."""
    zero = float32(0.0)
    num_bad = 0
    for i in prange(rows.shape[0]):
        prefetch_row(weight, rows, i)
        prefetch_row(exp_avg, rows, i)
        prefetch_row(row_steps, rows, i)
        row = rows[i]
        grad, values, first = gradient[i], weight[row], exp_avg[row]
        check, size = zero, zero
        for j in range(grad.shape[0]):
            check += zero * grad[j]
            size += abs(grad[j])
        num_bad += check != zero
        if check != zero or size == zero:
            continue
        decay = weight_decay * float32(min(step - row_steps[row, 0], max_decay_steps))
        row_steps[row, 0] = step
        row_steps[row, 1] += 1
        touches = min(row_steps[row, 1], first_scale.shape[0] - 1)
        square = zero
        for j in range(grad.shape[0]):
            g = grad[j] * gradient_scale + decay * values[j]
            square += g * g
        q = beta2[0] * exp_avg_sq[row, 0] + beta2[1] * square / float32(grad.shape[0])
        exp_avg_sq[row, 0] = q
        length = learning_rate * first_scale[touches] / (np.sqrt(q) * second_scale[touches] + epsilon)
        for j in range(grad.shape[0]):
            g = grad[j] * gradient_scale + decay * values[j]
            first[j] = beta1[0] * first[j] + beta1[1] * g
            values[j] -= length * first[j]
    return num_bad
