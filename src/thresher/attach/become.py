"""One module takes another's place by becoming it: the object stays, its class and content change.

So whoever holds the module sees the change: parents, plain Python lists, closures, hooks. Nothing is left behind that
still looks up the old way.
"""

from collections.abc import Collection
from typing import Any

from torch import nn


def become_(module: nn.Module, replacement: nn.Module, *, remember: bool, forget: Collection[str] = ()) -> None:
    """Turn `module` into `replacement`; its hooks, its mode and the plain module's public attributes stay.

    Args:
        remember: keep what it was, Parameters and all, for `become_again_`.
        forget: names of Parameters that are not kept all the same: whoever calls `become_again_` sets them before.
    """
    kind, content = vars(module).get("_before", (type(module), dict(vars(module))))
    plain = issubclass(kind, nn.Embedding | nn.EmbeddingBag | nn.Linear)
    public = {key: value for key, value in content.items() if plain and not key.startswith("_")}
    _change(module, type(replacement), {**public, **vars(replacement)})
    if remember:
        parameters = {name: None if name in forget else value for name, value in content["_parameters"].items()}
        vars(module)["_before"] = (kind, {**content, "_parameters": parameters})


def remembers(module: nn.Module) -> bool:
    """Whether `become_again_` can turn it back."""
    return "_before" in vars(module)


def become_again_(module: nn.Module) -> None:
    """Turn `module` back into what it was; Parameters it has now under the same names are kept."""
    kind, content = vars(module)["_before"]
    parameters = {name: module._parameters.get(name, value) for name, value in content["_parameters"].items()}
    _change(module, kind, {**content, "_parameters": parameters})


def _change(module: nn.Module, kind: type[nn.Module], content: dict[str, Any]) -> None:
    own = {key: value for key, value in vars(module).items() if "hook" in key or key == "training"}
    module.__class__ = kind
    module.__dict__ = {**content, **own}
