"""Groups of features by popularity or field, and the row of each feature in its group.

Vocabularies are ordered by count, so groups consist of runs of consecutive ids. Storing the runs takes a few numbers
instead of one per feature.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[Any]


@dataclass(frozen=True)
class FeatureRuns:
    """Maximal runs of consecutive ids in one group.

    Attributes:
        starts: first id of each run, ascending, int32 `[R]`.
        groups: group of each run, uint8 (int32 beyond 256 groups) `[R]`.
        rows: row of each run's first feature in its group, int32 `[R]`.
        group_sizes: features per group `[G]`.
    """

    starts: Integers
    groups: Integers
    rows: Integers
    group_sizes: tuple[int, ...]

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
        """Build from arrays read from a file. Raises ValueError unless ids and rows of groups match one to one.

        >>> FeatureRuns.from_arrays(*(np.zeros(1, t) for t in "iBi"), num_groups=1, num_features=3).group_sizes
        (3,)
        """
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
    groups, next_group, start = [], 0, 0
    for size in field_sizes:
        blocks = popularity_blocks(counts[start : start + size], num_blocks)
        groups.append(blocks + next_group)
        next_group, start = next_group + int(blocks.max()) + 1, start + size
    return np.concatenate(groups)
