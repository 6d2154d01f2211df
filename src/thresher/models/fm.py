"""Factorization machine (Rendle, *Factorization Machines*, ICDM 2010)."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from thresher.embeddings.base import FieldEmbedding
from thresher.models.bags import Bag
from thresher.models.base import CtrModel, ModelConfig
from thresher.models.layers import LinearTerm, fm_term
from thresher.models.registry import register_model


@dataclass(frozen=True, kw_only=True)
class FmConfig(ModelConfig):
    """Nothing to set."""


@register_model("fm", FmConfig)
class Fm(CtrModel):
    """`logit = bias + Σ_f w[id_f] + Σ_{f<g} ⟨v_f, v_g⟩`."""

    def __init__(self, embedding: FieldEmbedding, config: FmConfig, *, num_dense: int = 0) -> None:
        super().__init__(embedding)
        self.linear_term = LinearTerm(embedding.num_features, num_dense)

    def forward(self, ids: Tensor, dense: Tensor | None = None, bags: Sequence[Bag] = ()) -> Tensor:
        vectors = self.vectors(ids, bags)  # [B, F, D]
        logits: Tensor = self.linear_term(ids, dense, bags) + fm_term(vectors)  # [B]
        return logits
