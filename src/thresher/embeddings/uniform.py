"""UE: a plain embedding table in which all features have the same size; the dense model others are compared with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from torch import Tensor, nn
from torch.nn import functional

from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig, RowEmbedding, new_table
from thresher.embeddings.method_registry import register_embedding

if TYPE_CHECKING:
    from thresher.kernels.distinct import DistinctIds


@dataclass(frozen=True, kw_only=True)
class UniformConfig(EmbeddingConfig):
    """Has no settings but `embedding_dim`."""

    @classmethod
    def frontier_points(cls) -> Sequence[Self]:
        return [cls(embedding_dim=width) for width in (64, 32, 16, 8, 4)]


@register_embedding("uniform", UniformConfig)
class UniformEmbedding(RowEmbedding):
    """`v_i = V[i]`, where every feature has `D` values."""

    def __init__(
        self, field_sizes: Sequence[int], config: UniformConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        self.weight = new_table(self.num_features, self.embedding_dim)

    def forward(self, ids: Tensor) -> Tensor:
        if self.row_gradients:
            from thresher.kernels.rows import expand_rows

            return expand_rows(*self.distinct_rows(ids))  # [..., D]
        return functional.embedding(ids, self.weight)  # [..., D]

    def distinct_rows(self, ids: Tensor) -> "tuple[Tensor, DistinctIds]":
        from thresher.kernels.distinct import find_distinct
        from thresher.kernels.rows import lookup_rows

        distinct = find_distinct(ids, self.num_features)
        if not self.row_gradients:
            return functional.embedding(distinct.ids, self.weight), distinct
        return lookup_rows(self.weight, distinct), distinct

    def row_tables(self) -> Sequence[nn.Parameter]:
        return [self.weight]

    def num_parameters(self) -> int:
        return self.weight.numel()

    def storage_bytes(self) -> int:
        return self.weight.numel() * BYTES_PER_VALUE
