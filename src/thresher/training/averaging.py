"""The running mean of a model's weights, which predicts better than the weights themselves.

With a constant learning rate the last weights are one noisy sample of where training hovers; their mean over the last
steps is its middle. After step `n`:

    mean ← decay · mean + (1 − decay) · weights,      decay = min(average_decay, (1 + n) / (10 + n))

so that early on the mean forgets its beginnings. Training itself never sees it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from thresher._internal.mapped_tensors import copy_into_, copy_of

ENTRIES_PER_STEP = 1 << 22
"""A model of more entries is taken in only every few steps, so that the mean costs a step no more than this."""


class WeightAverage:
    """Follows a model's floating-point parameters and buffers; what is infinite in a buffer is taken as it is.

    Args:
        average_decay: the most of itself the mean keeps from one step to the next; its memory is about
            `1 / (1 − average_decay)` steps.
    """

    def __init__(self, model: nn.Module, average_decay: float) -> None:
        self.average_decay = average_decay
        self.num_steps, self.num_pending = 0, 0
        self._weights = {
            name: tensor.detach()
            for name, tensor in (*model.named_parameters(), *model.named_buffers())
            if tensor.is_floating_point()
        }
        self._buffers = [name for name, _ in model.named_buffers() if name in self._weights]
        self._mean = {name: copy_of(tensor) for name, tensor in self._weights.items()}
        self._steps_between = 1 + sum(tensor.numel() for tensor in self._mean.values()) // ENTRIES_PER_STEP

    def after_step(self) -> None:
        """To be called after every optimizer step."""
        self.num_steps, self.num_pending = self.num_steps + 1, self.num_pending + 1
        if self.num_pending >= self._steps_between:
            self._take_in()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model's weights are their mean; afterwards they are as before, to the bit."""
        if self.num_pending:
            self._take_in()
        held = {name: copy_of(tensor) for name, tensor in self._weights.items()}
        copy_into_(self._weights, self._mean)
        try:
            yield
        finally:
            copy_into_(self._weights, held)

    def facts(self) -> dict[str, Any]:
        """Its state but for the mean, as plain data."""
        return {"num_steps": self.num_steps, "num_pending": self.num_pending}

    def tensors(self) -> dict[str, Tensor]:
        """The mean, by the names of the model's parameters and buffers."""
        return dict(self._mean)

    def load(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `facts()` and `tensors()` gave."""
        self.num_steps, self.num_pending = facts["num_steps"], facts["num_pending"]
        copy_into_(self._mean, tensors)

    def _take_in(self) -> None:
        decay = min(self.average_decay, (1 + self.num_steps) / (10 + self.num_steps))
        torch._foreach_lerp_(list(self._mean.values()), list(self._weights.values()), 1 - decay**self.num_pending)
        for name in self._buffers:  # infinity, as in the clock of a search that has not begun, has no mean
            mean = self._mean[name]
            mean.copy_(torch.where(mean.isfinite(), mean, self._weights[name]))
        self.num_pending = 0
