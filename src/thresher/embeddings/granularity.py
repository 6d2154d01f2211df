"""Which entries share a threshold: six granularities as small objects that know their shape.

A granularity is two independent choices: how rows are grouped (all together, by field, each feature alone) and whether
each dimension has its own. The paper has four of the six products; field and field-dimension are in the authors' code.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

GranularityName = Literal["global", "dimension", "feature", "feature-dimension", "field", "field-dimension"]


@dataclass(frozen=True)
class Granularity:
    """Thresholds of shape `[1 | F | N, 1 | D]`."""

    name: GranularityName
    rows: Literal["all", "field", "feature"]
    per_dimension: bool

    def shape(self, field_sizes: Sequence[int], embedding_dim: int) -> tuple[int, int]:
        num_rows = {"all": 1, "field": len(field_sizes), "feature": sum(field_sizes)}[self.rows]
        return num_rows, embedding_dim if self.per_dimension else 1

    def rows_of(self, ids: Tensor, field_of_feature: Tensor) -> Tensor:
        """Which row of the thresholds each feature id `[...]` uses, `[...]`."""
        if self.rows == "feature":
            return ids
        return field_of_feature[ids.long()] if self.rows == "field" else torch.zeros_like(ids)

    def expand(self, thresholds: Tensor, field_of_feature: Tensor, rows: slice = slice(None)) -> Tensor:
        """Thresholds of this shape → broadcastable to the table `[N, D]`, or to the `rows` `field_of_feature` is of."""
        if self.rows == "feature":
            return thresholds[rows]
        return thresholds[field_of_feature] if self.rows == "field" else thresholds


GRANULARITIES: dict[GranularityName, Granularity] = {
    granularity.name: granularity
    for granularity in (
        Granularity("global", "all", per_dimension=False),
        Granularity("dimension", "all", per_dimension=True),
        Granularity("feature", "feature", per_dimension=False),
        Granularity("feature-dimension", "feature", per_dimension=True),
        Granularity("field", "field", per_dimension=False),
        Granularity("field-dimension", "field", per_dimension=True),
    )
}


def field_of_feature(field_sizes: Sequence[int]) -> Tensor:
    """The field each of the `N` features belongs to, `[N]`."""
    return torch.repeat_interleave(torch.arange(len(field_sizes)), torch.tensor(list(field_sizes)))
