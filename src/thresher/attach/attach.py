"""attach_ puts PEP on the tables of any PyTorch model in place; detach_ restores the plain modules.

An attached model keeps its type, its Parameters and its `state_dict` names; only entries for the thresholds are added.
An existing optimizer stays valid. Add the thresholds to it: `optimizer.add_param_group(threshold_group(model))`.
"""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn

from thresher._internal.mapped_tensors import new_zeros
from thresher.attach.attached_tables import AttachedModule, attached_module
from thresher.attach.compact_tables import CompactLinear
from thresher.attach.find_tables import FoundTable, Where, find_tables
from thresher.attach.replace import can_restore, replace_, restore_
from thresher.compact.embedding import CompactEmbedding
from thresher.embeddings.pep import PepConfig
from thresher.embeddings.thresholds import GRANULARITIES
from thresher.errors import AttachError


@dataclass(frozen=True)
class AttachedTable:
    """One table that `attach_` or `detach_` changed."""

    name: str  # qualified name in the model
    num_features: int
    embedding_dim: int
    other_names: tuple[str, ...] = ()  # other modules that hold the same table: shared modules, tied layers

    @classmethod
    def of(cls, found: FoundTable) -> Self:
        name, *other_names = found.modules
        num_features, embedding_dim = found.weight.shape
        return cls(name, num_features, embedding_dim, tuple(other_names))


def attach_(
    model: nn.Module,
    config: PepConfig | None = None,
    *,
    where: Where | None = None,
    min_features: int = 0,
    min_embedding_dim: int = 2,
    trained: bool = False,
) -> list[AttachedTable]:
    """Add thresholds to the embedding tables of `model`, in place; outputs do not change until a search raises them.

    Thresholds of granularity `global` and `dimension` are shared by all attached tables of one width. A table counts as
    one field, so `field` has one threshold per table.

    Args:
        config: settings of the thresholds. Omit `embedding_dim`: each table keeps its own width.
        where: selects tables by a name pattern (`"user_*"`) or a function of module and name; by default all.
        min_embedding_dim: minimum width of a table. The default excludes first-order weights, which have width 1.
        trained: whether the model is already trained. If True, rows that the search does not look up may be kept, and
            frozen tables are accepted. If False, such rows are assumed to carry no information and are pruned first,
            and frozen tables raise an error.

    Returns:
        The attached tables. A table that several modules hold is listed once.

    Raises:
        AttachError: no table matched, or a matching table cannot be pruned; the model is unchanged.
    """
    config = PepConfig() if config is None else config
    found = find_tables(model, where, min_features, min_embedding_dim, trained=trained)
    for table in found:
        width = table.weight.shape[1]
        if config.embedding_dim not in (width, PepConfig().embedding_dim):  # it would be ignored
            raise AttachError(
                f"embedding_dim is {config.embedding_dim}, but table {table} has width {width}: omit embedding_dim"
            )
    attached_before = [module for module in model.modules() if isinstance(module, AttachedModule)]
    shared = {_sharing_key(module.raw_weight, module.config): module.thresholds for module in attached_before}
    held = {module.thresholds for module in attached_before}
    for table in found:
        thresholds = _thresholds_for(table, config, shared)
        for module in dict.fromkeys(table.modules.values()):
            attached = attached_module(module, config, thresholds, table.padding_id)
            attached.seen.fill_(trained)
            if thresholds in held:
                attached.shared_names = frozenset(("deviation" if config.pressure == "plan" else "raw_threshold",))
            held.add(thresholds)
            replace_(module, attached, keep_original=True)
    return [AttachedTable.of(table) for table in found]


@torch.no_grad()
def detach_(model: nn.Module, *, prune: bool = True) -> list[AttachedTable]:
    """Restore the plain modules of `model`, in place; outputs do not change.

    Attached tables keep their Parameters. A compact table, made by a ticket or `compact_`, becomes a dense table with
    zeros for the pruned entries. It is a new Parameter, so create optimizers afterwards; training changes the zeros.

    Args:
        prune: write the thresholded values into attached tables; False keeps the unpruned trained values.
    """
    attached, compact = _attached_and_compact(model)
    if not attached and not compact:
        raise AttachError(f"nothing to detach: {type(model).__qualname__} has no attached or compact table.")
    if compact and not prune:
        name = next(iter(next(iter(compact.values()))))
        raise AttachError(
            f"prune=False is not possible: table {name} is compact and its pruned entries are gone. Use prune=True"
        )
    if prune:
        for weight, holders in attached.items():
            weight.copy_(next(iter(holders.values())).pruned_weight())
    found = [FoundTable(weight, holders) for weight, holders in attached.items()]
    found += [_make_dense_(values, holders) for values, holders in compact.items()]
    for table in found:
        for module in dict.fromkeys(table.modules.values()):
            restore_(module)
    return [AttachedTable.of(table) for table in found]


