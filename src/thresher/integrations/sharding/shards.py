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

from thresher._internal.mapped_tensors import copy_of
from thresher.errors import AttachError

KERNELS = ("fused", "dense")
"""Compute kernels whose weights are in the memory of the shard. Others keep rows in a cache."""
_TABLES_OF = {ShardedEmbeddingBagCollection: "embedding_bags", ShardedEmbeddingCollection: "embeddings"}


@dataclass(eq=False)
class Shard:
    """A part of a table in this process.

    Attributes:
        weight: its memory `[rows, columns]`; a write changes the model.
        first_row: its place in the table; `first_column` likewise.
        counted: whether this process counts it; of a table that every process holds, only the first one does.
        initial: its values before the search.
        seen: rows `[rows]` that training has changed.
    """

    table: str
    weight: Tensor
    first_row: int = 0
    first_column: int = 0
    counted: bool = True
    initial: Tensor = field(init=False)
    seen: Tensor = field(init=False)

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
    def mark_seen(self) -> None:
        """Mark the rows that training has changed; pruning sets entries to 0, which is not a change."""
        self.seen |= ((self.weight != self.initial) & (self.weight != 0)).any(1)

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
    split_by_column: bool


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
        whole = Shard(name, value.detach(), counted=first)
        return ShardedTable(name, whole.shape, [whole], split_by_column=False)
    num_rows, width = value.metadata().size
    every = value.metadata().shards_metadata
    local = [(own.tensor.detach(), own.metadata.shard_offsets) for own in value.local_shards()]
    shards = [Shard(name, weight, row, column) for weight, (row, column) in local]
    by_column = any(part.shard_sizes[1] < width for part in every)
    return ShardedTable(name, (num_rows, width), shards, split_by_column=by_column)


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
