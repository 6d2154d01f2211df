"""`g`, the function that turns an unbounded raw threshold into a threshold ≥ 0, with its inverse.

The paper's appendix asks three things of `g`: (1) positive, → 0 at −∞, → ∞ at ∞; (2) `0 < g′ ≤ G`; (3) `g′ < 1` at the
start. Softplus has all three. Sigmoid, which the paper uses, ends at 1 and so misses the first: an entry with
`|v| ≥ 1` can never be pruned by it.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

ThresholdFunctionName = Literal["softplus", "sigmoid"]


class ThresholdFunction(ABC):
    """A strictly rising `g: ℝ → (0, limit)` and its inverse, extended to `g(−∞) = 0` and `g⁻¹(0) = −∞`."""

    name: ClassVar[ThresholdFunctionName]
    limit: ClassVar[float]
    """The supremum of `g`; entries at or above it are never pruned."""

    @abstractmethod
    def __call__(self, raw: Tensor) -> Tensor:
        """`g(raw)`."""

    @abstractmethod
    def inverse(self, threshold: Tensor) -> Tensor:
        """`g⁻¹(threshold)`: −∞ at 0, +∞ at and beyond the limit."""


class Softplus(ThresholdFunction):
    """`g(s) = log(1 + eˢ)`; `g⁻¹(x) = log(eˣ − 1)`."""

    name = "softplus"
    limit = float("inf")

    def __call__(self, raw: Tensor) -> Tensor:
        return softplus(raw)

    def inverse(self, threshold: Tensor) -> Tensor:
        # x + log(1 − e⁻ˣ) is log(eˣ − 1) without its overflow for large x
        return threshold + torch.log(-torch.expm1(-threshold))


class Sigmoid(ThresholdFunction):
    """`g(s) = 1 / (1 + e⁻ˢ)`; `g⁻¹(x) = log(x / (1 − x))`. The paper's choice; its limit is 1."""

    name = "sigmoid"
    limit = 1.0

    def __call__(self, raw: Tensor) -> Tensor:
        return torch.sigmoid(raw)

    def inverse(self, threshold: Tensor) -> Tensor:
        return torch.logit(threshold.clamp(max=1.0))


THRESHOLD_FUNCTIONS: dict[ThresholdFunctionName, ThresholdFunction] = {
    function.name: function for function in (Softplus(), Sigmoid())
}
