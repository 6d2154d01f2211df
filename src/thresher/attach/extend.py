"""Adding rows for new ids to compact tables; old rows do not change.

The new features of a field follow its old ones, so global ids of later fields shift; `Growth` maps old ids to new ones.
Vocabularies are extended when data is encoded (`vocabulary_like` and `new_values = "append"` in a `DataConfig`).
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

import torch
from torch import Tensor

from thresher.attach.compact_tables import CompactBag
from thresher.compact.embedding import CompactEmbedding
from thresher.compact.table import CompactTable
from thresher.errors import ConfigError

StartName = Literal["unknown", "zeros"]
Start = StartName | Tensor
"""Initial values of new rows: those of the field's unknown feature, zeros, or given rows `[new, D]`."""


@dataclass(frozen=True)
class Growth:
    """Features per field before and after new ones are added.

    >>> growth = Growth((3, 2), (4, 2))
    >>> growth.moved_rows().tolist(), growth.new_rows().tolist()
    ([0, 1, 2, 4, 5], [3])
    """

    old_sizes: tuple[int, ...]
    new_sizes: tuple[int, ...]
    has_unknown: bool = True  # whether the first feature of each field represents unknown values

    def __post_init__(self) -> None:
        sizes = zip(self.old_sizes, self.new_sizes, strict=False)
        if len(self.old_sizes) != len(self.new_sizes) or any(new < old for old, new in sizes):
            raise ConfigError(
                f"fields of {self.old_sizes} features cannot grow to {self.new_sizes}. The number of fields must stay "
                "the same, and no field may shrink"
            )

    @classmethod
    def of_table(cls, old_size: int, new_size: int) -> "Growth":
        """For a table of a user-defined model: one field without an unknown feature."""
        return cls((old_size,), (new_size,), has_unknown=False)

    def check_start(self, start: Start | None, embedding_dim: int) -> Start:
        """`start` if it is valid; for None the unknown feature, or zeros if there is none."""
        if start is None:
            return "unknown" if self.has_unknown else "zeros"
        if isinstance(start, Tensor):
            expected = [sum(self.new_sizes) - sum(self.old_sizes), embedding_dim]
            if list(start.shape) != expected:
                raise ConfigError(f"start has shape {list(start.shape)}; expected {expected}, one row per id")
            return start
        if start not in get_args(StartName):
            raise ConfigError(f"start must be 'unknown', 'zeros' or a tensor with the new rows, got {start!r}")
        if start == "unknown" and not self.has_unknown:
            raise ConfigError("start='unknown' needs a table with an unknown feature. Use 'zeros' or pass new rows.")
        return start

    def check_table(self, num_features: int) -> None:
        """Raise unless the old sizes are those of a table with this number of rows."""
        if sum(self.old_sizes) != num_features:
            raise ConfigError(f"the table has {num_features:,} rows, but old_sizes sum to {sum(self.old_sizes):,}")

    def moved_rows(self) -> Tensor:
        """New position of each old row `[N old]`, ascending."""
        starts = accumulate(self.new_sizes, initial=0)
        return torch.cat([torch.arange(size) + start for size, start in zip(self.old_sizes, starts, strict=False)])

    def new_rows(self) -> Tensor:
        is_new = torch.ones(sum(self.new_sizes), dtype=torch.bool)
        is_new[self.moved_rows()] = False
        return is_new.nonzero().squeeze(1)

    def unknown_rows(self) -> Tensor:
        """For each new row, the old position of its field's unknown feature."""
        starts = torch.tensor([0, *accumulate(self.old_sizes)][:-1], dtype=torch.int64)
        added = [new - old for old, new in zip(self.old_sizes, self.new_sizes, strict=True)]
        return starts.repeat_interleave(torch.tensor(added))


def extend_embedding(embedding: CompactEmbedding, growth: Growth, start: Start | None = None) -> CompactEmbedding:
    """A trainable compact table with rows for the new features. Bags are not supported: extend their ticket instead."""
    if isinstance(embedding, CompactBag):
        raise ConfigError("a compact nn.EmbeddingBag cannot be extended. Use extend_ticket and a larger bag.")
    growth.check_table(embedding.num_features)
    _check_placeholder(embedding.placeholder is not None, start)
    D, old_values = embedding.embedding_dim, embedding.values.detach()
    entries = extend_entries(embedding.positions(), old_values, D, growth, start)
    extended = CompactEmbedding(growth.new_sizes, D, *entries, embedding.placeholder)
    extended.scale_grad_by_freq = embedding.scale_grad_by_freq
    return extended


def extend_table(table: CompactTable, growth: Growth, start: Start | None = None) -> CompactTable:
    """A stored table with rows for the new features and the same value type.

    int8 and int4 values are quantized again, because their groups of shared scales change. To avoid a second rounding,
    extend the table before quantizing it.
    """
    growth.check_table(table.num_features)
    _check_placeholder(table.placeholder is not None, start)
    old_positions, old_values = (torch.from_numpy(part) for part in table.entries())
    entries = extend_entries(old_positions, old_values, table.embedding_dim, growth, start)
    shape = (sum(growth.new_sizes), table.embedding_dim)
    placeholder = None if table.placeholder is None else (table.placeholder, growth.new_sizes)
    return CompactTable.from_entries(shape, *entries, value_type=table.value_type, placeholder=placeholder)


def _check_placeholder(has_placeholder: bool, start: Start | None) -> None:
    """Values beside a placeholder are differences from it, which given rows are not."""
    if has_placeholder and isinstance(start, Tensor):
        raise ConfigError("start cannot be given rows: pruned entries of the table read as a placeholder, not as 0")


def extend_entries(
    positions: Tensor, values: Tensor, embedding_dim: int, growth: Growth, start: Start | None
) -> tuple[Tensor, Tensor]:
    """Kept entries of the old table (flat positions and values, `[K]`) → those of the new one, ascending."""
    D, start = embedding_dim, growth.check_start(start, embedding_dim)
    rows, columns = positions // D, positions % D
    new_rows = growth.new_rows()
    new_positions, new_values = [growth.moved_rows()[rows] * D + columns], [values]
    if isinstance(start, Tensor):
        at, column = start.nonzero(as_tuple=True)
        new_positions.append(new_rows[at] * D + column)
        new_values.append(start[at, column].to(values.dtype))
    elif start == "unknown":
        for unknown in torch.unique(growth.unknown_rows()):
            added = new_rows[growth.unknown_rows() == unknown]
            kept = rows == unknown
            new_positions.append((added.unsqueeze(1) * D + columns[kept]).flatten())
            new_values.append(values[kept].repeat(len(added)))
    elif len(positions) == sum(growth.old_sizes) * D:  # an unpruned table stays unpruned
        new_positions.append((new_rows.unsqueeze(1) * D + torch.arange(D)).flatten())
        new_values.append(values.new_zeros(len(new_rows) * D))
    order = torch.cat(new_positions).argsort()
    return torch.cat(new_positions)[order], torch.cat(new_values)[order]


def extend_dense(weight: Tensor, growth: Growth, start: Start | None) -> Tensor:
    """A dense table `[N, D]` with rows for the new features."""
    growth.check_table(len(weight))
    start = growth.check_start(start, weight.shape[1])
    extended = weight.new_zeros(sum(growth.new_sizes), weight.shape[1])
    extended[growth.moved_rows()] = weight
    if isinstance(start, Tensor):
        extended[growth.new_rows()] = start.to(weight.dtype)
    elif start == "unknown":
        extended[growth.new_rows()] = weight[growth.unknown_rows()]
    return extended
