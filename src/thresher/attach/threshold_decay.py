"""Warns when an optimizer applies weight decay to thresholds that a plan raises."""

import weakref
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from thresher._internal.text import list_first
from thresher.attach.attached_tables import AttachedModule
from thresher.errors import warn_user


class ThresholdDecayCheck:
    """Looks at the optimizers that update the thresholds of a model, at their first step after construction.

    A search does not know the optimizer of its loop, so a hook sees every optimizer until all thresholds were updated.
    """

    def __init__(self, model: nn.Module) -> None:
        self._unchecked: dict[nn.Parameter, str] = {}
        for name, table in model.named_modules():
            if isinstance(table, AttachedModule) and table.config.pressure == "plan" and table.config.learn_deviation:
                self._unchecked.setdefault(table.thresholds, name)
        self._decayed: dict[str, float] = {}
        seen = weakref.WeakMethod(self._see)  # the hook must not keep the model alive

        def see(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            if (method := seen()) is not None:
                method(optimizer)

        self._hook = register_optimizer_step_post_hook(see)

    def _see(self, optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            names = [self._unchecked.pop(parameter, None) for parameter in group["params"]]
            if decay := group.get("weight_decay"):
                self._decayed |= {name: decay for name in names if name is not None}

    def warn(self) -> None:
        """Call this from the training loop, after a step of the optimizer."""
        if not self._unchecked:
            self._hook.remove()  # not while PyTorch iterates over its hooks
        if self._decayed:
            decay = next(iter(self._decayed.values()))
            warn_user(
                f"the optimizer applies a weight decay of {decay:g} to the thresholds of "
                f"{list_first(self._decayed, 3)}: it pulls them to 0, where only the loss should change them. Put "
                "them into a parameter group of their own, threshold_group(model), which sets no decay"
            )
            self._decayed = {}
