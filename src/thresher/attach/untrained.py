"""Warns when thresholds or tables are not in the optimizer, or when tables are read without calling their module."""

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from thresher._internal.text import list_first
from thresher.attach.attached_tables import AttachedModule


class UntrainedCheck:
    """Checks during a search whether the attached tables and their thresholds are trained, and warns once if not.

    Thresholds can be checked only after they get a gradient, which is 0 until the search raises them.

    Args:
        model: the model that is searched.
        initial_state: its `state_dict` before the search.
    """

    def __init__(self, model: nn.Module, initial_state: Mapping[str, Tensor]) -> None:
        self._unchecked_thresholds = {
            name: initial_state[f"{name}.{'deviation' if module.config.pressure == 'plan' else 'raw_threshold'}"]
            for name, module in model.named_modules()
            if isinstance(module, AttachedModule) and module.config.learn_deviation
        }
        self._unchecked_tables = _tables_to_train(model, initial_state)
        self._model, self._initial_state, self._checked_lookups = model, initial_state, False

    def check(self) -> None:
        """Call after the optimizer's step, before gradients are reset."""
        if not self._checked_lookups:
            self._checked_lookups = True
            _warn_if_not_looked_up(self._model)
        self._warn_if_tables_are_untrained()
        unchanged = []
        for name, initial in list(self._unchecked_thresholds.items()):
            table = self._model.get_submodule(name)
            assert isinstance(table, AttachedModule)
            gradient = table.thresholds.grad
            if gradient is None or not bool((gradient.coalesce().values() if gradient.is_sparse else gradient).any()):
                continue
            del self._unchecked_thresholds[name]
            if bool((table.thresholds.detach() == initial.to(table.thresholds.device)).all()):
                unchanged.append(name)
        if unchanged:
            warnings.warn(
                f"the thresholds of {_list_names(unchanged)} have gradients, but no optimizer updates them: it was "
                "created before attach_. Call optimizer.add_param_group(threshold_group(model)), or use "
                "PepConfig(learn_deviation=False) if thresholds should not be learned",
                stacklevel=3,
            )

    def _warn_if_tables_are_untrained(self) -> None:
        """Warn about unchanged tables: without training, their entries are pruned before those of other tables."""
        if not self._unchecked_tables or not _has_changed(self._model, self._initial_state):
            return  # the first update may come late: learning-rate warm-up, loss scaling
        tables = self._unchecked_tables.items()
        unchanged = [name for name, table in tables if _is_looked_up_but_unchanged(name, table, self._initial_state)]
        self._unchecked_tables = {}
        if unchanged:
            warnings.warn(
                f"{_list_names(unchanged)} did not change since the search began: frozen, looked up under "
                "torch.no_grad(), detached, or not in an optimizer. Its entries will be pruned first. Train it, or "
                "exclude it with attach_(model, where=…)",
                stacklevel=4,
            )


def _tables_to_train(model: nn.Module, initial_state: Mapping[str, Tensor]) -> dict[str, AttachedModule]:
    """Each attached table once, without those attached with `trained=True`, which may stay unchanged."""
    tables: dict[nn.Parameter, tuple[str, AttachedModule]] = {}
    for name, module in model.named_modules():
        if isinstance(module, AttachedModule) and not bool(initial_state[f"{name}.seen"].all()):
            tables.setdefault(module.weight, (name, module))
    return dict(tables.values())


def _has_changed(model: nn.Module, initial_state: Mapping[str, Tensor]) -> bool:
    parameters = {name: value for name, value in model.named_parameters() if name in initial_state}
    return any(not _equal(value, initial_state[name]) for name, value in parameters.items())


def _is_looked_up_but_unchanged(name: str, table: AttachedModule, initial_state: Mapping[str, Tensor]) -> bool:
    return bool(table.seen.any()) and _equal(table.weight, initial_state[f"{name}.weight"])


def _equal(value: Tensor, initial: Tensor) -> bool:
    return torch.equal(value.detach(), initial.to(value))


def _warn_if_not_looked_up(model: nn.Module) -> None:
    tables = {name: module for name, module in model.named_modules() if isinstance(module, AttachedModule)}
    seen = {table.weight for table in tables.values() if bool(table.seen.any())}
    unseen = [name for name, table in tables.items() if table.weight not in seen]
    if unseen:
        warnings.warn(
            f"no row of {_list_names(unseen)} was looked up in training so far: its entries will be pruned first. Call "
            "model.train() before training, and call the module: code that reads its weight, such as "
            "functional.embedding or a matrix product, bypasses the thresholds",
            stacklevel=4,
        )


def _list_names(names: list[str]) -> str:
    return list_first(names, 3)
