"""MixedDimensionEmbedding: one small table per group of features, each projected to the common width.

    v_i = E_g[row of i] · P_g,   E_g: n_g × d_g,   P_g: d_g × D   (no P_g where d_g = D; zeros where d_g = 0)

MDE trains it, and size tickets (DartsEmb, AutoDim) are retrained on it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher.embeddings.base import BYTES_PER_VALUE, FieldEmbedding, new_table
from thresher.embeddings.feature_groups import FeatureRuns
from thresher.embeddings.stored_form import (
    StoredForm,
    check_shape,
    put_tensors_,
    read_integer,
    read_integers,
    register_stored_form,
    stored_runs,
)


@register_stored_form("mixed-dimension")
class MixedDimensionEmbedding(FieldEmbedding):
    """Ids `[...]` → vectors `[..., D]`; features of group `g` are stored with `sizes[g]` values.

    Args:
        runs: the group of each feature and its row in the group.
        sizes: width of each group, 0 … D, `[G]`.
        share_projections: one projection per width instead of one per group.
    """

    run_starts: Tensor  # int32 [R]
    run_groups: Tensor  # uint8 or int32 [R]
    run_rows: Tensor  # int32 [R]

    def __init__(
        self,
        field_sizes: Sequence[int],
        embedding_dim: int,
        runs: FeatureRuns,
        sizes: Sequence[int],
        *,
        share_projections: bool = False,
    ) -> None:
        super().__init__(field_sizes, embedding_dim)
        if sum(runs.group_sizes) != self.num_features or not all(0 <= size <= embedding_dim for size in sizes):
            raise ValueError(
                f"groups have {sum(runs.group_sizes)} features and sizes {sizes}; the table has {self.num_features} "
                f"features and sizes of 0 to {embedding_dim}"
            )
        self.sizes, self.share_projections = tuple(int(size) for size in sizes), share_projections
        self.group_sizes = runs.group_sizes
        for name, array in (("starts", runs.starts), ("groups", runs.groups), ("rows", runs.rows)):
            self.register_buffer(f"run_{name}", torch.from_numpy(array))
        self.tables = nn.ParameterDict(
            {
                str(group): new_table(count, size)
                for group, (count, size) in enumerate(zip(runs.group_sizes, self.sizes, strict=True))
                if size and count
            }
        )
        projected = {self._projection_of(int(group)): self.sizes[int(group)] for group in self.tables}
        self.projections = nn.ParameterDict(
            {name: new_table(size, embedding_dim) for name, size in projected.items() if size < embedding_dim}
        )

    def _projection_of(self, group: int) -> str:
        return f"size_{self.sizes[group]}" if self.share_projections else f"group_{group}"

    def forward(self, ids: Tensor) -> Tensor:
        flat = ids.reshape(-1).to(torch.int32).contiguous()  # [M]
        run = torch.searchsorted(self.run_starts, flat, right=True) - 1
        group, row = self.run_groups[run].long(), self.run_rows[run] + (flat - self.run_starts[run])
        order = torch.argsort(group, stable=True)
        counts = torch.bincount(group, minlength=len(self.sizes)).tolist()
        parts = [self._vectors(at, rows) for at, rows in enumerate(torch.split(row[order], counts)) if len(rows)]
        if not parts:
            return self._vectors(0, flat).view(*ids.shape, self.embedding_dim)
        return torch.cat(parts)[torch.argsort(order)].view(*ids.shape, self.embedding_dim)

    def _vectors(self, group: int, rows: Tensor) -> Tensor:
        """Rows `[n]` of a group's table → vectors `[n, D]`."""
        if str(group) not in self.tables:
            return self.run_starts.new_zeros(len(rows), self.embedding_dim, dtype=torch.float32)
        vectors = functional.embedding(rows, self.tables[str(group)])  # [n, d_g]
        projection = self._projection_of(group)
        return vectors @ self.projections[projection] if projection in self.projections else vectors

    def size_of_feature(self) -> Tensor:
        """The size of each feature before projection, `[N]`."""
        ids = torch.arange(self.num_features)
        run = torch.searchsorted(self.run_starts.long(), ids, right=True) - 1
        return torch.tensor(self.sizes)[self.run_groups.long()[run]]

    def num_parameters(self) -> int:
        """Parameters of tables and projections."""
        return sum(parameter.numel() for parameter in self.parameters())

    def storage_bytes(self) -> int:
        """Bytes of tables, projections and runs."""
        runs = (self.run_starts, self.run_groups, self.run_rows)
        return self.num_parameters() * BYTES_PER_VALUE + sum(array.nbytes for array in runs)

    def to_stored(self) -> StoredForm:
        metadata = {
            "embedding_dim": self.embedding_dim,
            "sizes": self.sizes,
            "group_sizes": self.group_sizes,
            "share_projections": self.share_projections,
        }
        return StoredForm("mixed-dimension", self.state_dict(), metadata)

    @classmethod
    def from_stored(cls, field_sizes: Sequence[int], form: StoredForm) -> "MixedDimensionEmbedding":
        tensors, metadata = form.tensors, form.metadata
        sizes, embedding_dim = read_integers(metadata, "sizes"), read_integer(metadata, "embedding_dim")
        if not sizes or not embedding_dim or type(metadata["share_projections"]) is not bool:
            raise ValueError("sizes must not be empty, embedding_dim not 0, and share_projections true or false")
        runs = stored_runs(form, len(sizes), sum(field_sizes))
        for group, shape in enumerate(zip(runs.group_sizes, sizes, strict=True)):
            if all(shape):
                check_shape(tensors, f"tables.{group}", shape)
        with torch.device("meta"):
            embedding = MixedDimensionEmbedding(
                field_sizes, embedding_dim, runs, sizes, share_projections=metadata["share_projections"]
            )
        put_tensors_(embedding, tensors)
        return embedding
