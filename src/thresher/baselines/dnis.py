"""DNIS: a continuous mask over dimensions for each block of features of similar popularity, without candidate sizes.

    v_i = soft_mask[block of i] ⊙ V[i]

Weights learn on training batches, `soft_mask` on validation batches. Then the entries of largest |soft_mask ⊙ V| are
kept, as many as the budget allows, and the model is retrained. Cheng, Shen, Huang, "Differentiable neural input search
for recommender systems" (2020). The authors normalise the mask's gradient per block; here Adam scales it per entry.
They keep entries above a threshold and do not retrain; here the budget decides the number, and the ticket is retrained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig, FieldEmbedding, Role, new_table
from thresher.embeddings.feature_groups import popularity_blocks
from thresher.embeddings.method_registry import register_embedding
from thresher.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DnisConfig(EmbeddingConfig):
    """Settings of DNIS.

    Attributes:
        num_blocks: popularity blocks over all features, of about equal total count.
    """

    num_blocks: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_blocks < 1:
            raise ConfigError(f"num_blocks is {self.num_blocks}; it must be at least 1")

    @classmethod
    def grid(cls) -> Sequence[Self]:
        return [cls(embedding_dim=width) for width in (128, 64, 32, 16)]


@register_embedding("dnis", DnisConfig, status="experimental")
class DnisEmbedding(FieldEmbedding):
    """Ids `[...]` → softly masked rows `[..., D]`."""

    search_algorithm = "bilevel"
    derives: ClassVar[str] = "masks"
    block_of_feature: Tensor
    seen: Tensor

    def __init__(
        self, field_sizes: Sequence[int], config: DnisConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        if feature_counts is None:
            raise ConfigError("DNIS masks features by popularity and needs feature_counts")
        blocks = popularity_blocks(feature_counts, config.num_blocks)
        self.register_buffer("block_of_feature", torch.from_numpy(blocks), persistent=False)
        # from the counts, because the search looks up validation rows in training mode too
        self.register_buffer("seen", torch.from_numpy(np.asarray(feature_counts) > 0), persistent=False)
        self.weight = new_table(self.num_features, self.embedding_dim)
        self.soft_mask = nn.Parameter(torch.ones(int(blocks.max()) + 1, self.embedding_dim))  # [blocks, D]

    def forward(self, ids: Tensor) -> Tensor:
        distinct, places = torch.unique(ids, return_inverse=True)  # [U], [...]
        masks = functional.embedding(self.block_of_feature[distinct.long()], self.soft_mask)
        return functional.embedding(places, masks * functional.embedding(distinct, self.weight))  # [..., D]

    @torch.no_grad()
    def scores(self) -> Tensor:
        """`|soft_mask ⊙ V|` `[N, D]`; −∞ for rows never seen in training."""
        values = self.soft_mask[self.block_of_feature] * self.weight
        return values.abs().masked_fill(~self.seen[:, None], -torch.inf)

    def num_parameters(self) -> int:
        """The search holds the whole table; a ticket is counted after retraining."""
        return self.weight.numel()

    def storage_bytes(self) -> int:
        """Table, mask, and one byte per feature for its block."""
        return (self.weight.numel() + self.soft_mask.numel()) * BYTES_PER_VALUE + self.num_features

    def parameter_groups(self) -> Mapping[Role, Sequence[nn.Parameter]]:
        return {"embeddings": [self.weight], "choices": [self.soft_mask]}
