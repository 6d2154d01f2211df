"""MixedDimensionEmbedding: one small table per group of features, each projected to the common width.

    v_i = E_g[row of i] · P_g,   E_g: n_g × d_g,   P_g: d_g × D   (no P_g where d_g = D; zeros where d_g = 0)

What MDE is, and what tickets of sizes (DartsEmb, AutoDim) are retrained on. Not here: how the sizes come about.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher.embeddings.base import BYTES_PER_VALUE, FieldEmbedding, Role, new_table
from thresher.embeddings.feature_groups import FeatureRuns
from thresher.embeddings.stored_form import (
    StoredForm,
    check_shape,
    put_tensors_,
    register_stored_form,
    stored_runs,
    whole_number,
    whole_numbers,
)


@register_stored_form("mixed-dimension")
class MixedDimensionEmbedding(FieldEmbedding):
    """Ids `[...]` → vectors `[..., D]`, each feature as wide inside as its group.

    Args:
        runs: which group each feature is in, and where.
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
            raise ValueError(f"groups of {sum(runs.group_sizes)} features with sizes {sizes} do not fit this table")
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
        """Vectors of the features at places `rows` of a group `[n]` → `[n, D]`."""
        if str(group) not in self.tables:
            return self.run_starts.new_zeros(len(rows), self.embedding_dim, dtype=torch.float32)
        vectors = functional.embedding(rows, self.tables[str(group)])  # [n, d_g]
        projection = self._projection_of(group)
        return vectors @ self.projections[projection] if projection in self.projections else vectors

    def size_of_feature(self) -> Tensor:
        """The width inside of each feature, `[N]`."""
        ids = torch.arange(self.num_features)
        run = torch.searchsorted(self.run_starts.long(), ids, right=True) - 1
        return torch.tensor(self.sizes)[self.run_groups.long()[run]]

    def num_parameters(self) -> int:
        """Tables and projections."""
        return sum(parameter.numel() for parameter in self.parameters())

    def storage_bytes(self) -> int:
        """Tables and projections, and the runs that tell a feature's group and row."""
        runs = (self.run_starts, self.run_groups, self.run_rows)
        return self.num_parameters() * BYTES_PER_VALUE + sum(array.nbytes for array in runs)

    def parameter_groups(self) -> Mapping[Role, Sequence[nn.Parameter]]:
        return {"embeddings": list(self.parameters())}

    def to_stored(self) -> StoredForm:
        facts = {
            "embedding_dim": self.embedding_dim,
            "sizes": self.sizes,
            "group_sizes": self.group_sizes,
            "share_projections": self.share_projections,
        }
        return StoredForm("mixed-dimension", self.state_dict(), facts)

    @classmethod
    def from_stored(cls, field_sizes: Sequence[int], form: StoredForm) -> "MixedDimensionEmbedding":
        tensors, facts = form.tensors, form.facts
        sizes, embedding_dim = whole_numbers(facts, "sizes"), whole_number(facts, "embedding_dim")
        if not sizes or not embedding_dim or type(facts["share_projections"]) is not bool:
            raise ValueError("sizes and embedding_dim should not be empty, and share_projections true or false")
        runs = stored_runs(form, len(sizes), sum(field_sizes))
        for group, shape in enumerate(zip(runs.group_sizes, sizes, strict=True)):
            if all(shape):
                check_shape(tensors, f"tables.{group}", shape)
        with torch.device("meta"):
            embedding = MixedDimensionEmbedding(
                field_sizes, embedding_dim, runs, sizes, share_projections=facts["share_projections"]
            )
        put_tensors_(embedding, tensors)
        return embedding
