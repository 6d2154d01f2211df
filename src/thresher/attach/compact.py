"""Compact tables in the place of searched ones: what a ticket puts into a model, and what serving keeps of it.

`put_compact_` is the one way a table of a model, ours or foreign, becomes a `CompactEmbedding`; it minds how the table
is called (bags), who else holds it (shared modules) and what is tied to it (linear layers).
"""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from thresher.attach.become import become_
from thresher.attach.tables import AttachedBag, AttachedLinear, pool_bags
from thresher.compact.embedding import CompactEmbedding
from thresher.embeddings.pep import PepEmbedding
from thresher.errors import AttachError
from thresher.kernels.distinct import find_distinct


class CompactBag(CompactEmbedding):
    """Bags of ids → pooled vectors `[B, D]`, called as the `nn.EmbeddingBag` it stands for."""

    def __init__(self, bag: nn.EmbeddingBag, positions: Tensor, values: Tensor) -> None:
        super().__init__([bag.num_embeddings], bag.embedding_dim, positions, values)
        self.mode, self.padding_idx = bag.mode, bag.padding_idx
        self.include_last_offset, self.scale_grad_by_freq = bag.include_last_offset, bag.scale_grad_by_freq

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        found = find_distinct(input, self.num_features)
        return pool_bags(self, super().forward(found.ids), found, offsets, per_sample_weights)  # [B, D]


class CompactLinear(nn.Module):
    """A linear layer tied to a compact table. It multiplies with all rows, so each call builds them."""

    def __init__(self, table: CompactEmbedding, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.table, self.bias = table, bias

    def forward(self, input: Tensor) -> Tensor:
        cells = self.table.values.new_zeros(self.table.num_features * self.table.embedding_dim)
        rows = cells.scatter(0, self.table.positions(), self.table.values).view(-1, self.table.embedding_dim)  # [N, D]
        return functional.linear(input, rows, self.bias)


@dataclass(frozen=True, kw_only=True)
class CompactedTable:
    """One compact table of a model: its name, the size it had, and what is left."""

    name: str
    num_features: int
    embedding_dim: int
    num_parameters: int
    storage_bytes: int


def put_compact_(model: nn.Module, name: str, positions: Tensor, values: Tensor) -> CompactEmbedding:
    """Replace the PEP table called `name`, wherever `model` holds it, by a trainable compact one.

    Args:
        positions: which entries stay, as flat positions `row · D + column` `[K]`, ascending.
        values: what they hold, `[K]`.
    """
    named = model.get_submodule(name)
    if not isinstance(named, PepEmbedding):
        raise AttachError(f"{name} is a {type(named).__qualname__}, not a table under PEP; call attach_ on the model")
    holders = [module for module in model.modules() if _holds(module, named.weight)]
    lookups = [module for module in holders if not isinstance(module, AttachedLinear)]
    compact: CompactEmbedding | None = None
    for holder in lookups:
        replacement = _compact(holder, positions, values)
        if compact is not None:
            replacement.values = compact.values  # two modules, one table
        become_(holder, replacement)
        compact = holder if compact is None else compact  # type: ignore[assignment]  # it is what it became
    assert compact is not None
    for holder in holders:
        if isinstance(holder, AttachedLinear):
            become_(holder, CompactLinear(compact, holder.bias))
    return compact


def compact_(model: nn.Module) -> list[CompactedTable]:
    """Leave in `model`, in place, only what its pruned tables need for serving: compact and frozen.

    A table still under PEP keeps the entries its threshold keeps now; tables a ticket made compact stay what they are.
    Outputs do not change.
    """
    for name, module in list(model.named_modules()):
        if isinstance(module, PepEmbedding) and not isinstance(module, AttachedLinear):
            pruned = module.pruned_weight().detach().reshape(-1)  # [N·D]
            positions = pruned.nonzero().squeeze(1)
            put_compact_(model, name, positions, pruned[positions])
    tables: dict[nn.Parameter, tuple[str, CompactEmbedding]] = {}  # two modules may hold one table
    for name, module in model.named_modules():
        if isinstance(module, CompactEmbedding):
            tables.setdefault(module.values, (name, module))
    if not tables:
        raise AttachError(f"{type(model).__qualname__} has no table under PEP; attach_ and search it first")
    for values in tables:
        values.requires_grad_(False)
    return [
        CompactedTable(
            name=name,
            num_features=table.num_features,
            embedding_dim=table.embedding_dim,
            num_parameters=table.num_parameters(),
            storage_bytes=table.storage_bytes(),
        )
        for name, table in tables.values()
    ]


def _holds(module: nn.Module, weight: nn.Parameter) -> bool:
    return isinstance(module, PepEmbedding) and module.weight is weight


def _compact(table: nn.Module, positions: Tensor, values: Tensor) -> CompactEmbedding:
    if isinstance(table, AttachedBag):
        return CompactBag(table, positions, values)
    assert isinstance(table, PepEmbedding)
    return CompactEmbedding(table.field_sizes, table.embedding_dim, positions, values)
