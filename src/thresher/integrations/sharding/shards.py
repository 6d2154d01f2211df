"""The shards of a DistributedModelParallel model's tables that are in this process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torchrec.distributed.embedding import ShardedEmbeddingCollection
from torchrec.distributed.embeddingbag import ShardedEmbeddingBagCollection
from torchrec.distributed.model_parallel import get_unwrapped_module

from thresher._internal.mapped_tensors import CHUNK_ENTRIES, copy_of
from thresher.embeddings.thresholds import soft_threshold
from thresher.errors import AttachError

KERNELS = ("fused", "dense")
"""Compute kernels whose weights are in the memory of the shard. Others keep rows in a cache."""
_TABLES_OF = {ShardedEmbeddingBagCollection: "embedding_bags", ShardedEmbeddingCollection: "embeddings"}
SHARDED_COLLECTIONS = tuple(_TABLES_OF)


@dataclass(eq=False)
class Shard:
    """A part of a table in this process.

    Attributes:
        weight: its memory `[rows, columns]`; a write changes the model.
        first_row: its place in the table; `first_column` likewise.
        counted: whether this process counts it; of a table that every process holds, only the first one does.
        initial: its values before the search.
        seen: rows `[rows]` that were looked up in training.
        kept: its mask since it was last pruned; None before.
    """

    table: str
    weight: Tensor
    first_row: int = 0
    first_column: int = 0
    counted: bool = True
    initial: Tensor = field(init=False)
    seen: Tensor = field(init=False)
    kept: Tensor | None = None

    def __post_init__(self) -> None:
        self.initial = copy_of(self.weight)
        self.seen = torch.zeros(len(self.weight), dtype=torch.bool, device=self.weight.device)

    @property
    def shape(self) -> tuple[int, int]:
        return self.weight.shape[0], self.weight.shape[1]

    @property
    def padding_id(self) -> None:
        return None

    @property
    def rows(self) -> slice:
        return slice(self.first_row, self.first_row + self.shape[0])

    @property
    def columns(self) -> slice:
        return slice(self.first_column, self.first_column + self.shape[1])

    @torch.no_grad()
    def before_lookup(self, ids: Tensor, *, training: bool) -> None:
        """Set pruned entries of the rows `ids` to 0 again, which updates have changed since their last lookup."""
        if training:
            self.seen[ids] = True
        if self.kept is not None:
            rows = self.weight.index_select(0, ids) * self.kept.index_select(0, ids)
            self.weight.index_copy_(0, ids, rows)  # three times as fast as indexing with ids

    @torch.no_grad()
    def mask_(self) -> None:
        """Set all pruned entries to 0 again."""
        if self.kept is not None:
            self.weight *= self.kept

    @torch.no_grad()
    def prune_(self, kept: Tensor, threshold: float) -> None:
        """Subtract `threshold` from the magnitudes of kept entries, and set the others to 0."""
        self.kept = kept.to(self.weight.device)
        by = torch.tensor(max(threshold, 0.0), dtype=self.weight.dtype, device=self.weight.device)
        num_rows = max(1, CHUNK_ENTRIES // self.shape[1])
        for values, mask in zip(torch.split(self.weight, num_rows), torch.split(self.kept, num_rows), strict=True):
            values.copy_(soft_threshold(values, by) * mask)

    @torch.no_grad()
    def scores(self, start: int, stop: int) -> Tensor:
        """`|V|` of rows `start … stop − 1` of the shard; −∞ for rows never seen in training."""
        return self.weight[start:stop].abs().masked_fill(~self.seen[start:stop, None], -torch.inf)


@dataclass(frozen=True)
class ShardedTable:
    """A table of a sharded model, and its parts in this process."""

    name: str  # in the unsharded model
    shape: tuple[int, int]
    shards: Sequence[Shard]
    replicated: bool  # every process holds it whole, and looks up ids of its own


def sharded_tables(
    model: nn.Module, where: str | None, min_embedding_dim: int, *, first: bool
) -> Mapping[str, ShardedTable]:
    """The tables of all sharded collections of `model` that match, in the order of the unsharded model."""
    state, tables = model.state_dict(), {}
    for path, module in get_unwrapped_module(model).named_modules():
        for kind, attribute in _TABLES_OF.items():
            if isinstance(module, kind):
                prefix = f"{path}.{attribute}." if path else f"{attribute}."
                for table, sharding in module.module_sharding_plan.items():
                    name = f"{prefix}{table}"
                    if where is None or fnmatchcase(name, where):
                        _check_kernel(name, sharding.compute_kernel)
                        tables[name] = _table(name, state[f"{name}.weight"], first)
    found = {name: table for name, table in tables.items() if table.shape[1] >= min_embedding_dim}
    if not found:
        raise AttachError(
            f"{type(model).__qualname__} has no sharded table to search (where={where!r}, min_embedding_dim="
            f"{min_embedding_dim}). Pass the model that DistributedModelParallel returned; tables that it keeps whole "
            "are searched by thresher.Searcher"
        )
    return found


def _check_kernel(name: str, kernel: str) -> None:
    if kernel not in KERNELS:
        raise AttachError(
            f"table {name} has the compute kernel {kernel!r}. A search needs weights in the memory of the shard: use "
            f"{' or '.join(KERNELS)}, or leave the table out with where=…"
        )


def _table(name: str, value: Tensor, first: bool) -> ShardedTable:
    if not isinstance(value, ShardedTensor):
        if type(value) not in (Tensor, nn.Parameter):
            raise AttachError(f"table {name} is a {type(value).__name__}. Expected a ShardedTensor or a whole table")
        whole = Shard(name, value.data, counted=first)
        return ShardedTable(name, whole.shape, [whole], replicated=True)
    num_rows, width = value.metadata().size
    # a write to `data`, unlike to `detach()`, is allowed between a forward and its backward pass
    local = [(own.tensor.data, own.metadata.shard_offsets) for own in value.local_shards()]
    shards = [Shard(name, weight, row, column) for weight, (row, column) in local]
    return ShardedTable(name, (num_rows, width), shards, replicated=False)


def whole_table(value: ShardedTensor, add_up: Callable[[Tensor], Tensor]) -> Tensor:
    """A table from its shards in all processes; all of them must call it.

    Args:
        add_up: adds up values of all processes.
    """
    whole = torch.zeros(value.metadata().size, dtype=value.dtype)
    for own in value.local_shards():
        (row, column), (num_rows, num_columns) = own.metadata.shard_offsets, own.metadata.shard_sizes
        whole[row : row + num_rows, column : column + num_columns] = own.tensor.detach().cpu()
    return add_up(whole)
