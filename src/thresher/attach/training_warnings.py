"""Warns during a search when thresholds or tables are not trained as the search needs it."""

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from thresher._internal.text import list_first
from thresher.attach.attached_tables import AttachedModule
from thresher.errors import warn_user


class UntrainedCheck:
    """Checks during a search whether the attached tables and their thresholds are trained, and warns once if not.

    `initial_state` is the model's `state_dict` before the search. Thresholds can be checked only after they get a
    gradient, which is 0 until the search raises them.
    """

    def __init__(self, model: nn.Module, initial_state: Mapping[str, Tensor]) -> None:
        self._model, self._initial_state, self._checked_lookups = model, initial_state, False
        self._attached = {name: module for name, module in model.named_modules() if isinstance(module, AttachedModule)}
        self._unchecked_thresholds = [  # shared ones are in the state once
            name
            for name, table in self._attached.items()
            if table.config.learn_deviation and initial_state.keys() & _threshold_names(name)
        ]
        names: dict[nn.Parameter, str] = {}  # several modules may hold one table
        for name, table in self._attached.items():
            if not bool(initial_state[f"{name}.seen"].all()):  # tables attached with trained=True may stay unchanged
                names.setdefault(table.raw_weight, name)
        self._unchecked_tables = list(names.values())

    def check(self) -> None:
        """Call after the optimizer's step, before gradients are reset."""
        if not self._checked_lookups:
            self._checked_lookups = True
            seen = {table.raw_weight for table in self._attached.values() if bool(table.seen.any())}
            _warn(
                "no row of {} was looked up in training so far: its entries will be pruned first. Call model.train() "
                "before training, or exclude a table that is not trained with attach_(model, where=…)",
                [name for name, table in self._attached.items() if table.raw_weight not in seen],
            )
        # the first update may come late: learning-rate warm-up, loss scaling
        if self._unchecked_tables and not all(map(self._is_unchanged, dict(self._model.named_parameters()))):
            looked_up = [name for name in self._unchecked_tables if bool(self._attached[name].seen.any())]
            self._unchecked_tables = []
            _warn(
                "{} did not change since the search began: frozen, looked up under torch.no_grad(), detached, or not "
                "in an optimizer. Its entries will be pruned first. Train it, or exclude it with "
                "attach_(model, where=…)",
                [name for name in looked_up if self._is_unchanged(f"{name}.weight")],
            )
        pulled = [name for name in self._unchecked_thresholds if _has_gradient(self._attached[name].thresholds)]
        self._unchecked_thresholds = [name for name in self._unchecked_thresholds if name not in pulled]
        _warn(
            "the thresholds of {} have gradients, but no optimizer updates them: it was created before attach_. Call "
            "optimizer.add_param_group(threshold_group(model)), or use PepConfig(learn_deviation=False) if thresholds "
            "should not be learned",
            [name for name in pulled if all(map(self._is_unchanged, _threshold_names(name)))],
        )

    def _is_unchanged(self, name: str) -> bool:
        initial = self._initial_state.get(name)  # None for another name and for parameters added since
        return initial is None or torch.equal(value := self._model.get_parameter(name), initial.to(value))


def _threshold_names(table: str) -> set[str]:
    return {f"{table}.deviation", f"{table}.raw_threshold"}


def _has_gradient(parameter: nn.Parameter) -> bool:
    gradient = parameter.grad
    return gradient is not None and bool((gradient.coalesce().values() if gradient.is_sparse else gradient).any())


def _warn(message: str, names: Sequence[str]) -> None:
    if names:
        warn_user(message.format(list_first(names, 3)))


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
