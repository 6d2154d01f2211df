"""Pruning thresholds: soft thresholding (Eq. 8, 11), threshold functions `g`, and granularities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from thresher._internal.mapped_tensors import new_zeros

GranularityName = Literal["global", "dimension", "feature", "feature-dimension", "field", "field-dimension"]
ThresholdFunctionName = Literal["softplus", "sigmoid"]


def soft_threshold(values: Tensor, threshold: Tensor) -> Tensor:
    """Eq. 8: `sign(v) · relu(|v| − threshold)`; `threshold ≥ 0` broadcasts against `values`.

    Autograd gives the sub-gradients of Eq. 11: pruned entries get no gradient, kept entries pass theirs
    unchanged, and the threshold gets `−sign(v)` times it.

    >>> soft_threshold(torch.tensor([-0.5, 0.1, 0.3]), torch.tensor(0.2)).tolist()
    [-0.30000001192092896, 0.0, 0.10000000894069672]
    """
    return torch.sign(values) * torch.relu(values.abs() - threshold)


def keep_mask(values: Tensor, threshold: Tensor) -> Tensor:
    """`1{S(v) ≠ 0}` of Eq. 11: True where the entry is kept."""
    return values.abs() > threshold


class Softplus:
    """`g(s) = log(1 + eˢ)`; `g⁻¹(x) = log(eˣ − 1)`."""

    name: ClassVar[ThresholdFunctionName] = "softplus"

    def __call__(self, raw: Tensor) -> Tensor:
        return softplus(raw)

    def inverse(self, threshold: Tensor) -> Tensor:
        # x + log(1 − e⁻ˣ) is log(eˣ − 1) without overflow for large x
        return threshold + torch.log(-torch.expm1(-threshold))


class Sigmoid:
    """`g(s) = 1 / (1 + e⁻ˢ)`; `g⁻¹(x) = log(x / (1 − x))`, +∞ for `x ≥ 1`. The paper's choice.

    Violates (1) of the paper's conditions: it is bounded by 1, so it never prunes an entry with `|v| ≥ 1`.
    """

    name: ClassVar[ThresholdFunctionName] = "sigmoid"

    def __call__(self, raw: Tensor) -> Tensor:
        return torch.sigmoid(raw)

    def inverse(self, threshold: Tensor) -> Tensor:
        return torch.logit(threshold.clamp(max=1.0))


THRESHOLD_FUNCTIONS: dict[ThresholdFunctionName, Softplus | Sigmoid] = {"softplus": Softplus(), "sigmoid": Sigmoid()}
"""Strictly increasing `g` and their inverses, extended to `g(−∞) = 0` and `g⁻¹(0) = −∞`.

The paper's appendix requires: (1) `g` is positive, → 0 at −∞, → ∞ at ∞; (2) `0 < g′ ≤ G`; (3) `g′ < 1` at the start.
"""


@dataclass(frozen=True)
class Granularity:
    """Which entries share a threshold: thresholds have the shape `[1 | F | N, 1 | D]`.

    Rows are grouped (all together, by field, or each feature alone), and each dimension may have its own threshold.
    The paper has four of the six combinations; `field` and `field-dimension` are in the authors' code.
    """

    rows: Literal["all", "field", "feature"]
    per_dimension: bool

    def shape(self, field_sizes: Sequence[int], embedding_dim: int) -> tuple[int, int]:
        num_rows = {"all": 1, "field": len(field_sizes), "feature": sum(field_sizes)}[self.rows]
        return num_rows, embedding_dim if self.per_dimension else 1

    def rows_of(self, ids: Tensor, field_of_feature: Tensor) -> Tensor:
        """The row of the thresholds that each feature id `[...]` uses, `[...]`."""
        if self.rows == "feature":
            return ids
        return field_of_feature[ids.long()] if self.rows == "field" else torch.zeros_like(ids)

    def expand(self, thresholds: Tensor, field_of_feature: Tensor, rows: slice | Tensor = slice(None)) -> Tensor:
        """Make thresholds broadcastable to `rows` of the table `[N, D]`; `field_of_feature` is that of these rows."""
        if self.rows == "feature":
            return thresholds[rows]
        return thresholds[field_of_feature] if self.rows == "field" else thresholds


GRANULARITIES: dict[GranularityName, Granularity] = {
    "global": Granularity("all", per_dimension=False),
    "dimension": Granularity("all", per_dimension=True),
    "feature": Granularity("feature", per_dimension=False),
    "feature-dimension": Granularity("feature", per_dimension=True),
    "field": Granularity("field", per_dimension=False),
    "field-dimension": Granularity("field", per_dimension=True),
}


def field_of_feature(field_sizes: Sequence[int]) -> Tensor:
    """The field of each of the `N` features, `[N]`."""
    if len(field_sizes) == 1:
        return new_zeros(field_sizes[0], dtype=torch.int64)  # memory only where it is written: nowhere
    return torch.repeat_interleave(torch.arange(len(field_sizes)), torch.tensor(list(field_sizes)))
