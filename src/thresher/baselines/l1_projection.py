"""L1-ball projection: the convex relaxation the PEP paper's §4.1 names and sets aside for its cost.

    V ← argmin over ‖U‖₁ ≤ radius of ‖U − V‖₂   =   sign(V) · relu(|V| − θ)

after each epoch, or every few steps, of ordinary training. The projection is exact: `θ` from the sorted magnitudes
(Duchi, Shalev-Shwartz, Singer, Chandra, "Efficient projections onto the l1-ball", 2008). The radius is the one at which
as many entries survive as the plan asks for, so every budget is met. Not learned thresholds: one `θ` for all, found by
sorting the whole table each time; the search's history says what that cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig, FieldEmbedding, new_table
from thresher.embeddings.method_registry import register_embedding
from thresher.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class L1ProjectionConfig(EmbeddingConfig):
    """How often the table is projected.

    Attributes:
        projection_steps: training steps between two projections; absent: an epoch.
    """

    projection_steps: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.projection_steps is not None and self.projection_steps < 1:
            raise ConfigError(f"projection_steps is {self.projection_steps}; it must be at least 1")


@register_embedding("l1-projection", L1ProjectionConfig)
class L1ProjectionEmbedding(FieldEmbedding):
    """`v_i = V[i]`: a plain table, projected from outside (`thresher.baselines.l1_projection_search`)."""

    search_algorithm = "projection"

    def __init__(
        self, field_sizes: Sequence[int], config: L1ProjectionConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        self.weight = new_table(self.num_features, self.embedding_dim)
        self.register_buffer("seen", torch.zeros(self.num_features, dtype=torch.bool))
        self.seen: Tensor  # rows training has looked up; the others carry no information

    def forward(self, ids: Tensor) -> Tensor:
        if self.training:
            self.seen[ids.long()] = True
        return functional.embedding(ids, self.weight)  # [..., D]

    @torch.no_grad()
    def scores(self) -> Tensor:
        """`|V|` `[N, D]`; −∞ for rows training never saw."""
        return self.weight.abs().masked_fill(~self.seen[:, None], -torch.inf)

    def num_parameters(self) -> int:
        return int(self.weight.count_nonzero())

    def storage_bytes(self) -> int:
        """The search holds the whole table; what a ticket saves shows after retraining."""
        return self.weight.numel() * BYTES_PER_VALUE


def project_l1_ball(values: Tensor, radius: float) -> Tensor:
    """The point of the L1 ball of `radius` nearest to `values` `[n]`.

    >>> project_l1_ball(torch.tensor([3.0, -1.0, 0.5]), radius=2.0).tolist()
    [2.0, -0.0, 0.0]
    """
    magnitudes = values.abs().double()
    if float(magnitudes.sum()) <= radius:
        return values
    descending = torch.sort(magnitudes, descending=True).values
    ranks = torch.arange(1, len(values) + 1, dtype=torch.float64)
    thetas = (descending.cumsum(0) - radius) / ranks
    theta = thetas[max(1, int((descending > thetas).sum())) - 1]  # at least the largest survives, but for rounding
    return torch.sign(values) * (magnitudes - theta).clamp_min(0).to(values.dtype)


def radius_keeping(values: Tensor, num_kept: int) -> float:
    """The radius of the L1 ball onto which `values` `[n]` is projected with `num_kept` entries left."""
    if num_kept >= len(values):
        return float(values.abs().double().sum())
    magnitudes = values.abs().double()
    theta = torch.kthvalue(magnitudes, len(values) - num_kept).values
    return float((magnitudes - theta).clamp_min(0).sum())
