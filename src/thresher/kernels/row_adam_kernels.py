"""The kernels of a row update: for rows with a second moment per entry, with one per row, and for rows of one number.

All take the same arguments and return how many rows had NaN or infinity in their gradient. Their plain-torch twin, and
which of them serves when: `row_adam_step`.
"""

import numpy as np
from numba import prange
from numpy import float32

from thresher.kernels.parallel import parallel_kernel, serial_kernel
from thresher.kernels.prefetch import prefetch_row


@serial_kernel
def _prefetch(weight, exp_avg, exp_avg_sq, touched_at, rows, i):  # type: ignore[no-untyped-def]
    prefetch_row(weight, rows, i)
    prefetch_row(exp_avg, rows, i)
    prefetch_row(exp_avg_sq, rows, i)
    prefetch_row(touched_at, rows, i)


@parallel_kernel
def step_rows(  # type: ignore[no-untyped-def]
    weight, rows, gradient, exp_avg, exp_avg_sq, touched_at, step, max_decay_steps, absence, corrections,
    learning_rate, size, root, take_first, take_second, epsilon, weight_decay, gradient_scale,
):  # fmt: skip
    zero, has_momentum = float32(0.0), exp_avg.shape[1] > 0
    num_bad = 0
    for i in prange(rows.shape[0]):
        _prefetch(weight, exp_avg, exp_avg_sq, touched_at, rows, i)
        row = rows[i]
        grad, values, first, second = gradient[i], weight[row], exp_avg[row], exp_avg_sq[row]
        check, total = zero, zero
        for j in range(grad.shape[0]):
            check += zero * grad[j]  # 0 unless NaN or infinite
            total += abs(grad[j])
        num_bad += check != zero
        if check != zero or total == zero:
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
def step_rows_by_mean(  # type: ignore[no-untyped-def]
    weight, rows, gradient, exp_avg, exp_avg_sq, touched_at, step, max_decay_steps, absence, corrections,
    learning_rate, size, root, take_first, take_second, epsilon, weight_decay, gradient_scale,
):  # fmt: skip
    """As `step_rows`, with one second moment per row: the mean over its entries."""
    zero, has_momentum = float32(0.0), exp_avg.shape[1] > 0
    num_bad = 0
    for i in prange(rows.shape[0]):
        _prefetch(weight, exp_avg, exp_avg_sq, touched_at, rows, i)
        row = rows[i]
        grad, values, first = gradient[i], weight[row], exp_avg[row]
        check, total = zero, zero
        for j in range(grad.shape[0]):
            check += zero * grad[j]
            total += abs(grad[j])
        num_bad += check != zero
        if check != zero or total == zero:
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
def step_numbers(  # type: ignore[no-untyped-def]
    weight, rows, gradient, exp_avg, exp_avg_sq, touched_at, step, max_decay_steps, absence, corrections,
    learning_rate, size, root, take_first, take_second, epsilon, weight_decay, gradient_scale,
):  # fmt: skip
    """As `step_rows` for rows of one number (first-order weights), where entering a loop costs more than its work."""
    zero = float32(0.0)
    num_bad = 0
    for i in prange(rows.shape[0]):
        _prefetch(weight, exp_avg, exp_avg_sq, touched_at, rows, i)
        row, grad = rows[i], gradient[i, 0]
        is_bad = zero * grad != zero
        num_bad += is_bad
        if is_bad or grad == zero:
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
