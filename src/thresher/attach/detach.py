"""detach_: plain modules again in the place of attached and compact tables, for all that knows only PyTorch's own."""

import torch
from torch import nn

from thresher.attach.attach import AttachedTable
from thresher.attach.become import become_again_, remembers
from thresher.attach.compact import CompactLinear
from thresher.attach.find import FoundTable
from thresher.attach.tables import ForeignTable
from thresher.compact.embedding import CompactEmbedding
from thresher.errors import AttachError


def detach_(model: nn.Module, *, prune: bool = True) -> list[AttachedTable]:
    """Give `model` its plain modules back, in place; outputs stay as they are.

    Attached tables keep their Parameters. A compact one, which a ticket or `compact_` made, becomes a dense table with
    zeros where it was pruned: a new Parameter, so make optimizers afterwards; training it fills the zeros again.

    Args:
        model: a model that was attached, or that a ticket was applied to.
        prune: write the thresholded values into attached tables; False leaves them as trained, unpruned.

    Returns:
        What was touched.

    Raises:
        AttachError: there is nothing to detach, or `prune=False` asks for entries that a compact table does not have.
    """
    attached, compact = _holders(model)
    if not attached and not compact:
        raise AttachError(f"{type(model).__qualname__} has no attached or compact table; there is nothing to detach")
    if compact and not prune:
        name = next(iter(next(iter(compact.values()))))
        raise AttachError(f"{name} is compact: the entries pruned from it are gone; leave prune=False out")
    found = [FoundTable(weight, modules) for weight, modules in attached.items()]
    if prune:
        for table in found:
            _write_pruned_(table)
    found += [_dense_again(values, modules) for values, modules in compact.items()]
    for table in found:
        for module in dict.fromkeys(table.modules.values()):
            become_again_(module)
    return [AttachedTable.of(table) for table in found]


Holders = dict[nn.Parameter, dict[str, nn.Module]]


def _holders(model: nn.Module) -> tuple[Holders, Holders]:
    """The model's attached tables and its compact ones: what they learn → every module that holds it, by name."""
    attached: Holders = {}
    compact: Holders = {}
    inner = set()
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, ForeignTable):
            attached.setdefault(module.weight, {})[name] = module
        elif isinstance(module, CompactLinear) and remembers(module):
            compact.setdefault(module.table.values, {})[name] = module
            inner.add(f"{name}.table")  # the same table, under a name that goes with the layer
        elif isinstance(module, CompactEmbedding) and remembers(module) and name not in inner:
            compact.setdefault(module.values, {})[name] = module
    return attached, compact


@torch.no_grad()
def _write_pruned_(table: FoundTable) -> None:
    module = next(iter(table.modules.values()))
    assert isinstance(module, ForeignTable)
    module.weight.copy_(module.pruned_weight())


def _dense_again(values: nn.Parameter, modules: dict[str, nn.Module]) -> FoundTable:
    """One dense Parameter, put where all holders of a compact table will find it."""
    first = next(iter(modules.values()))
    table = first.table if isinstance(first, CompactLinear) else first
    assert isinstance(table, CompactEmbedding)
    weight = nn.Parameter(table.to_dense().detach(), requires_grad=values.requires_grad)
    for module in modules.values():
        module.register_parameter("weight", weight)
    return FoundTable(weight, modules)
