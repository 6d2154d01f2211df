"""Exponential moving average of a model's weights, which predicts better than the last weights.

    mean ← decay · mean + (1 − decay) · weights,      decay = min(average_decay, (1 + n) / (10 + n))

after step `n`, so that the mean forgets the first steps quickly.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from thresher._internal.mapped_tensors import copy_into_, copy_of
from thresher._internal.processes import current_processes
from thresher.training.checkpoint import Checkpoint

ENTRIES_PER_STEP = 1 << 22
"""Larger models are averaged every few steps only, which bounds the cost per step."""


class WeightAverage:
    """Averages a model's floating-point parameters and buffers; infinite entries of a buffer are copied."""

    def __init__(self, model: nn.Module, average_decay: float) -> None:
        self.average_decay = average_decay
        self.num_steps, self.num_pending = 0, 0
        self._tensors = {
            name: tensor
            for name, tensor in (*model.named_parameters(), *model.named_buffers())
            if tensor.is_floating_point()
        }
        self._buffers = [name for name, _ in model.named_buffers() if name in self._weights]
        self._mean = {name: copy_of(tensor) for name, tensor in self._weights.items()}
        self._steps_between = 1 + sum(tensor.numel() for tensor in self._mean.values()) // ENTRIES_PER_STEP

    @property
    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor.detach() for name, tensor in self._tensors.items()}

    def after_step(self) -> None:
        """Call this after every optimizer step."""
        self.num_steps, self.num_pending = self.num_steps + 1, self.num_pending + 1
        if self.num_pending >= self._steps_between:
            self._update()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model has the mean weights; afterwards its own, unchanged."""
        if self.num_pending:
            self._update()
        held = {name: copy_of(tensor) for name, tensor in self._weights.items()}
        _wait_for_all()  # tables may be in memory that the processes share
        copy_into_(self._weights, self._mean)
        try:
            yield
            _wait_for_all()
        finally:
            copy_into_(self._weights, held)

    def state(self) -> Checkpoint:
        return Checkpoint(dict(self._mean), {"num_steps": self.num_steps, "num_pending": self.num_pending})

    def load(self, state: Checkpoint) -> None:
        self.num_steps, self.num_pending = state.metadata["num_steps"], state.metadata["num_pending"]
        copy_into_(self._mean, state.tensors)

    def _update(self) -> None:
        decay = min(self.average_decay, (1 + self.num_steps) / (10 + self.num_steps))
        torch._foreach_lerp_(list(self._mean.values()), list(self._weights.values()), 1 - decay**self.num_pending)
        for name in self._buffers:  # infinity (the clock in a warm-up) has no mean
            mean = self._mean[name]
            mean.copy_(torch.where(mean.isfinite(), mean, self._weights[name]))
        self.num_pending = 0


def _wait_for_all() -> None:
    if (processes := current_processes()) is not None:
        processes.wait()
