"""Logistic regression; the factorization machine (Rendle, *Factorization Machines*, ICDM 2010), which adds pairs; and
DeepFM (Guo et al., *DeepFM: A Factorization-Machine based Neural Network for CTR Prediction*, IJCAI 2017).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from thresher.data.table import Bag
from thresher.embeddings.base import FieldEmbedding, RowEmbedding
from thresher.kernels.interactions import fm_from_rows
from thresher.models.base import CtrModel, ModelConfig
from thresher.models.layers import DeepTerm, DeepTermConfig, LinearTerm, fm_term
from thresher.models.model_registry import register_model


@dataclass(frozen=True, kw_only=True)
class LogisticRegressionConfig(ModelConfig):
    """Has no settings."""


@register_model("lr", LogisticRegressionConfig)
class LogisticRegression(CtrModel):
    """`logit = bias + Σ_f w[id_f]`. Has no vectors; the embedding only gives the number of features."""

    uses_embedding = False

    def __init__(self, embedding: FieldEmbedding, config: LogisticRegressionConfig, *, num_dense: int = 0) -> None:
        super().__init__(embedding)
        self.linear_term = LinearTerm(embedding.num_features, num_dense)

    def forward(self, ids: Tensor, dense: Tensor | None = None, bags: Sequence[Bag] = ()) -> Tensor:
        logits: Tensor = self.linear_term(ids, dense, bags)  # [B]
        return logits


@dataclass(frozen=True, kw_only=True)
class FmConfig(ModelConfig):
    """Has no settings."""


@register_model("fm", FmConfig)
class Fm(CtrModel):
    """`logit = bias + Σ_f w[id_f] + Σ_{f<g} ⟨v_f, v_g⟩`."""

    def __init__(self, embedding: FieldEmbedding, config: FmConfig, *, num_dense: int = 0) -> None:
        super().__init__(embedding)
        self.linear_term = LinearTerm(embedding.num_features, num_dense)

    def forward(self, ids: Tensor, dense: Tensor | None = None, bags: Sequence[Bag] = ()) -> Tensor:
        table = self.embedding
        if isinstance(table, RowEmbedding) and table.has_distinct_rows and table.prefers_distinct_rows and not bags:
            pairs = fm_from_rows(*table.distinct_rows(ids))
        else:
            pairs = fm_term(self.vectors(ids, bags))
        logits: Tensor = self.linear_term(ids, dense, bags) + pairs  # [B]
        return logits


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
