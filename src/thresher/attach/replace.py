"""replace_ turns a module into another one in place, and restore_ undoes it.

The object stays the same, so parent modules, lists, closures and hooks that refer to it see the change.
"""

from collections.abc import Collection
from typing import Any

from torch import nn


def replace_(module: nn.Module, replacement: nn.Module, *, keep_original: bool, drop: Collection[str] = ()) -> None:
    """Give `module` the class and state of `replacement`; its hooks, its mode and its public attributes stay.

    Args:
        keep_original: store the original class and state, so that `restore_` can bring them back.
        drop: names of Parameters of the original that are not stored; set them before calling `restore_`.
    """
    original_class, state = vars(module).get("_original", (type(module), dict(vars(module))))
    is_plain = issubclass(original_class, nn.Embedding | nn.EmbeddingBag | nn.Linear)
    public = {key: value for key, value in state.items() if is_plain and not key.startswith("_")}
    _set_class_and_state(module, type(replacement), {**public, **vars(replacement)})
    if keep_original:
        parameters = {name: None if name in drop else value for name, value in state["_parameters"].items()}
        vars(module)["_original"] = (original_class, {**state, "_parameters": parameters})


def can_restore(module: nn.Module) -> bool:
    return "_original" in vars(module)


def restore_(module: nn.Module) -> None:
    """Undo `replace_`; the module's current Parameters of the same names are kept."""
    original_class, state = vars(module)["_original"]
    parameters = {name: module._parameters.get(name, value) for name, value in state["_parameters"].items()}
    _set_class_and_state(module, original_class, {**state, "_parameters": parameters})


def _set_class_and_state(module: nn.Module, new_class: type[nn.Module], state: dict[str, Any]) -> None:
    hooks_and_mode = {key: value for key, value in vars(module).items() if "hook" in key or key == "training"}
    module.__class__ = new_class
    module.__dict__ = {**state, **hooks_and_mode}
