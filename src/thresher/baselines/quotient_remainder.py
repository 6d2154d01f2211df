"""Quotient–remainder: two small tables whose rows together are unique to a feature.

    v_i = R[i mod m] ∘ Q[i div m],   ∘ adds, multiplies or concatenates

No two features of a field have both rows in common. Shi, Mudigere, Naumov, Yang, "Compositional embeddings using
complementary partitions for memory-efficient recommendation systems" (2020). Nothing is learned about sizes, and values
never seen in training are the field's unknown feature, which shares rows as any other does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor
from torch.nn import functional

from thresher.baselines.shared_rows import (
    Combine,
    FieldRows,
    SharedRows,
    SharedRowsConfig,
    capped_sizes,
    check_pieces,
    combine,
    new_factor,
)
from thresher.embeddings.method_registry import register_embedding
from thresher.embeddings.stored_form import register_stored_form


@dataclass(frozen=True, kw_only=True)
class QuotientRemainderConfig(SharedRowsConfig):
    """`num_buckets` are the rows of the remainder table; the quotient table follows.

    Attributes:
        combine: how the two rows make a vector.
    """

    combine: Combine = "multiply"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_pieces(self.embedding_dim, 2, self.combine)

    def budget_values(self, field_sizes: Sequence[int]) -> Sequence[int]:
        # below the root of the largest field the quotient table outgrows what the other saves
        root = np.ceil(np.sqrt(max(field_sizes)))
        return range(int(np.minimum(field_sizes, root).sum()), sum(field_sizes) + 1)


@register_stored_form("QuotientRemainderEmbedding")
@register_embedding("quotient-remainder", QuotientRemainderConfig)
class QuotientRemainderEmbedding(SharedRows):
    """`v_i = R[i mod m_f] ∘ Q[i div m_f]`, with an `m_f` for each field: at most as many rows as the others."""

    config_type = QuotientRemainderConfig
    config: QuotientRemainderConfig

    def __init__(
        self,
        field_sizes: Sequence[int],
        config: QuotientRemainderConfig,
        *,
        feature_counts: Sequence[int] | None = None,
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        remainders = capped_sizes(field_sizes, config.num_buckets)
        quotients = [-(-size // rows) for size, rows in zip(field_sizes, remainders, strict=True)]
        self.remainders, self.quotients = FieldRows(field_sizes, remainders), FieldRows(field_sizes, quotients)
        width = config.embedding_dim // 2 if config.combine == "concatenate" else config.embedding_dim
        num_factors = 2 if config.combine == "multiply" else 1
        self.remainder = new_factor(sum(remainders), width, num_factors)
        self.quotient = new_factor(sum(quotients), width, num_factors)

    def forward(self, ids: Tensor) -> Tensor:
        field, local = self.remainders.split(ids)
        num_rows = self.remainders.num_rows[field]
        remainder = functional.embedding(local % num_rows + self.remainders.first_row[field], self.remainder)
        quotient = functional.embedding(local // num_rows + self.quotients.first_row[field], self.quotient)
        return combine([remainder, quotient], self.config.combine)  # [..., D]
