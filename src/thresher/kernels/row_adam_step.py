"""One Adam step on the rows a gradient names, and on nothing else. What it means: `docs/row_updates.md`.

A row that comes back after an absence is first brought to where dense Adam would have it: its moments have faded, and
the momentum it left with has been spent. Weight decay that fell due meanwhile is caught up to a limit. Rows whose
gradient is all 0 are not touched: that is how wholly pruned rows come to cost nothing.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy import float32
from torch import Tensor

from thresher.kernels.parallel import runs_on_kernels
from thresher.kernels.row_adam_kernels import step_numbers, step_rows, step_rows_by_mean

_NEGLIGIBLE = 1e-8


@dataclass(frozen=True, kw_only=True)
class RowAdamSettings:
    """Numbers of one step.

    Attributes:
        lazy_moments: moments stand still while a row is absent, as in torch's SparseAdam, instead of being caught up.
        gradient_scale: factor on all gradients, for clipping.
    """

    learning_rate: float
    betas: tuple[float, float]
    epsilon: float
    weight_decay: float
    max_decay_steps: int
    lazy_moments: bool = False
    gradient_scale: float = 1.0


@dataclass(frozen=True)
class RowAdamState:
    """Moments and times of a table `[N, D]`.

    Attributes:
        exp_avg: first moments, `[N, D]`, or `[N, 0]` where there is no momentum (β₁ = 0).
        exp_avg_sq: second moments, `[N, D]`, or `[N, 1]` for one per row (the mean over its entries).
        touched_at: int32 `[N, 1]`, the step each row was last touched at; 0 for never.
    """

    exp_avg: Tensor
    exp_avg_sq: Tensor
    touched_at: Tensor


def row_adam_step_(
    weight: Tensor, rows: Tensor, gradient: Tensor, state: RowAdamState, step: int, settings: RowAdamSettings
) -> int:
    """Update the rows `rows` (int64 `[U]`, distinct) of `weight` and their state by `gradient` `[U, D]`.

    Returns how many rows had NaN or infinity in their gradient; those were left as they are.
    """
    on_kernels = runs_on_kernels(weight, rows, gradient, state.exp_avg, state.exp_avg_sq, state.touched_at)
    update = _update_by_kernel if on_kernels else _update_by_torch
    return update(weight.detach(), rows, gradient, state, step, settings)


def catch_up_rows_(weight: Tensor, rows: Tensor, state: RowAdamState, step: int, settings: RowAdamSettings) -> None:
    """Bring rows (int64 `[U]`, distinct) to where they would be after `step`: a touch without a loss gradient."""
    _touch(weight.detach(), rows, torch.zeros_like(weight[:1]), state, step, settings)


def _update_by_torch(
    weight: Tensor, rows: Tensor, gradient: Tensor, state: RowAdamState, step: int, settings: RowAdamSettings
) -> int:
    finite = torch.isfinite(gradient).all(1)
    used = finite & (gradient != 0).any(1)
    _touch(weight, rows[used], gradient[used] * settings.gradient_scale, state, step, settings)
    return int((~finite).sum())


def _touch(
    weight: Tensor, rows: Tensor, gradient: Tensor, state: RowAdamState, step: int, settings: RowAdamSettings
) -> None:
    gap = step - state.touched_at[rows].long()  # [U, 1]
    keep_first, keep_second, spent = _entries(_absence(settings), gap, weight)
    old_size, old_root = _entries(_corrections(*settings.betas), step - gap, weight)
    size, root = _correction(step, settings)
    values, second = weight[rows], state.exp_avg_sq[rows]
    first = state.exp_avg[rows] if state.exp_avg.shape[1] else torch.zeros_like(values)
    left = settings.learning_rate * old_size * spent * first  # momentum not yet spent when the row left
    values = values - left / (second.sqrt() * old_root + settings.epsilon)
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
    weight: Tensor, rows: Tensor, gradient: Tensor, state: RowAdamState, step: int, settings: RowAdamSettings
) -> int:
    size, root = _correction(step, settings)
    update = step_rows if state.exp_avg_sq.shape == weight.shape else step_rows_by_mean
    if weight.shape[1] == 1 and state.exp_avg.shape[1]:
        update = step_numbers
    return int(
        update.for_work(gradient.numel())(
            weight.numpy(), rows.numpy(), gradient.detach().numpy(),
            state.exp_avg.numpy(), state.exp_avg_sq.numpy(), state.touched_at.numpy(),
            step, settings.max_decay_steps, _absence(settings).numpy(), _corrections(*settings.betas).numpy(),
            float32(settings.learning_rate), float32(size), float32(root),
            float32(1 - settings.betas[0]), float32(1 - settings.betas[1]),
            float32(settings.epsilon), float32(settings.weight_decay), float32(settings.gradient_scale),
        )
    )  # fmt: skip


def _correction(step: int, settings: RowAdamSettings) -> tuple[float, float]:
    """The learning rate over `1 − β₁ᵗ`, and `1 / √(1 − β₂ᵗ)`."""
    beta1, beta2 = settings.betas
    return settings.learning_rate / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)


def _entries(table: Tensor, places: Tensor, like: Tensor) -> tuple[Tensor, ...]:
    """The columns of `table` at `places` `[U, 1]`, its last row standing for all beyond, each `[U, 1]`."""
    found = table[places.squeeze(1).cpu().clamp(max=len(table) - 1)].to(like)
    return tuple(found.unsqueeze(2).unbind(1))


def _absence(settings: RowAdamSettings) -> Tensor:
    """By the steps since a row's last touch: what is left of its moments, and how many steps' momentum is spent."""
    return _lazily(*settings.betas) if settings.lazy_moments else _caught_up(*settings.betas)


@lru_cache(maxsize=8)
def _corrections(beta1: float, beta2: float) -> Tensor:
    """`1 / (1 − β₁ᵗ)` and `1 / √(1 − β₂ᵗ)` by t, `[steps, 2]`; step 0 is for rows never touched."""
    steps = np.arange(1, _length(beta1, beta2))
    columns = 1 / (1 - beta1**steps), 1 / np.sqrt(1 - beta2**steps)
    return torch.from_numpy(np.stack([np.r_[1.0, column] for column in columns], axis=1).astype(np.float32))


def _length(beta1: float, beta2: float) -> int:
    """Steps after which the powers of both are negligible."""
    slowest = max(beta1, beta2)
    return 3 if slowest == 0 else 3 + math.ceil(math.log(_NEGLIGIBLE) / math.log(slowest))


@lru_cache(maxsize=8)
def _lazily(beta1: float, beta2: float) -> Tensor:
    return torch.tensor([[beta1, beta2, 0.0]])


@lru_cache(maxsize=8)
def _caught_up(beta1: float, beta2: float) -> Tensor:
    """`β₁ᵏ`, `β₂ᵏ` and `Σ_{0<j<k} ρʲ` with `ρ = β₁/√β₂`, `[steps, 3]`; the end stands for all longer absences.

    Dense Adam moves an absent row by `size · m ρʲ / √q` in step j of its absence: its momentum fades faster than the
    root of its second moment.
    """
    steps = np.arange(_length(beta1, beta2))
    ratio = 0.0 if beta1 == 0 else beta1 / math.sqrt(max(beta2, beta1**2 + 1e-6))
    spent = np.concatenate(([0.0, 0.0], np.cumsum(ratio ** steps[1:-1])))
    return torch.from_numpy(np.stack([beta1**steps, beta2**steps, spent], axis=1).astype(np.float32))
