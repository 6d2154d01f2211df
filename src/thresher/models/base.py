"""The contract every CTR model keeps: feature ids (and numbers) in, one logit per row out.

A model gets its embedding from outside and does not know its method. Not here: losses, loops, probabilities.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from thresher.embeddings.base import FieldEmbedding
from thresher.models.bags import Bag, embed_fields
from thresher.models.repeated_vectors import RepeatedVectors


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Base of all model settings. In TOML: `[model]` with `name = "…"` naming the subclass."""

    config_tag: ClassVar[str] = "name"

    @classmethod
    def config_variants(cls) -> Mapping[str, type["ModelConfig"]]:
        """The configs one may write under `[model]`, by model name."""
        from thresher.models.registry import model_configs

        return model_configs()


class CtrModel(nn.Module, ABC):
    """Ids `[B, F]`, dense inputs `[B, K]`, multi-valued fields → logits `[B]`.

    A model is built as `cls(embedding, config, num_dense=K)`. It takes from the embedding its `field_sizes` and
    `embedding_dim`, and calls it; nothing else, so that every method works under every model.
    """

    uses_embedding: ClassVar[bool] = True
    """False for a model without vectors (logistic regression): it drops the embedding, and nothing can be pruned."""

    def __init__(self, embedding: FieldEmbedding) -> None:
        super().__init__()
        self.embedding: FieldEmbedding | None = embedding if self.uses_embedding else None

    @abstractmethod
    def forward(self, ids: Tensor, dense: Tensor | None = None, bags: Sequence[Bag] = ()) -> Tensor:
        """Global feature ids `[B, F]`, dense inputs `[B, K]` and multi-valued fields → logits `[B]`."""

    def vectors(self, ids: Tensor, bags: Sequence[Bag] = ()) -> Tensor:
        """The embedded row, multi-valued fields pooled: `[B, F, D]`."""
        assert self.embedding is not None, f"{type(self).__qualname__} has no embedding"
        return embed_fields(self.embedding, ids, bags)

    def repeated_vectors(self, ids: Tensor, bags: Sequence[Bag] = ()) -> Tensor | RepeatedVectors:
        """The same, each distinct vector once where that is faster: in training, on CPU kernels, without bags."""
        from thresher.kernels.parallel import runs_on_kernels

        if bags or self.embedding is None or not self.training or not runs_on_kernels(ids):
            return self.vectors(ids, bags)
        rows, distinct = self.embedding.distinct_rows(ids)
        return RepeatedVectors(rows, distinct, self.embedding.field_sizes)

    def num_parameters(self) -> int:
        """Embedding parameters as papers count them: first-order weights and network excluded."""
        return 0 if self.embedding is None else self.embedding.num_parameters()

    def num_total_parameters(self) -> int:
        """Every parameter the model predicts with: the embedding's as it counts them, and all others."""
        return self.num_parameters() + sum(parameter.numel() for parameter in self.other_parameters())

    def other_parameters(self) -> list[nn.Parameter]:
        """All parameters outside the embedding: first-order weights and the network."""
        inside = set() if self.embedding is None else {id(parameter) for parameter in self.embedding.parameters()}
        return [parameter for parameter in self.parameters() if id(parameter) not in inside]
