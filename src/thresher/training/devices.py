"""Devices: which one a run trains on, how batches get there, and in which precision it computes."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, get_args

import torch

from thresher.errors import ConfigError

if TYPE_CHECKING:
    from thresher.data.batches.batches import Batch

Precision = Literal["float32", "bf16"]
_precision: ContextVar[Precision] = ContextVar("precision", default="float32")


def check_device(name: str) -> None:
    """Raise if this is not the name of a device."""
    if name != "auto" and not re.fullmatch(r"[a-z]\w*(:\d+)?", name):
        raise ConfigError(f"device is {name!r}. It must be auto, cpu, cuda, cuda:1 (a number) or mps")


def find_device(name: str) -> torch.device:
    """The device of a run: `auto` is CUDA where there is one, else the CPU; raise if it is not on this machine."""
    check_device(name)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda" and device.index is None and torch.cuda.is_available():
            device = torch.device("cuda", torch.cuda.current_device())  # of this process, if there are several
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {name!r} cannot be used on this machine ({reason}). Use auto or cpu") from None
    return device


@contextmanager
def computing_in(precision: Precision) -> Iterator[None]:
    """Inside, Thresher's training loop computes in this precision."""
    if precision not in get_args(Precision):
        raise ConfigError(f"precision is {precision!r}. It must be one of {', '.join(get_args(Precision))}")
    token = _precision.set(precision)
    try:
        yield
    finally:
        _precision.reset(token)


def autocast(device: torch.device) -> AbstractContextManager[object]:
    """Around a forward pass: in bf16, matrix products use it; tables, loss and updates stay in float32."""
    if _precision.get() == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def batches_on(batches: "Iterator[Batch]", device: torch.device) -> "Iterator[Batch]":
    """The batches on a device; to CUDA they are copied asynchronously, one batch ahead."""
    if device.type == "cpu":
        yield from batches
    elif device.type != "cuda":
        for batch in batches:
            yield batch.to(device)
    else:
        following: Batch | None = None
        for batch in batches:
            moved = batch.pin_memory().to(device, non_blocking=True)
            if following is not None:
                yield following
            following = moved
        if following is not None:
            yield following


SMALLEST_NORMAL = torch.finfo(torch.float32).tiny


def tiny_numbers_are_zero() -> bool:
    """Whether this thread computes with numbers below `SMALLEST_NORMAL` as zeros."""
    return float(torch.tensor(SMALLEST_NORMAL) * 0.5) == 0.0


@contextmanager
def tiny_numbers_as_zero() -> Iterator[None]:
    """Inside, this thread and those it starts replace tiny numbers by zeros, where the processor can.

    The optimizer's moments of pruned entries become that small within a thousand steps. Processors compute with such
    numbers some ten times slower, which doubles the time of a search; no weight depends on them.
    """
    before = tiny_numbers_are_zero()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
