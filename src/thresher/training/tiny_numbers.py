"""Floats too small for full precision count as zero while a model trains.

The optimizer's moments of pruned entries decay below 1.2e-38 within a thousand steps. Processors compute with such
numbers some ten times slower, which doubles the time of a search; no weight depends on them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALLEST_NORMAL = torch.finfo(torch.float32).tiny


def tiny_numbers_are_zero() -> bool:
    """Whether this thread computes with such numbers as zeros."""
    return float(torch.tensor(SMALLEST_NORMAL) * 0.5) == 0.0


@contextmanager
def tiny_numbers_as_zero() -> Iterator[None]:
    """Inside, this thread and those it starts replace such numbers by zeros, where the processor can."""
    before = tiny_numbers_are_zero()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
