"""Logistic regression: first-order weights only. The paper compares its smallest tickets with it (Table 5)."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from thresher.data.table import Bag
from thresher.embeddings.base import FieldEmbedding
from thresher.models.base import CtrModel, ModelConfig
from thresher.models.layers import LinearTerm
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
