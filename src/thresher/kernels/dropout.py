"""Dropout drawn in lots: random numbers of 16 bits, four from each draw of 64.

Torch draws a number of its own for every entry, which on a CPU takes a small perceptron nearly as long as its products.
The generator is torch's, so a seed repeats what is dropped. Rates are multiples of 1/65536.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from thresher.kernels.parallel import runs_on_kernels

_DRAWS = 1 << 16


@dataclass(frozen=True)
class DropoutRule:
    """What is dropped at a rate, and what it leaves: entries whose draw is below `limit`; others grow by `scale`."""

    limit: int
    scale: float

    @classmethod
    def of(cls, rate: float) -> "DropoutRule":
        num_dropped = min(round(rate * _DRAWS), _DRAWS - 1)
        return cls(num_dropped - _DRAWS // 2, _DRAWS / (_DRAWS - num_dropped))


def draw(shape: Sequence[int]) -> Tensor:
    """Random int16, all values equally likely."""
    count = math.prod(shape)
    draws = torch.empty(-(-count // 4), dtype=torch.int64, device="cpu").random_(-(1 << 63), None)
    return draws.view(torch.int16)[:count].view(*shape)


def drop_out(values: Tensor, rate: float) -> Tensor:
    """Each entry is 0 with probability `rate`, else `1 / (1 − rate)` of itself, so that the mean stays."""
    if rate in (0.0, 1.0) or not runs_on_kernels(values):
        return functional.dropout(values, rate)
    rule = DropoutRule.of(rate)
    return values * (draw(values.shape) >= rule.limit).float().mul_(rule.scale)