def threshold_group(
    model: nn.Module, *, learning_rate: float = 1e-3, decay: float = 0.0, sparse: bool | None = None
) -> dict[str, Any]:
    """The thresholds of attached tables as a parameter group: `optimizer.add_param_group(threshold_group(model))`.

    The group sets `lr` and `weight_decay`, whatever the optimizer's defaults are.

    Args:
        sparse: True selects thresholds with sparse gradients, for `SparseAdam`: those of tables with `sparse=True`
            whose rows have their own thresholds. False selects the others, for `Adam`. By default all.
    """
    gradients_are_sparse: dict[nn.Parameter, bool] = {}
    for table in model.modules():
        if isinstance(table, AttachedModule) and table.thresholds.requires_grad:
            others = gradients_are_sparse.get(table.thresholds, True)  # one dense gradient makes the sum dense
            gradients_are_sparse[table.thresholds] = others and table.has_sparse_thresholds
    if not gradients_are_sparse:
        raise AttachError(f"{type(model).__qualname__} has no learnable thresholds. Call attach_ on the model first.")
    if sparse is not None and sparse not in gradients_are_sparse.values():
        wanted = "sparse" if sparse else "dense"
        raise AttachError(f"no thresholds of the model have {wanted} gradients. Pass sparse={not sparse} or omit it.")
    parameters = [one for one, is_sparse in gradients_are_sparse.items() if sparse is None or is_sparse == sparse]
    return {"name": "thresholds", "params": parameters, "lr": learning_rate, "weight_decay": decay}


def _thresholds_for(table: FoundTable, config: PepConfig, shared: dict[tuple[Any, ...], nn.Parameter]) -> nn.Parameter:
    granularity = GRANULARITIES[config.granularity]
    num_features, embedding_dim = table.weight.shape
    start = 0.0 if config.pressure == "plan" else config.raw_threshold_init
    shape = granularity.shape([num_features], embedding_dim)
    if start == 0:
        values = new_zeros(*shape, dtype=table.weight.dtype).to(table.weight.device)
    else:
        values = torch.full(shape, start, dtype=table.weight.dtype, device=table.weight.device)
    thresholds = nn.Parameter(values, requires_grad=config.learn_deviation)
    if granularity.rows == "all":
        return shared.setdefault(_sharing_key(table.weight, config), thresholds)
    return thresholds


def _sharing_key(weight: nn.Parameter, config: PepConfig) -> tuple[Any, ...]:
    """Tables with the same key share thresholds of granularity `global` and `dimension`."""
    return weight.shape[1], weight.dtype, weight.device, config.granularity, config.pressure


def _attached_and_compact(
    model: nn.Module,
) -> tuple[dict[nn.Parameter, dict[str, AttachedModule]], dict[nn.Parameter, dict[str, nn.Module]]]:
    """The attached and the compact tables of a model: Parameter → the modules that hold it, by name."""
    attached: dict[nn.Parameter, dict[str, AttachedModule]] = {}
    compact: dict[nn.Parameter, dict[str, nn.Module]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, AttachedModule):
            attached.setdefault(module.raw_weight, {})[name] = module
        elif isinstance(module, CompactLinear) and can_restore(module):
            compact.setdefault(module.table.values, {})[name] = module
        elif isinstance(module, CompactEmbedding) and can_restore(module):
            compact.setdefault(module.values, {})[name] = module
    return attached, compact


def _make_dense_(values: nn.Parameter, modules: dict[str, nn.Module]) -> FoundTable:
    """Register one dense Parameter in all modules that hold a compact table."""
    first = next(iter(modules.values()))
    table = first.table if isinstance(first, CompactLinear) else first
    assert isinstance(table, CompactEmbedding)
    weight = nn.Parameter(table.to_dense(), requires_grad=values.requires_grad)
    for module in modules.values():
        module._parameters["weight"] = weight  # registering it would find the computed weight
    return FoundTable(weight, modules)
