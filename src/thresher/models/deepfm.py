"""DeepFM (Guo et al., *DeepFM: A Factorization-Machine based Neural Network for CTR Prediction*, IJCAI 2017)."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from thresher.data.table import Bag
from thresher.embeddings.base import FieldEmbedding
from thresher.models.base import CtrModel
from thresher.models.layers import DeepTerm, DeepTermConfig, LinearTerm, fm_term
from thresher.models.model_registry import register_model


@dataclass(frozen=True, kw_only=True)
class DeepFmConfig(DeepTermConfig):
    """Settings of the perceptron."""


@register_model("deepfm", DeepFmConfig)
class DeepFm(CtrModel):
    """Sum of the logits of FM and of a perceptron over the same vectors."""

    def __init__(self, embedding: FieldEmbedding, config: DeepFmConfig, *, num_dense: int = 0) -> None:
        super().__init__(embedding)
        self.linear_term = LinearTerm(embedding.num_features, num_dense)
        self.deep_term = DeepTerm(embedding.num_fields, embedding.embedding_dim, num_dense, config)

    def forward(self, ids: Tensor, dense: Tensor | None = None, bags: Sequence[Bag] = ()) -> Tensor:
        vectors = self.distinct_vectors(ids, bags, self.deep_term)  # [B, F, D]
        logits: Tensor = self.linear_term(ids, dense, bags) + fm_term(vectors) + self.deep_term(vectors, dense)  # [B]
        return logits
