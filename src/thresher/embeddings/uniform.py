"""UE: one size for all features, a plain table. The first baseline, and the dense model everything is compared with."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig, FieldEmbedding, new_table
from thresher.embeddings.registry import register_embedding


@dataclass(frozen=True, kw_only=True)
class UniformConfig(EmbeddingConfig):
    """Nothing to set but `embedding_dim`."""


@register_embedding("uniform", UniformConfig)
class UniformEmbedding(FieldEmbedding):
    """`v_i = V[i]`, every feature `D` numbers wide."""

    def __init__(
        self, field_sizes: Sequence[int], config: UniformConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        self.weight = new_table(self.num_features, self.embedding_dim)

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.weight)  # [..., D]

    def num_parameters(self) -> int:
        return self.weight.numel()

    def storage_bytes(self) -> int:
        return self.weight.numel() * BYTES_PER_VALUE
