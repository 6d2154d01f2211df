"""A word to whoever forgot the thresholds, whose gradients no optimizer takes, or reads a table past its module."""

import warnings
from collections.abc import Mapping

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
        self._model, self._looked = model, False

    def look(self) -> None:
        """To be called after the optimizer's step, while gradients are still there."""
        if not self._looked:
            self._looked = True
            _warn_of_unseen(self._model)
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
