"""attach_: PEP on the tables of any PyTorch model, in place. The way back is `detach_`, in `detach`.

The model keeps its type, its Parameters and its `state_dict` names; a few entries for the thresholds are added. An
optimizer made before goes on working; give it the thresholds too: `optimizer.add_param_group(threshold_group(model))`.
"""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn

from thresher.attach.become import become_
from thresher.attach.find import FoundTable, Where, find_tables
from thresher.attach.tables import ForeignTable, foreign_table
from thresher.embeddings.pep import PepConfig
from thresher.embeddings.thresholds import GRANULARITIES
from thresher.errors import AttachError


@dataclass(frozen=True)
class AttachedTable:
    """One table that was touched.

    Attributes:
        name: its qualified name in the model.
        other_names: further places that hold the same table: shared modules, tied layers.
    """

    name: str
    num_features: int
    embedding_dim: int
    other_names: tuple[str, ...] = ()

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
    """Put PEP on the embedding tables of `model`, in place; its outputs do not change until a search presses.

    Thresholds of granularity `global` and `dimension` are shared by all attached tables of one width. A table counts as
    one field, so `field` has one threshold per table.

    Args:
        model: any module that holds `nn.Embedding` or `nn.EmbeddingBag`, at any depth.
        config: how thresholds are shaped and pressed. Leave `embedding_dim` out: each table has a width of its own.
        where: which tables: a name pattern (`"user_*"`) or a function of module and name; all when absent.
        min_features: only tables of at least so many rows: small ones hold little.
        min_embedding_dim: tables of width 1 (first-order weights) are left alone; 1 asks for them too.
        trained: the model has been trained already, so that rows the search does not meet may be kept too. Without it,
            rows never looked up while training are taken to carry no information, and go first, and a frozen table is
            refused.

    Returns:
        What was touched. Each table once, whatever the number of modules that hold it.

    Raises:
        AttachError: nothing matched, or a matching table cannot be pruned faithfully; nothing has been changed then.
    """
    config = PepConfig() if config is None else config
    found = find_tables(model, where, min_features, min_embedding_dim, trained=trained)
    _check_width(found, config)
    shared = _shared_thresholds(model, config)
    for table in found:
        thresholds = _thresholds_for(table, config, shared)
        for module in dict.fromkeys(table.modules.values()):
            attached = foreign_table(module, config, thresholds, table.padding_id)
            attached.seen.fill_(trained)
            become_(module, attached, remember=True)
    return [AttachedTable.of(table) for table in found]


def threshold_group(
    model: nn.Module, *, learning_rate: float = 1e-3, decay: float = 0.0, sparse: bool | None = None
) -> dict[str, Any]:
    """The thresholds of attached tables as a group for the optimizer you have: `add_param_group(threshold_group(…))`.

    The name of the learning rate is PyTorch's (`lr`); decay is off unless asked for, whatever your optimizer's default.

    Args:
        sparse: True only those whose gradients are sparse, for `SparseAdam`: they are where the tables' own are
            (`sparse=True`), unless rows share thresholds; False only the others, for `Adam`; all when absent.
    """
    gradients_are_sparse: dict[nn.Parameter, bool] = {}
    for table in model.modules():
        if isinstance(table, ForeignTable) and table.thresholds.requires_grad:
            others = gradients_are_sparse.get(table.thresholds, True)  # one dense holder makes the sum dense
            gradients_are_sparse[table.thresholds] = others and table.has_sparse_thresholds
    if sparse is not None and sparse not in gradients_are_sparse.values() and gradients_are_sparse:
        kind, other = ("sparse", "dense") if sparse else ("dense", "sparse")
        raise AttachError(f"no thresholds of {type(model).__qualname__} get {kind} gradients, all get {other} ones")
    parameters = [one for one, is_sparse in gradients_are_sparse.items() if sparse is None or is_sparse == sparse]
    if not parameters:
        raise AttachError(f"{type(model).__qualname__} has no thresholds to learn; call attach_ on it first")
    return {"name": "thresholds", "params": parameters, "lr": learning_rate, "weight_decay": decay}


def _check_width(found: list[FoundTable], config: PepConfig) -> None:
    """A width that somebody gave must not be ignored without a word."""
    others = [table for table in found if table.weight.shape[1] != config.embedding_dim]
    if others and config.embedding_dim != PepConfig().embedding_dim:
        raise AttachError(
            f"embedding_dim is {config.embedding_dim}, and table {others[0]} is {others[0].weight.shape[1]} wide; "
            "an attached table keeps its width, so leave embedding_dim out"
        )


def _shared_thresholds(model: nn.Module, config: PepConfig) -> dict[tuple[Any, ...], nn.Parameter]:
    """Thresholds that earlier calls made for all tables of a width."""
    tables = [module for module in model.modules() if isinstance(module, ForeignTable)]
    alike = [table for table in tables if (table.config.granularity, table.config.pressure) == _kind(config)]
    return {_sharing(table.weight): table.thresholds for table in alike}


def _thresholds_for(table: FoundTable, config: PepConfig, shared: dict[tuple[Any, ...], nn.Parameter]) -> nn.Parameter:
    granularity = GRANULARITIES[config.granularity]
    num_features, embedding_dim = table.weight.shape
    start = 0.0 if config.pressure == "plan" else config.raw_threshold_init
    shape = granularity.shape([num_features], embedding_dim)
    fresh = torch.full(shape, start, dtype=table.weight.dtype, device=table.weight.device)
    thresholds = nn.Parameter(fresh, requires_grad=config.learn_deviation)
    return shared.setdefault(_sharing(table.weight), thresholds) if granularity.rows == "all" else thresholds


def _kind(config: PepConfig) -> tuple[str, str]:
    return config.granularity, config.pressure


def _sharing(weight: nn.Parameter) -> tuple[Any, ...]:
    return weight.shape[1], weight.dtype, weight.device
