"""One Adam step on the rows of a row-sparse gradient. The method is described in `docs/row_updates.md`.

A row that was absent for some steps is first moved to where dense Adam would have it: its moments have decayed, and its
momentum has moved it. Missed weight decay is applied up to a limit. Rows whose gradient is all 0 are not touched, so
fully pruned rows cost nothing.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numba import prange
from numpy import float32
from torch import Tensor

from thresher.kernels.compiling import parallel_kernel, runs_on_kernels, serial_kernel
from thresher.kernels.primitives import prefetch_row

_NEGLIGIBLE = 1e-8


@dataclass(frozen=True, kw_only=True)
class RowAdamSettings:
    """Numbers of one step; `gradient_scale` multiplies all gradients, for clipping."""

    learning_rate: float
    betas: tuple[float, float]
    epsilon: float
    weight_decay: float
    max_decay_steps: int
    gradient_scale: float = 1.0


@dataclass(frozen=True)
class RowAdamState:
    """State of a table `[N, D]`."""

    exp_avg: Tensor  # first moments, [N, D], or [N, 0] without momentum (β₁ = 0)
    exp_avg_sq: Tensor  # second moments, [N, D], or [N, 1] for one per row (the mean over its entries)
    touched_at: Tensor  # int32 [N, 1], the step at which each row was last updated; 0 for never


def row_adam_step_(
    weight: Tensor, rows: Tensor, gradient: Tensor, state: RowAdamState, step: int, settings: RowAdamSettings
) -> int:
    """Update rows (int64 `[U]`, distinct) by `gradient` `[U, D]`; returns how many were not finite and so skipped."""
    on_kernels = runs_on_kernels(weight, rows, gradient, state.exp_avg, state.exp_avg_sq, state.touched_at)
    update = _update_by_kernel if on_kernels else _update_by_torch
    return update(weight.detach(), rows, gradient, state, step, settings)


def catch_up_rows_(weight: Tensor, rows: Tensor, state: RowAdamState, step: int, settings: RowAdamSettings) -> None:
    """Move rows (int64 `[U]`, distinct) to where they would be after `step`: an update with a gradient of 0."""
    if runs_on_kernels(weight, rows, state.exp_avg, state.exp_avg_sq, state.touched_at):
        zeros = torch.zeros(len(rows), weight.shape[1])
        _update_by_kernel(weight.detach(), rows, zeros, state, step, settings, update_zeros=True)
        weight.detach()[:0].zero_()  # marks the tensor as written, which numba does not
    else:
        _update_rows(weight.detach(), rows, torch.zeros_like(weight[:1]), state, step, settings)


def _update_by_torch(
    weight: Tensor, rows: Tensor, gradient: Tensor, state: RowAdamState, step: int, settings: RowAdamSettings
) -> int:
    finite = torch.isfinite(gradient).all(1)
    used = finite & (gradient != 0).any(1)
    _update_rows(weight, rows[used], gradient[used] * settings.gradient_scale, state, step, settings)
    return int((~finite).sum())


def _update_rows(
    weight: Tensor, rows: Tensor, gradient: Tensor, state: RowAdamState, step: int, settings: RowAdamSettings
) -> None:
    gap = step - state.touched_at[rows].long()  # [U, 1]
    keep_first, keep_second, spent = _columns_at(_absence(*settings.betas), gap, weight)
    old_size, old_root = _columns_at(_corrections(*settings.betas), step - gap, weight)
    size, root = _correction(step, settings)
    values, second = weight[rows], state.exp_avg_sq[rows]
    first = state.exp_avg[rows] if state.exp_avg.shape[1] else torch.zeros_like(values)
    missed = settings.learning_rate * old_size * spent * first  # by momentum, while the row was absent
    values = values - missed / (second.sqrt() * old_root + settings.epsilon)
    gradient = gradient + settings.weight_decay * gap.clamp(max=settings.max_decay_steps) * values
    square = gradient.square()
    if second.shape[1] < square.shape[1]:
        square = square.mean(1, keepdim=True)
    first = keep_first * first + (1 - settings.betas[0]) * gradient
    second = keep_second * second + (1 - settings.betas[1]) * square
    weight.index_copy_(0, rows, values - size * first / (second.sqrt() * root + settings.epsilon))
    if state.exp_avg.shape[1]:
        state.exp_avg.index_copy_(0, rows, first)
    state.exp_avg_sq.index_copy_(0, rows, second)
    state.touched_at[rows] = step


def _update_by_kernel(
    weight: Tensor,
    rows: Tensor,
    gradient: Tensor,
    state: RowAdamState,
    step: int,
    settings: RowAdamSettings,
    *,
    update_zeros: bool = False,
) -> int:
    size, root = _correction(step, settings)
    update = _step_rows if state.exp_avg_sq.shape == weight.shape else _step_rows_by_mean
    if weight.shape[1] == 1 and state.exp_avg.shape[1]:
        update = _step_numbers
    return int(
        update.for_work(gradient.numel())(
            weight.numpy(), rows.numpy(), gradient.detach().numpy(),
            state.exp_avg.numpy(), state.exp_avg_sq.numpy(), state.touched_at.numpy(),
            step, settings.max_decay_steps, _absence(*settings.betas).numpy(), _corrections(*settings.betas).numpy(),
            float32(settings.learning_rate), float32(size), float32(root),
            float32(1 - settings.betas[0]), float32(1 - settings.betas[1]),
            float32(settings.epsilon), float32(settings.weight_decay), float32(settings.gradient_scale), update_zeros,
        )
    )  # fmt: skip


def _correction(step: int, settings: RowAdamSettings) -> tuple[float, float]:
    """The learning rate over `1 − β₁ᵗ`, and `1 / √(1 − β₂ᵗ)`."""
    beta1, beta2 = settings.betas
    return settings.learning_rate / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)


def _columns_at(table: Tensor, places: Tensor, like: Tensor) -> tuple[Tensor, ...]:
    """The columns of `table` at `places` `[U, 1]`, each `[U, 1]`; places past the end use its last row."""
    found = table[places.squeeze(1).cpu().clamp(max=len(table) - 1)].to(like)
    return tuple(found.unsqueeze(2).unbind(1))


@lru_cache(maxsize=8)
def _corrections(beta1: float, beta2: float) -> Tensor:
    """`1 / (1 − β₁ᵗ)` and `1 / √(1 − β₂ᵗ)` by t, `[steps, 2]`; step 0 is for rows never updated."""
    steps = np.arange(1, _length(beta1, beta2))
    columns = 1 / (1 - beta1**steps), 1 / np.sqrt(1 - beta2**steps)
    return torch.from_numpy(np.stack([np.r_[1.0, column] for column in columns], axis=1).astype(np.float32))


def _length(beta1: float, beta2: float) -> int:
    """Steps after which the powers of both are negligible."""
    slowest = max(beta1, beta2)
    return 3 if slowest == 0 else 3 + math.ceil(math.log(_NEGLIGIBLE) / math.log(slowest))


@lru_cache(maxsize=8)
def _absence(beta1: float, beta2: float) -> Tensor:
    """`β₁ᵏ`, `β₂ᵏ` and `Σ_{0<j<k} ρʲ` with `ρ = β₁/√β₂` by the steps k since a row's last update, `[steps, 3]`.

    Dense Adam moves an absent row by `size · m ρʲ / √q` in step j of its absence: the momentum decays faster than the
    root of the second moment. The last row is for all longer absences.
    """
    steps = np.arange(_length(beta1, beta2))
    ratio = 0.0 if beta1 == 0 else beta1 / math.sqrt(max(beta2, beta1**2 + 1e-6))
    spent = np.concatenate(([0.0, 0.0], np.cumsum(ratio ** steps[1:-1])))
    return torch.from_numpy(np.stack([beta1**steps, beta2**steps, spent], axis=1).astype(np.float32))


# The kernels take the same arguments and return the number of rows with NaN or infinity in their gradient. Rows whose
# gradient is all 0 are updated only with `update_zeros`.


@serial_kernel
def _prefetch_state(weight, exp_avg, exp_avg_sq, touched_at, rows, i):  # type: ignore[no-untyped-def]
    prefetch_row(weight, rows, i)
    prefetch_row(exp_avg, rows, i)
    prefetch_row(exp_avg_sq, rows, i)
    prefetch_row(touched_at, rows, i)


@parallel_kernel
def _step_rows(  # type: ignore[no-untyped-def]
    weight, rows, gradient, exp_avg, exp_avg_sq, touched_at, step, max_decay_steps, absence, corrections,
    learning_rate, size, root, take_first, take_second, epsilon, weight_decay, gradient_scale, update_zeros,
):  # fmt: skip
    zero, has_momentum = float32(0.0), exp_avg.shape[1] > 0
    num_bad = 0
    for i in prange(rows.shape[0]):
        _prefetch_state(weight, exp_avg, exp_avg_sq, touched_at, rows, i)
        row = rows[i]
        grad, values, first, second = gradient[i], weight[row], exp_avg[row], exp_avg_sq[row]
        check, total = zero, zero
        for j in range(grad.shape[0]):
            check += zero * grad[j]  # 0 unless NaN or infinite
            total += abs(grad[j])
        num_bad += check != zero
        if check != zero or (total == zero and not update_zeros):
            continue
        gap = step - touched_at[row, 0]
        away = absence[min(gap, absence.shape[0] - 1)]
        then = corrections[min(touched_at[row, 0], corrections.shape[0] - 1)]
        touched_at[row, 0] = step
        keep_first, keep_second, spent, old_root = away[0], away[1], learning_rate * then[0] * away[2], then[1]
        decay = weight_decay * float32(min(gap, max_decay_steps))
        if not has_momentum:
            for j in range(grad.shape[0]):
                g = grad[j] * gradient_scale + decay * values[j]
                second[j] = keep_second * second[j] + take_second * g * g
                values[j] -= size * g / (np.sqrt(second[j]) * root + epsilon)
            continue
        if spent != zero:
            for j in range(grad.shape[0]):
                values[j] -= spent * first[j] / (np.sqrt(second[j]) * old_root + epsilon)
        for j in range(grad.shape[0]):
            g = grad[j] * gradient_scale + decay * values[j]
            m = keep_first * first[j] + take_first * g
            q = keep_second * second[j] + take_second * g * g
            first[j], second[j] = m, q
            values[j] -= size * m / (np.sqrt(q) * root + epsilon)
    return num_bad


@parallel_kernel
def _step_rows_by_mean(  # type: ignore[no-untyped-def]
    weight, rows, gradient, exp_avg, exp_avg_sq, touched_at, step, max_decay_steps, absence, corrections,
    learning_rate, size, root, take_first, take_second, epsilon, weight_decay, gradient_scale, update_zeros,
):  # fmt: skip
    """As `_step_rows`, with one second moment per row: the mean over its entries."""
    zero, has_momentum = float32(0.0), exp_avg.shape[1] > 0
    num_bad = 0
    for i in prange(rows.shape[0]):
        _prefetch_state(weight, exp_avg, exp_avg_sq, touched_at, rows, i)
        row = rows[i]
        grad, values, first = gradient[i], weight[row], exp_avg[row]
        check, total = zero, zero
        for j in range(grad.shape[0]):
            check += zero * grad[j]
            total += abs(grad[j])
        num_bad += check != zero
        if check != zero or (total == zero and not update_zeros):
            continue
        gap = step - touched_at[row, 0]
        away = absence[min(gap, absence.shape[0] - 1)]
        then = corrections[min(touched_at[row, 0], corrections.shape[0] - 1)]
        touched_at[row, 0] = step
        spent = learning_rate * then[0] * away[2] / (np.sqrt(exp_avg_sq[row, 0]) * then[1] + epsilon)
        decay = weight_decay * float32(min(gap, max_decay_steps))
        square = zero
        if has_momentum:
            for j in range(grad.shape[0]):
                values[j] -= spent * first[j]
                g = grad[j] * gradient_scale + decay * values[j]
                first[j] = away[0] * first[j] + take_first * g
                square += g * g
        else:
            for j in range(grad.shape[0]):
                g = grad[j] * gradient_scale + decay * values[j]
                square += g * g
        q = away[1] * exp_avg_sq[row, 0] + take_second * square / float32(grad.shape[0])
        exp_avg_sq[row, 0] = q
        length = size / (np.sqrt(q) * root + epsilon)
        if has_momentum:
            for j in range(grad.shape[0]):
                values[j] -= length * first[j]
        else:
            for j in range(grad.shape[0]):
                values[j] -= length * (grad[j] * gradient_scale + decay * values[j])
    return num_bad


@parallel_kernel
def _step_numbers(  # type: ignore[no-untyped-def]
    weight, rows, gradient, exp_avg, exp_avg_sq, touched_at, step, max_decay_steps, absence, corrections,
    learning_rate, size, root, take_first, take_second, epsilon, weight_decay, gradient_scale, update_zeros,
):  # fmt: skip
    """As `_step_rows` for rows of one number (first-order weights): loops of one iteration would cost more."""
    zero = float32(0.0)
    num_bad = 0
    for i in prange(rows.shape[0]):
        _prefetch_state(weight, exp_avg, exp_avg_sq, touched_at, rows, i)
        row, grad = rows[i], gradient[i, 0]
        is_bad = zero * grad != zero
        num_bad += is_bad
        if is_bad or (grad == zero and not update_zeros):
            continue
        touched = touched_at[row, 0]
        gap = step - touched
        away, then = min(gap, absence.shape[0] - 1), min(touched, corrections.shape[0] - 1)
        touched_at[row, 0] = step
        first, second = exp_avg[row, 0], exp_avg_sq[row, 0]
        spent = learning_rate * corrections[then, 0] * absence[away, 2] * first
        value = weight[row, 0] - spent / (np.sqrt(second) * corrections[then, 1] + epsilon)
        g = grad * gradient_scale + weight_decay * float32(min(gap, max_decay_steps)) * value
        first = absence[away, 0] * first + take_first * g
        second = absence[away, 1] * second + take_second * g * g
        exp_avg[row, 0], exp_avg_sq[row, 0] = first, second
        weight[row, 0] = value - size * first / (np.sqrt(second) * root + epsilon)
    return num_bad
