"""Groups of features by popularity or field, and MixedDimensionEmbedding: a table with one width per group.

Vocabularies are ordered by count, so groups consist of runs of consecutive ids. Storing the runs takes a few numbers
instead of one per feature.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher.embeddings.base import BYTES_PER_VALUE, FieldEmbedding, new_table
from thresher.embeddings.stored_form import (
    StoredForm,
    check_shape,
    put_tensors_,
    read_integer,
    read_integers,
    register_stored_form,
)

Integers = npt.NDArray[Any]


@dataclass(frozen=True)
class FeatureRuns:
    """Maximal runs of consecutive ids in one group."""

    starts: Integers  # first id of each run, ascending, int32 [R]
    groups: Integers  # group of each run, uint8 (int32 beyond 256 groups) [R]
    rows: Integers  # row of each run's first feature in its group, int32 [R]
    group_sizes: tuple[int, ...]  # features per group [G]

    @classmethod
    def of(cls, group_of_feature: Integers, num_groups: int) -> "FeatureRuns":
        """From the group of each feature `[N]`.

        >>> runs = FeatureRuns.of(np.array([1, 0, 0, 1, 1]), 2)
        >>> runs.starts.tolist(), runs.groups.tolist(), runs.rows.tolist(), runs.group_sizes
        ([0, 1, 3], [1, 0, 1], [0, 0, 1], (2, 3))
        """
        groups = np.asarray(group_of_feature)
        starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
        rows, sizes = _rows_of_runs(starts, groups[starts], num_groups, len(groups))
        code = _group_type(num_groups)
        return cls(starts.astype(np.int32), groups[starts].astype(code), rows.astype(np.int32), sizes)

    @classmethod
    def from_arrays(
        cls, starts: Integers, groups: Integers, rows: Integers, *, num_groups: int, num_features: int
    ) -> "FeatureRuns":
        """Build from arrays read from a file. Raises ValueError unless ids and rows of groups match one to one."""
        for name, array, dtype in (
            ("run_starts", starts, np.int32),
            ("run_groups", groups, _group_type(num_groups)),
            ("run_rows", rows, np.int32),
        ):
            if array.dtype != dtype or array.ndim != 1 or len(array) != len(starts):
                raise ValueError(f"{name} must have {len(starts)} values of type {np.dtype(dtype)}")
        if not len(starts) or starts[0] != 0 or np.any(starts[1:] <= starts[:-1]) or starts[-1] >= num_features:
            raise ValueError(f"run_starts must start with 0, ascend and be below {num_features}")
        if int(groups.min()) < 0 or int(groups.max()) >= num_groups:
            raise ValueError(f"run_groups must be between 0 and {num_groups - 1}")
        expected, sizes = _rows_of_runs(starts.astype(np.int64), groups, num_groups, num_features)
        if not np.array_equal(rows, expected):
            raise ValueError("run_rows must number the features of each group consecutively")
        return cls(starts, groups, rows, sizes)

    @classmethod
    def from_stored(cls, form: StoredForm, num_groups: int, num_features: int) -> "FeatureRuns":
        """The checked runs of a form; `group_sizes` in the metadata, if present, must be those of the runs."""
        arrays = (form.tensors[f"run_{name}"].numpy() for name in ("starts", "groups", "rows"))
        runs = cls.from_arrays(*arrays, num_groups=num_groups, num_features=num_features)
        if "group_sizes" in form.metadata and read_integers(form.metadata, "group_sizes") != runs.group_sizes:
            raise ValueError("group_sizes do not match the runs")
        return runs

    @property
    def storage_bytes(self) -> int:
        return int(self.starts.nbytes + self.groups.nbytes + self.rows.nbytes)


def _group_type(num_groups: int) -> type[np.integer[Any]]:
    return np.uint8 if num_groups <= 256 else np.int32


def _rows_of_runs(
    starts: Integers, groups: Integers, num_groups: int, num_features: int
) -> tuple[Integers, tuple[int, ...]]:
    """Row of each run's first feature in its group `[R]`, and features per group `[G]`."""
    lengths = np.diff(np.r_[starts, num_features])
    sizes = np.bincount(groups, weights=lengths, minlength=num_groups).astype(np.int64)
    by_group = np.argsort(groups, kind="stable")
    before = np.cumsum(lengths[by_group]) - lengths[by_group]  # features in earlier runs, ordered by group
    rows = np.empty(len(starts), np.int64)
    rows[by_group] = before - (np.cumsum(sizes) - sizes)[groups[by_group]]
    return rows, tuple(sizes.tolist())


def popularity_blocks(feature_counts: Sequence[int] | Integers, num_blocks: int) -> Integers:
    """Assign features to blocks `[N]` of about equal total count; 0 is the most popular. Empty blocks are removed.

    >>> popularity_blocks([1, 50, 20, 1, 30], num_blocks=2).tolist()
    [1, 0, 1, 1, 0]
    """
    counts = np.asarray(feature_counts, np.float64)
    order = np.argsort(-counts, kind="stable")
    mass = np.cumsum(counts[order]) if counts.sum() > 0 else np.arange(1, len(counts) + 1, dtype=np.float64)
    before = np.r_[0.0, mass[:-1]]
    blocks = np.minimum((before / mass[-1] * num_blocks).astype(np.int64), num_blocks - 1)
    found = np.empty(len(counts), np.int64)
    found[order] = np.unique(blocks, return_inverse=True)[1]
    return found


def field_groups(field_sizes: Sequence[int]) -> Integers:
    """The field of each feature, `[N]`."""
    return np.repeat(np.arange(len(field_sizes)), field_sizes)


def field_popularity_groups(
    field_sizes: Sequence[int], feature_counts: Sequence[int] | Integers, num_blocks: int
) -> Integers:
    """Popularity blocks inside each field `[N]`, numbered field by field, popular blocks first."""
    counts = np.asarray(feature_counts)
    groups, next_group = [], 0
    for counts_of_field in np.split(counts, np.cumsum(field_sizes)[:-1]):
        groups.append(popularity_blocks(counts_of_field, num_blocks) + next_group)
        next_group = int(groups[-1].max()) + 1
    return np.concatenate(groups)


@register_stored_form("mixed-dimension")
class MixedDimensionEmbedding(FieldEmbedding):
    """One small table per group of features, each projected to the common width. Ids `[...]` → vectors `[..., D]`.

        v_i = E_g[row of i] · P_g,   E_g: n_g × d_g,   P_g: d_g × D   (no P_g where d_g = D; zeros where d_g = 0)

    MDE trains it, and size tickets (DartsEmb, AutoDim) are retrained on it.

    Args:
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
        if sum(runs.group_sizes) != self.num_features:
            raise ValueError(f"groups have {sum(runs.group_sizes)} features, the table {self.num_features}")
        if not all(0 <= size <= embedding_dim for size in sizes):
            raise ValueError(f"sizes must be 0 to {embedding_dim}, got {sizes}")
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
        return sum(parameter.numel() for parameter in self.parameters())

    def storage_bytes(self) -> int:
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
        runs = FeatureRuns.from_stored(form, len(sizes), sum(field_sizes))
        for group, shape in enumerate(zip(runs.group_sizes, sizes, strict=True)):
            if all(shape):
                check_shape(tensors, f"tables.{group}", shape)
        with torch.device("meta"):
            shared = metadata["share_projections"]
            embedding = MixedDimensionEmbedding(field_sizes, embedding_dim, runs, sizes, share_projections=shared)
        put_tensors_(embedding, tensors)
        return embedding
