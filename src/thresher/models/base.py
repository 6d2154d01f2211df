"""The contract every CTR model keeps: feature ids (and numbers) in, one logit per row out.

A model gets its embedding from outside and does not know its method. Not here: losses, loops, probabilities.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from thresher.embeddings.base import FieldEmbedding, RowEmbedding
from thresher.models.bags import Bag, embed_fields
from thresher.models.distinct_vectors import DistinctVectors, has_hooks, takes_distinct

MOST_DISTINCT_SHARE, LEAST_WIDTH = 0.25, 32
"""Of the places of a batch, and of a vector: beyond, multiplying each once may save less than spreading costs."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Base of all model settings. In TOML: `[model]` with `name = "…"` naming the subclass."""

    config_tag: ClassVar[str] = "name"

    @classmethod
    def config_variants(cls) -> Mapping[str, type["ModelConfig"]]:
        """The configs one may write under `[model]`, by model name."""
        from thresher.models.model_registry import model_configs

        return model_configs()


class CtrModel(nn.Module, ABC):
    """Ids `[B, F]`, dense inputs `[B, K]`, multi-valued fields → logits `[B]`.

    A model is built as `cls(embedding, config, num_dense=K)`. It takes from the embedding its `field_sizes` and
    `embedding_dim`, and calls it; nothing else, so that every method works under every model. (On a CPU it may ask a
    `RowEmbedding` for each vector once instead, which is the same but faster.)
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

    def distinct_vectors(self, ids: Tensor, bags: Sequence[Bag], *blocks: nn.Module | None) -> Tensor | DistinctVectors:
        """The same, each distinct vector once, where that is faster on a CPU and no block was changed.

        Args:
            blocks: what will be handed the vectors.
        """
        if bags or not self._may_be_distinct(ids) or not all(map(takes_distinct, blocks)):
            return self.vectors(ids, bags)
        from thresher.kernels.compiling import runs_on_kernels
        from thresher.kernels.distinct import find_distinct

        assert isinstance(self.embedding, RowEmbedding)
        if find_distinct(ids, self.embedding.num_features).num_ids > MOST_DISTINCT_SHARE * ids.numel():
            return self.vectors(ids)
        rows, distinct = self.embedding.distinct_rows(ids)
        vectors = DistinctVectors(rows, distinct, self.embedding.field_sizes)
        return vectors if runs_on_kernels(rows) else vectors.spread()

    def _may_be_distinct(self, ids: Tensor) -> bool:
        """Whether CPU kernels serve, and model and embedding look up vectors as ours do.

        Finding distinct ids passes over a bit per row of the table: a step of training does not notice, a request to a
        served model would. So outside of training a batch must have more places than the table has rows.
        """
        from thresher.kernels.compiling import runs_on_kernels

        embedding = self.embedding
        return (
            isinstance(embedding, RowEmbedding)
            and embedding.embedding_dim >= LEAST_WIDTH
            and (self.training or ids.numel() > embedding.num_features)
            and getattr(self.vectors, "__func__", None) is CtrModel.vectors
            and embedding.has_distinct_rows
            and not has_hooks(embedding)
            and ids.shape[1:] == (embedding.num_fields,)
            and type(ids) is Tensor
            and runs_on_kernels(ids)
            and not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
            and not torch.is_autocast_enabled("cpu")
        )

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
