"""Features in groups, by popularity or by field, and where each feature stands in its group.

Groups are runs of consecutive ids wherever vocabularies are ordered by count, as ours are: then finding a feature's
place costs a handful of numbers, not one per feature.
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
        groups: the run's group, uint8 (int32 beyond 256 groups) `[R]`.
        rows: place of the run's first feature in its group, int32 `[R]`.
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
        lengths = np.diff(np.r_[starts, len(groups)])
        rows = np.zeros(len(starts), np.int64)
        for group in range(num_groups):
            of_group = groups[starts] == group
            rows[of_group] = np.cumsum(lengths[of_group]) - lengths[of_group]
        code = np.uint8 if num_groups <= 256 else np.int32
        sizes = np.bincount(groups, minlength=num_groups)
        return cls(
            starts.astype(np.int32), groups[starts].astype(code), rows.astype(np.int32), tuple(int(n) for n in sizes)
        )

    @property
    def storage_bytes(self) -> int:
        return int(self.starts.nbytes + self.groups.nbytes + self.rows.nbytes)


def popularity_blocks(feature_counts: Sequence[int] | Integers, num_blocks: int) -> Integers:
    """Blocks `[N]` of about equal total count, 0 the most popular; none is empty, so there may be fewer.

    >>> popularity_blocks([1, 50, 20, 1, 30], num_blocks=2).tolist()
    [1, 0, 1, 1, 0]
    """
    counts = np.asarray(feature_counts, np.float64)
    order = np.argsort(-counts, kind="stable")
    mass = np.cumsum(counts[order]) if counts.sum() > 0 else np.arange(1, len(counts) + 1, dtype=np.float64)
    before = np.r_[0.0, mass[:-1]]  # a feature belongs where its mass begins
    blocks = np.minimum((before / mass[-1] * num_blocks).astype(np.int64), num_blocks - 1)
    found = np.empty(len(counts), np.int64)
    found[order] = np.unique(blocks, return_inverse=True)[1]
    return found


def field_groups(field_sizes: Sequence[int]) -> Integers:
    """The field each feature belongs to `[N]`."""
    return np.repeat(np.arange(len(field_sizes)), field_sizes)


def field_popularity_groups(
    field_sizes: Sequence[int], feature_counts: Sequence[int] | Integers, num_blocks: int
) -> Integers:
    """Popularity blocks inside each field `[N]`, numbered through: field by field, popular ones first."""
    counts = np.asarray(feature_counts)
    groups, next_group, start = [], 0, 0
    for size in field_sizes:
        blocks = popularity_blocks(counts[start : start + size], num_blocks)
        groups.append(blocks + next_group)
        next_group, start = next_group + int(blocks.max()) + 1, start + size
    return np.concatenate(groups)
