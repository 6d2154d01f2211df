"""A word to whoever forgot the thresholds, reads a table past its module, or searches one that nothing trains."""

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from thresher.attach.tables import ForeignTable


class UnlearnedWatch:
    """Looks now and then at the thresholds of attached tables until it can tell whether they are learned.

    It can tell once a gradient has come, which is not before the search presses: a threshold of 0 has none.

    Args:
        model: the model that is searched.
        initial_state: its `state_dict` before the search.
    """

    def __init__(self, model: nn.Module, initial_state: Mapping[str, Tensor]) -> None:
        self._open = {
            name: initial_state[f"{name}.{'deviation' if module.config.pressure == 'plan' else 'raw_threshold'}"]
            for name, module in model.named_modules()
            if isinstance(module, ForeignTable) and module.config.learn_deviation
        }
        self._untrained = _tables_to_train(model, initial_state)
        self._model, self._initial, self._looked = model, initial_state, False

    def look(self) -> None:
        """To be called after the optimizer's step, while gradients are still there."""
        if not self._looked:
            self._looked = True
            _warn_of_unseen(self._model)
        self._warn_of_untrained()
        unlearned = []
        for name, initial in list(self._open.items()):
            table = self._model.get_submodule(name)
            assert isinstance(table, ForeignTable)
            gradient = table.thresholds.grad
            if gradient is None or not bool((gradient.coalesce().values() if gradient.is_sparse else gradient).any()):
                continue
            del self._open[name]
            if bool((table.thresholds.detach() == initial.to(table.thresholds.device)).all()):
                unlearned.append(name)
        if unlearned:
            warnings.warn(
                f"the thresholds of {_listed(unlearned)} get gradients, but no optimizer changes them: it was made "
                "before attach_. Add them with optimizer.add_param_group(threshold_group(model)), or say "
                "PepConfig(learn_deviation=False) if that is meant",
                stacklevel=3,
            )

    def _warn_of_untrained(self) -> None:
        """Nothing pulls at the entries of a table that is not trained, so they lose to those of the others."""
        if not self._untrained or not _has_changed(self._model, self._initial):
            return  # an optimizer that warms up, or scales its losses, takes its first steps later
        left = [name for name, table in self._untrained.items() if _is_unchanged(name, table, self._initial)]
        self._untrained = {}
        if left:
            warnings.warn(
                f"{_listed(left)} did not change since the search began: frozen, looked up under torch.no_grad(), "
                "detached, or in no optimizer. Tickets will keep entries of it last. Train it, or leave it out with "
                "attach_(model, where=…)",
                stacklevel=4,
            )


def _tables_to_train(model: nn.Module, initial_state: Mapping[str, Tensor]) -> dict[str, ForeignTable]:
    """Each table once; one attached with `trained=True` may rest."""
    tables: dict[nn.Parameter, tuple[str, ForeignTable]] = {}
    for name, module in model.named_modules():
        if isinstance(module, ForeignTable) and not bool(initial_state[f"{name}.seen"].all()):
            tables.setdefault(module.weight, (name, module))
    return dict(tables.values())


def _has_changed(model: nn.Module, initial_state: Mapping[str, Tensor]) -> bool:
    parameters = {name: value for name, value in model.named_parameters() if name in initial_state}
    return any(not _equal(value, initial_state[name]) for name, value in parameters.items())


def _is_unchanged(name: str, table: ForeignTable, initial_state: Mapping[str, Tensor]) -> bool:
    return bool(table.seen.any()) and _equal(table.weight, initial_state[f"{name}.weight"])


def _equal(present: Tensor, initial: Tensor) -> bool:
    return torch.equal(present.detach(), initial.to(present))


def _warn_of_unseen(model: nn.Module) -> None:
    """Nothing is known of a row that training never looked up; of a whole table, that is hardly meant."""
    tables = {name: module for name, module in model.named_modules() if isinstance(module, ForeignTable)}
    seen = {table.weight for table in tables.values() if bool(table.seen.any())}
    unseen = [name for name, table in tables.items() if table.weight not in seen]
    if unseen:
        warnings.warn(
            f"nothing was looked up in {_listed(unseen)} so far: tickets will keep entries of it last. Train after "
            "model.train(), and call the module: reading its weight, as functional.embedding or a product with it do, "
            "goes past the thresholds",
            stacklevel=4,
        )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
