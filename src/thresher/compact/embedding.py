"""CompactEmbedding: an embedding of which only the kept values exist. What retraining trains, and nothing dense.

Not the stored form: its index is the quickest to read, not the smallest. `to_compact` gives the `CompactTable`.
"""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher.compact.layouts import choose_layout
from thresher.compact.table import CompactTable
from thresher.embeddings.base import RowEmbedding
from thresher.kernels.distinct import DistinctIds, find_distinct
from thresher.kernels.rows import compact_lookup


class CompactEmbedding(RowEmbedding):
    """Vectors whose pruned entries are zero and whose kept entries are the parameter `values` `[K]`, row after row.

    Dense Adam over `values` takes the same steps as masked dense retraining, at a cost that follows `K`.

    >>> import torch
    >>> mask = torch.tensor([[True, False], [False, False], [True, True]])
    >>> embedding = CompactEmbedding.from_mask([3], mask, torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    >>> embedding.num_parameters(), embedding(torch.tensor([2, 1])).tolist()
    (3, [[5.0, 6.0], [0.0, 0.0]])
    """

    row_starts: Tensor  # int32 [N + 1], int64 beyond two thousand million entries
    columns: Tensor  # uint8 [K], int32 beyond 256 columns
    scale_grad_by_freq: bool = False
    """Divide a gradient by how often the ids have its row, as the `nn.Embedding` did that the table stands for."""

    def __init__(self, field_sizes: Sequence[int], embedding_dim: int, positions: Tensor, values: Tensor) -> None:
        """From the kept entries: flat positions `row · D + column` `[K]`, ascending, and their values `[K]`."""
        super().__init__(field_sizes, embedding_dim)
        num_cells = self.num_features * embedding_dim
        if positions.ndim != 1 or positions.shape != values.shape:
            raise ValueError(f"positions {tuple(positions.shape)} and values {tuple(values.shape)} must be one [K]")
        if len(positions) and (int(positions[0]) < 0 or int(positions[-1]) >= num_cells):
            raise ValueError(f"positions lie outside a table of {self.num_features} rows of {embedding_dim}")
        if bool((positions.diff() <= 0).any()):
            raise ValueError("positions must be ascending and distinct; sort them together with their values")
        rows = positions // embedding_dim
        starts = torch.searchsorted(rows, torch.arange(self.num_features + 1, device=rows.device))
        columns = positions - rows * embedding_dim
        self.values = nn.Parameter(values.detach().clone())
        self.register_buffer("row_starts", starts.to(torch.int32 if len(positions) < 2**31 else torch.int64))
        self.register_buffer("columns", columns.to(torch.uint8 if embedding_dim <= 256 else torch.int32))

    @classmethod
    def from_mask(cls, field_sizes: Sequence[int], mask: Tensor, weight: Tensor) -> Self:
        """Keep the entries of `weight` `[N, D]` where `mask` `[N, D]` is True, also those that are zero."""
        if mask.shape != weight.shape or len(mask) != sum(field_sizes):
            raise ValueError(
                f"mask {tuple(mask.shape)} and weight {tuple(weight.shape)} must both be [{sum(field_sizes)}, D], "
                "the sum of field_sizes in rows"
            )
        positions = mask.reshape(-1).nonzero().squeeze(1)
        return cls(field_sizes, mask.shape[1], positions, weight.detach().reshape(-1)[positions])

    @classmethod
    def from_table(cls, field_sizes: Sequence[int], table: CompactTable) -> Self:
        """A trainable copy of a stored table."""
        if table.num_features != sum(field_sizes):
            raise ValueError(f"the table has {table.num_features} rows, field_sizes sum to {sum(field_sizes)}")
        positions, values = table.entries()
        return cls(field_sizes, table.embedding_dim, torch.from_numpy(positions), torch.from_numpy(values))

    def share_(self, other: Self) -> None:
        """Hold the very tensors of `other`, which is of the same entries: one table in two modules."""
        self.values, self.row_starts, self.columns = other.values, other.row_starts, other.columns

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name != "weight":
                raise
            raise AttributeError(
                "the table is compact and has no weight: look rows up by calling it; a device or dtype to compute with "
                "is that of the vectors, of the inputs or of another Parameter; values has the kept entries, "
                "to_dense() all"
            ) from None

    def forward(self, ids: Tensor) -> Tensor:
        if not self.scale_grad_by_freq:
            return self.vectors_of(ids)  # [..., D]
        found = find_distinct(ids, self.num_features)
        return functional.embedding(found.places, self.vectors_of(found.ids), scale_grad_by_freq=True)  # [..., D]

    def vectors_of(self, ids: Tensor) -> Tensor:
        """The vectors of ids `[...]`, `[..., D]`: what stands in the table, however it is called."""
        return compact_lookup(self.values, self.row_starts, self.columns, ids, self.embedding_dim)

    @property
    def prefers_distinct_rows(self) -> bool:
        return self.training and torch.is_grad_enabled()

    def distinct_rows(self, ids: Tensor) -> tuple[Tensor, DistinctIds]:
        distinct = find_distinct(ids, self.num_features)
        return self(distinct.ids), distinct

    def positions(self) -> Tensor:
        """Flat positions `row · D + column` of the kept entries `[K]`, ascending."""
        rows = torch.repeat_interleave(torch.arange(self.num_features, device=self.columns.device), self.sizes())
        return rows * self.embedding_dim + self.columns.long()

    def sizes(self) -> Tensor:
        """Kept dimensions per feature `[N]`; 0 for a dropped one."""
        return self.row_starts.diff().long()

    def mask(self) -> Tensor:
        """The dense mask `[N, D]`, True = kept."""
        mask = torch.zeros(self.num_features * self.embedding_dim, dtype=torch.bool, device=self.columns.device)
        mask[self.positions()] = True
        return mask.view(self.num_features, self.embedding_dim)

    def to_dense(self) -> Tensor:
        """The dense table `[N, D]`, differentiable in the values; lookups do without it."""
        cells = self.values.new_zeros(self.num_features * self.embedding_dim)
        return cells.scatter(0, self.positions(), self.values).view(-1, self.embedding_dim)

    def num_parameters(self) -> int:
        return len(self.values)

    def storage_bytes(self) -> int:
        """Bytes of the smallest layout of this table, which is what a bundle stores."""
        sizes, num_columns = self.sizes(), len(torch.unique(self.columns))
        layout = choose_layout(
            self.num_features,
            self.embedding_dim,
            num_rows=int((sizes > 0).sum()),
            num_columns=num_columns,
            num_entries=len(self.values),
            num_full_rows=int((sizes == num_columns).sum()) if num_columns else 0,
        )
        return layout.storage_bytes

    def to_table(self) -> CompactTable:
        """The stored form of the present values."""
        shape = (self.num_features, self.embedding_dim)
        return CompactTable.from_entries(shape, self.positions(), self.values)

    def extra_repr(self) -> str:
        return f"{self.num_features}, {self.embedding_dim}, num_parameters={self.num_parameters()}"
