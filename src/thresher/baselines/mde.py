"""MDE, mixed dimension embeddings: the size of a block of features follows from its popularity.

    d_k = base_dim · (p_k / max p)^temperature

`p_k` is the mean count of the features of block `k`; for blocks that are fields, one over the field's size. A
projection maps each block to the common width.
Ginart, Naumov, Mudigere, Yang, Zou, "Mixed Dimension Embeddings with Application to Memory-Efficient Recommendation
Systems" (2019). Sizes are not learned: a rare feature that matters gets a small one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from thresher.embeddings.base import EmbeddingConfig
from thresher.embeddings.feature_groups import FeatureRuns, MixedDimensionEmbedding, field_groups, popularity_blocks
from thresher.embeddings.method_registry import register_embedding
from thresher.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class MdeConfig(EmbeddingConfig):
    """Settings of the rule. PEP paper's grid: base_dim 4, 8, 16, 32; num_blocks 8, 16; temperature 0.1, 0.2, 0.3."""

    base_dim: int | None = None
    """Width of the most popular block. Absent: `embedding_dim`, the width to which all are projected."""
    blocks: Literal["popularity", "field"] = "popularity"
    """What shares a width: features of similar `popularity`, or a `field`."""
    num_blocks: int = 8
    """Popularity blocks of about equal total count; not used with `blocks = "field"`."""
    temperature: float = 0.3
    """0 gives every block the same width, 1 widths in proportion to popularity."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.base_dim is not None and not 1 <= self.base_dim <= self.embedding_dim:
            raise ConfigError(f"base_dim is {self.base_dim}; it must lie between 1 and embedding_dim")
        if self.num_blocks < 1:
            raise ConfigError(f"num_blocks is {self.num_blocks}; it must be at least 1")
        if not 0 <= self.temperature <= 1:
            raise ConfigError(f"temperature is {self.temperature}; it must lie between 0 and 1")

    @classmethod
    def grid(cls) -> Sequence[Self]:
        settings = ((8, 0.3), (16, 0.1), (8, 0.2), (16, 0.3), (8, 0.1), (16, 0.2))
        return [cls(embedding_dim=32, num_blocks=blocks, temperature=temperature) for blocks, temperature in settings]

    def budget_values(self, field_sizes: Sequence[int]) -> Sequence[int]:
        return range(self.base_dim or 1, self.embedding_dim + 1)


@register_embedding("mde", MdeConfig)
class MdeEmbedding(MixedDimensionEmbedding):
    """Ids `[...]` → vectors `[..., D]` of widths fixed by the rule before training."""

    def __init__(
        self, field_sizes: Sequence[int], config: MdeConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        if config.blocks == "field":
            groups, popularity = field_groups(field_sizes), 1 / np.asarray(field_sizes, np.float64)
        elif feature_counts is None:
            raise ConfigError('MDE sizes features by popularity and needs feature_counts, or blocks = "field"')
        else:
            groups = popularity_blocks(feature_counts, config.num_blocks)
            popularity = np.bincount(groups, weights=np.asarray(feature_counts)) / np.bincount(groups)
        sizes = (config.base_dim or config.embedding_dim) * (popularity / popularity.max()) ** config.temperature
        runs = FeatureRuns.of(groups, len(sizes))
        super().__init__(field_sizes, config.embedding_dim, runs, [max(1, round(size)) for size in sizes])
        self.config = config
