"""ComputedWeight: the weight of a pruned table, computed when it is read, so writing to it is an error."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from thresher._internal.mapped_tensors import is_traced
from thresher.errors import AttachError

_WRITES = {"__setitem__", "__set__", "__iadd__", "__isub__", "__imul__", "__itruediv__"}


class ComputedWeight(Tensor):
    """Values `[N, D]` of a table that are not its memory: a write into them would be lost, so it raises.

    Operations return plain tensors. Only what shares its memory, such as `weight.data` or `weight[0]`, is of this class
    too.
    """

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = {} if kwargs is None else kwargs
        if _writes(function) and any(isinstance(target, cls) for target in (*args[:1], kwargs.get("tensor"))):
            raise AttachError(
                f"the weight of a pruned table cannot be changed ({function.__name__}): it is computed when it is "
                "read. Change the parameter itself: `weight` in named_parameters() of an attached model, `values` of a "
                "compact table."
            )
        with torch._C.DisableTorchFunctionSubclass():
            plain = [value.as_subclass(Tensor) if isinstance(value, cls) else value for value in args]
            result = function(*plain, **kwargs)
            shares_memory = isinstance(args[0], cls) if args else False
            return result.as_subclass(cls) if shares_memory and _same_memory(result, plain[0]) else result


def computed_weight(values: Tensor) -> Tensor:
    """Protect `values` from writes; while a graph is traced or transformed they stay plain."""
    return values if is_traced() else values.as_subclass(ComputedWeight)


def _writes(function: Callable[..., Any]) -> bool:
    """Whether a function writes into its first argument: `normal_`, `weight[0] = …`, `weight.data = …`, `+=`."""
    name = function.__name__
    return name in _WRITES or (name.endswith("_") and not name.endswith("__") and name != "requires_grad_")


def _same_memory(result: Any, values: Tensor) -> bool:
    if not isinstance(result, Tensor) or result.layout != torch.strided:
        return False
    return result.untyped_storage().data_ptr() == values.untyped_storage().data_ptr()
