"""A stand-in for a GPU, in Python: device "standin". It computes on hidden CPU tensors, so results are the CPU's.

As on CUDA, mixing devices raises and `.numpy()` raises. `COPIES` counts copies to and from it, `WAITS` the operations
for which a GPU's queue must be emptied: reading numbers, and shapes that depend on values. Sparse tensors are missing.
"""

import functools
from collections import Counter

import torch
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

COPIES, WAITS = Counter(), Counter()
WAITING = {"nonzero", "unique", "_unique2", "unique_consecutive", "masked_select", "item", "equal", "bincount"}
MIXING = {"index", "index_put_", "_index_put_impl_", "copy_", "_copy_from", "_to_copy"}
VIEWS = [
    *("alias", "detach", "expand", "permute", "select.int", "slice.Tensor", "squeeze", "squeeze.dim", "squeeze.dims"),
    *("t", "transpose.int", "unsqueeze", "as_strided", "diagonal", "split.Tensor", "split_with_sizes", "unbind.int"),
    *("_reshape_alias", "view", "_unsafe_view", "lift_fresh", "lift", "view.dtype", "unfold"),
]
LEFT_TO_TORCH = {
    *("_to_copy", "copy_", "set_", "resize_", "item", "is_same_size", "_has_compatible_shallow_copy_type", "data"),
    *("is_leaf", "_version", "requires_grad_", "retain_grad", "_fw_primal", "_make_dual", "record_stream"),
    *("is_pinned", "_pin_memory"),
}
_hidden = {}  # storage → the CPU tensor behind it
_libraries = []  # a library that is collected takes its operators along


class StandInTensor(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw):
        tensor = torch._C._acc.create_empty_tensor(raw.shape, raw.dtype)
        tensor.__class__ = StandInTensor
        return tensor

    def __init__(self, raw):
        self.raw = raw
        _hidden[self.untyped_storage()._cdata] = raw


def install():
    """Register the device, once per process."""
    if _libraries:
        return
    _setup_privateuseone_for_python_backend("standin")
    fallback = torch.library.Library("_", "IMPL")
    fallback.fallback(_run, "PrivateUse1")
    aten = torch.library.Library("aten", "IMPL")
    _libraries.extend((fallback, aten))
    own = {
        "empty.memory_format": _empty,
        "empty_strided": _empty_strided,
        "_copy_from": _copy_from,
        "_local_scalar_dense": _read_number,
    }
    for name, function in own.items():
        aten.impl(name, function, "PrivateUse1")
    for name in VIEWS:
        aten.impl(name, functools.partial(_run, _operator(name)), "PrivateUse1")
    for full in torch._C._dispatch_get_all_op_names():
        name = full.removeprefix("aten::")
        base, _, overload = name.partition(".")
        in_place = base.endswith("_") and not base.endswith("__")
        if full == name or name in own or name in VIEWS or base in LEFT_TO_TORCH or "out" in overload or in_place:
            continue
        keys = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
        has_kernel = any(torch._C._dispatch_has_kernel_for_dispatch_key(full, key) for key in keys)
        if has_kernel and hasattr(getattr(torch.ops.aten, base, None), overload or "default"):
            aten.impl(name, functools.partial(_run, _operator(name)), "PrivateUse1")


def _operator(name):
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def _is_stand_in(value):
    return isinstance(value, torch.Tensor) and value.device.type == "standin"


def _raw(value):
    if isinstance(value, torch.device) and value.type == "standin":
        return torch.device("cpu")
    if not _is_stand_in(value):
        return value
    raw = getattr(value, "raw", None)
    return _hidden[value.untyped_storage()._cdata] if raw is None else raw


def _run(operator, *args, **kwargs):
    flat, structure = pytree.tree_flatten((args, kwargs))
    name = operator._schema.name.removeprefix("aten::")
    on_cpu = [value for value in flat if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim()]
    if on_cpu and name not in MIXING and any(map(_is_stand_in, flat)):
        raise RuntimeError(f"Expected all tensors to be on the same device, but found standin:0 and cpu ({operator})")
    if name in WAITING or (name == "index" and _has_mask(args)):
        WAITS[name] += 1
    raw_args, raw_kwargs = pytree.tree_unflatten([_raw(value) for value in flat], structure)
    target = kwargs.get("device")
    to_cpu = target is not None and torch.device(target).type == "cpu"
    if raw_kwargs.get("device") is not None:
        raw_kwargs["device"] = torch.device("cpu")
    try:
        result = operator(*raw_args, **raw_kwargs)
    except RuntimeError as error:
        if "view size is not compatible" not in str(error):
            raise
        result = raw_args[0].reshape(raw_args[1])
    arguments = operator._schema.arguments
    written = [i for i, one in enumerate(arguments) if one.alias_info is not None and one.alias_info.is_write]
    if written and len(operator._schema.returns) == 1 and isinstance(result, torch.Tensor):
        place = written[0]
        changed = args[place] if place < len(args) else kwargs.get(arguments[place].name)
        if changed is not None:
            return changed
    if to_cpu:
        return result
    return pytree.tree_map(lambda value: StandInTensor(value) if isinstance(value, torch.Tensor) else value, result)


def _has_mask(args):
    return any(isinstance(one, torch.Tensor) and one.dtype == torch.bool for one in args[1])


def _empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    return StandInTensor(torch.empty(size, dtype=dtype or torch.get_default_dtype()))


def _empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    return StandInTensor(torch.empty_strided(size, stride, dtype=dtype or torch.get_default_dtype()))


def _copy_from(source, target, non_blocking=False):
    if source.device != target.device:
        COPIES["to the device" if _is_stand_in(target) else "from the device"] += 1
        if not _is_stand_in(target):
            WAITS["copy"] += 1
    _raw(target).copy_(_raw(source))
    return target


def _read_number(value):
    WAITS["item"] += 1
    return _raw(value).item()
