"""Replaces tables of a model by compact ones, in place: for a ticket (`put_compact_`) or for serving (`compact_`).

Bags, modules that share a table and linear layers tied to a table are replaced too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn
from torch.nn import functional

from thresher.attach.bags import ids_to_look_up, pool_bags
from thresher.attach.replace import replace_
from thresher.compact.embedding import CompactEmbedding
from thresher.embeddings.base import FieldEmbedding
from thresher.embeddings.pep import PepEmbedding
from thresher.errors import AttachError


class CompactBag(CompactEmbedding):
    """A compact `nn.EmbeddingBag`: bags of ids → pooled vectors `[B, D]`."""

    def __init__(
        self, bag: nn.EmbeddingBag, positions: Tensor, values: Tensor, placeholder: Tensor | None = None
    ) -> None:
        super().__init__([bag.num_embeddings], bag.embedding_dim, positions, values, placeholder)
        self.mode, self.padding_idx = bag.mode, bag.padding_idx
        self.include_last_offset, self.scale_grad_by_freq = bag.include_last_offset, bag.scale_grad_by_freq

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        found = ids_to_look_up(input, self.num_features, by_frequency=self.scale_grad_by_freq)
        return pool_bags(self, self.vectors_of(found.ids), found, offsets, per_sample_weights)  # [B, D]


class CompactLinear(nn.Module):
    """A linear layer tied to a compact table. Each call builds the dense table, since it multiplies with all rows."""

    def __init__(self, table: CompactEmbedding, bias: nn.Parameter | None) -> None:
        super().__init__()
        self._table = (table,)  # in a tuple: the table is a submodule elsewhere in the model
        self.bias = bias

    @property
    def table(self) -> CompactEmbedding:
        return self._table[0]

    @property
    def weight(self) -> Tensor:
        return self.table.weight

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input, self.table.to_dense(), self.bias)


@dataclass(frozen=True, kw_only=True)
class CompactedTable:
    """One compact table of a model and its sizes."""

    name: str
    num_features: int
    embedding_dim: int
    num_parameters: int
    memory_bytes: int  # the values and an index that is fast to read
    storage_bytes: int  # what `to_compact(module).save(…)` writes, with the smallest index; byte budgets count it


def put_compact_(
    model: nn.Module, name: str, positions: Tensor, values: Tensor, placeholder: Tensor | None = None
) -> CompactEmbedding:
    """Replace the table `name`, in every module of `model` that holds it, by a trainable compact one.

    The table may be attached, a Thresher embedding or plain. A frozen table stays frozen.

    Args:
        positions: kept entries as flat positions `row · D + column` `[K]`, ascending.
        values: their values, `[K]`.
        placeholder: what pruned entries read as, `[F, D]`; the values are then differences from it.
    """
    weight = model.get_submodule(name).get_parameter("weight")
    positions, values = positions.to(weight.device), values.to(weight.device)
    holders = [module for module in model.modules() if module._parameters.get("weight") is weight]
    tied = [module for module in holders if isinstance(module, nn.Linear)]
    lookups = [module for module in holders if module not in tied]
    tables = FieldEmbedding | nn.Embedding | nn.EmbeddingBag
    if not lookups or not all(isinstance(module, tables) for module in lookups):
        raise AttachError(f"{name} is not an embedding table, or shares its weight with a module that is not one")
    compact = [_make_compact(module, positions, values, placeholder) for module in lookups]
    compact[0].values.requires_grad_(weight.requires_grad)
    for module, replacement in zip(lookups, compact, strict=True):
        if replacement is not compact[0]:
            replacement.share_(compact[0])  # several modules, one table
        _replace_by_compact_(module, replacement)
    table = cast(CompactEmbedding, lookups[0])
    for layer in tied:
        _replace_by_compact_(layer, CompactLinear(table, layer._parameters["bias"]))
    return table


def compact_(model: nn.Module) -> list[CompactedTable]:
    """Make the pruned tables of `model` compact and frozen for serving, in place; outputs do not change.

    An attached table keeps the entries that its current thresholds keep. Tables that are already compact are frozen.
    """
    for name, module in list(model.named_modules()):
        if isinstance(module, PepEmbedding) and not isinstance(module, nn.Linear):
            pruned = module.pruned_weight().detach().reshape(-1)  # [N·D]
            positions = pruned.nonzero().squeeze(1)
            put_compact_(model, name, positions, pruned[positions])
    tables: dict[nn.Parameter, dict[str, CompactEmbedding]] = {}  # two modules may hold one table
    for name, module in model.named_modules():
        if isinstance(module, CompactEmbedding):
            tables.setdefault(module.values, {})[name] = module
    if not tables:
        raise AttachError(f"{type(model).__qualname__} has no attached or compact table. Attach and search first.")
    for values in tables:
        values.requires_grad_(False)
    return [_describe(holders) for holders in tables.values()]


def _describe(holders: Mapping[str, CompactEmbedding]) -> CompactedTable:
    name, table = next(iter(holders.items()))
    tensors = {tensor for holder in holders.values() for tensor in (*holder.parameters(), *holder.buffers())}
    return CompactedTable(
        name=name,
        num_features=table.num_features,
        embedding_dim=table.embedding_dim,
        num_parameters=table.num_parameters(),
        memory_bytes=sum(tensor.nbytes for tensor in tensors),
        storage_bytes=table.storage_bytes(),
    )


def _replace_by_compact_(module: nn.Module, replacement: nn.Module) -> None:
    """Replace a module; PyTorch's modules keep their original state for `detach_`, except the dense table."""
    is_torch_module = isinstance(module, nn.Embedding | nn.EmbeddingBag | nn.Linear)
    replace_(module, replacement, keep_original=is_torch_module, drop=["weight"])


def _make_compact(table: nn.Module, positions: Tensor, values: Tensor, placeholder: Tensor | None) -> CompactEmbedding:
    if isinstance(table, nn.EmbeddingBag):
        return CompactBag(table, positions, values, placeholder)
    num_features, embedding_dim = table.get_parameter("weight").shape
    field_sizes = table.field_sizes if isinstance(table, FieldEmbedding) else [num_features]
    compact = CompactEmbedding(field_sizes, embedding_dim, positions, values, placeholder)
    compact.scale_grad_by_freq = isinstance(table, nn.Embedding) and table.scale_grad_by_freq
    return compact
