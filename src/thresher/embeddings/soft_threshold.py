"""Eq. 8 and Eq. 11 of the paper as pure functions: what a threshold does to values, and which entries it keeps.

Not here: where the threshold comes from (`threshold_function`, `granularity`) or how it moves (`thresher.search`).
"""

import torch
from torch import Tensor


def soft_threshold(values: Tensor, threshold: Tensor) -> Tensor:
    """Eq. 8: `sign(v) · relu(|v| − threshold)`; `threshold ≥ 0` broadcasts against `values`.

    Autograd gives the sub-gradients of Eq. 11: entries that became 0 get no gradient, kept ones pass theirs
    unchanged, and the threshold gets `−sign(v)` times it.

    >>> soft_threshold(torch.tensor([-0.5, 0.1, 0.3]), torch.tensor(0.2)).tolist()
    [-0.30000001192092896, 0.0, 0.10000000894069672]
    """
    return torch.sign(values) * torch.relu(values.abs() - threshold)


def keep_mask(values: Tensor, threshold: Tensor) -> Tensor:
    """`1{S(v) ≠ 0}` of Eq. 11: True where the entry survives."""
    return values.abs() > threshold


def count_kept(values: Tensor, threshold: Tensor) -> int:
    """`‖S(V)‖₀`: how many entries survive."""
    return int(keep_mask(values, threshold).sum())
