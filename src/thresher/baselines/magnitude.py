"""Magnitude pruning: keep the entries of the largest |v|, no thresholds learned. Three schedules, one table.

    vector_i = m_i ⊙ V[i],   m = 1 for the k entries of largest |V|, k given by the schedule

- `magnitude`, one-shot: train to the end with an L2 of its own, prune once (Han et al., 2015).
- `gradual-magnitude`: prune while training, k falling by the cubic of Zhu & Gupta, "To prune, or not to prune" (2017).
- `iterative-magnitude`: train, prune a share, rewind the whole model, again (Frankle & Carbin, 2019).

The schedules are in `thresher.baselines.magnitude_search`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig, FieldEmbedding, Role, new_table
from thresher.embeddings.method_registry import register_embedding
from thresher.errors import ConfigError

MagnitudeSchedule = Literal["one-shot", "gradual", "iterative"]


@dataclass(frozen=True, kw_only=True)
class MagnitudeConfig(EmbeddingConfig):
    """Settings of all three schedules.

    Attributes:
        search_weight_decay: L2 while searching, of table and network, which decides what is small; absent: that of
            `search.optimizer`. A teacher's part in the labels lessens it for the table, as it does any.
    """

    search_weight_decay: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search_weight_decay is not None and not 0 <= self.search_weight_decay < float("inf"):
            raise ConfigError(f"search_weight_decay is {self.search_weight_decay}; it must be 0 or more, and finite")


@dataclass(frozen=True, kw_only=True)
class GradualMagnitudeConfig(MagnitudeConfig):
    """The warm-up and the length of the fall are those of `[search]`: `warmup_epochs`, `plan_epochs`."""


@dataclass(frozen=True, kw_only=True)
class IterativeMagnitudeConfig(MagnitudeConfig):
    """How fast the rounds prune.

    Attributes:
        round_keep_share: the least share of the entries that a round keeps; smaller means fewer rounds.
        round_epochs: epochs of a round; absent: until validation stops improving.
    """

    round_keep_share: float = 0.5
    round_epochs: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.round_keep_share < 1:
            raise ConfigError(f"round_keep_share is {self.round_keep_share}; it must lie between 0 and 1")
        if self.round_epochs is not None and self.round_epochs < 1:
            raise ConfigError(f"round_epochs is {self.round_epochs}; it must be at least 1")


@register_embedding("magnitude", MagnitudeConfig)
class MagnitudeEmbedding(FieldEmbedding):
    """Ids `[...]` → `m ⊙ V` `[..., D]`; the mask `m` `[N, D]` is set by the search and gets no gradient."""

    search_algorithm = "magnitude"
    schedule: ClassVar[MagnitudeSchedule] = "one-shot"

    def __init__(
        self, field_sizes: Sequence[int], config: MagnitudeConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        self.weight = new_table(self.num_features, self.embedding_dim)
        self.register_buffer("mask", torch.ones(self.num_features, self.embedding_dim, dtype=torch.bool))
        self.register_buffer("seen", torch.zeros(self.num_features, dtype=torch.bool))
        self.mask: Tensor
        self.seen: Tensor  # rows training has looked up; the others carry no information

    def forward(self, ids: Tensor) -> Tensor:
        distinct, places = torch.unique(ids, return_inverse=True)  # [U], [...]
        if self.training:
            self.seen[distinct.long()] = True
        kept = functional.embedding(distinct, self.weight) * self.mask[distinct.long()]  # [U, D]
        return functional.embedding(places, kept)  # [..., D]

    @torch.no_grad()
    def scores(self) -> Tensor:
        """`|V|` `[N, D]`; −∞ for rows training never saw."""
        return self.weight.abs().masked_fill(~self.seen[:, None], -torch.inf)

    def num_parameters(self) -> int:
        return int(self.mask.sum())

    def storage_bytes(self) -> int:
        """The search holds the whole table and a bit per entry; what a ticket saves shows after retraining."""
        return self.weight.numel() * BYTES_PER_VALUE + -(-self.mask.numel() // 8)

    def parameter_groups(self) -> Mapping[Role, Sequence[nn.Parameter]]:
        return {"embeddings": [self.weight]}


@register_embedding("gradual-magnitude", GradualMagnitudeConfig)
class GradualMagnitudeEmbedding(MagnitudeEmbedding):
    """The same table under the cubic schedule."""

    schedule = "gradual"


@register_embedding("iterative-magnitude", IterativeMagnitudeConfig)
class IterativeMagnitudeEmbedding(MagnitudeEmbedding):
    """The same table, pruned in rounds that each start from the initial weights."""

    schedule = "iterative"
