"""The interface of CTR models: feature ids and dense inputs in, one logit per row out.

A model gets its embedding from outside and does not depend on the embedding's method.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from thresher._internal.registry import Registry
from thresher.data.schema import Pooling
from thresher.data.table import Bag
from thresher.embeddings.base import FieldEmbedding, RowEmbedding
from thresher.kernels.compiling import runs_on_kernels
from thresher.kernels.distinct import find_distinct
from thresher.models.distinct_vectors import DistinctVectors, has_hooks, takes_distinct

MAX_DISTINCT_SHARE, MIN_WIDTH = 0.25, 32
"""Above this share of distinct ids, or below this width, computing each vector once may cost more than it saves."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Base of all model settings. In TOML: `[model]`, where `name = "…"` selects the subclass."""

    config_tag: ClassVar[str] = "name"

    @classmethod
    def config_variants(cls) -> Mapping[str, type["ModelConfig"]]:
        """Config classes by model name: the choices for `name` under `[model]`."""
        return {name: registered.config for name, registered in model_registry.entries().items()}


def pool(vectors: Tensor, offsets: Tensor, pooling: Pooling) -> Tensor:
    """Vectors `[total, D]` of ragged rows → one vector per row `[B, D]`; a row without values gets zeros."""
    lengths = offsets.diff()  # [B]
    rows = torch.repeat_interleave(lengths)  # [total]
    pooled = vectors.new_zeros(lengths.numel(), vectors.shape[-1]).index_add(0, rows, vectors)  # [B, D]
    return pooled if pooling == "sum" else pooled / lengths.clamp(min=1).to(pooled.dtype).unsqueeze(1)


def embed_fields(lookup: Callable[[Tensor], Tensor], ids: Tensor, bags: Sequence[Bag] = ()) -> Tensor:
    """Look up the single- and multi-valued fields of a batch → vectors `[B, F, D]` in the order of the fields.

    Args:
        lookup: ids `[...]` → vectors `[..., D]`.
        ids: one id per single-valued field, in the order of the fields: `[B, F − number of bags]`.
        bags: the multi-valued fields.
    """
    vectors: Tensor = lookup(ids)  # [B, F', D]
    if not bags:
        return vectors
    pooled = {bag.field: pool(lookup(bag.values), bag.offsets, bag.pooling) for bag in bags}  # field: [B, D]
    single = iter(vectors.unbind(1))
    num_fields = vectors.shape[1] + len(bags)
    return torch.stack([pooled[field] if field in pooled else next(single) for field in range(num_fields)], dim=1)


class CtrModel(nn.Module, ABC):
    """Ids `[B, F]`, dense inputs `[B, K]` and multi-valued fields → logits `[B]`.

    A model is built as `cls(embedding, config, num_dense=K)`. It uses only `field_sizes`, `embedding_dim` and the
    lookup of the embedding, so every method works with every model. (On a CPU it may look up each distinct vector of a
    `RowEmbedding` once, which gives the same result faster.)
    """

    uses_embedding: ClassVar[bool] = True
    """False for a model without vectors (logistic regression): it has no embedding, so there is nothing to prune."""

    def __init__(self, embedding: FieldEmbedding) -> None:
        super().__init__()
        self.embedding: FieldEmbedding | None = embedding if self.uses_embedding else None

    @abstractmethod
    def forward(self, ids: Tensor, dense: Tensor | None = None, bags: Sequence[Bag] = ()) -> Tensor:
        """Global feature ids `[B, F]`, dense inputs `[B, K]` and multi-valued fields → logits `[B]`."""

    def vectors(self, ids: Tensor, bags: Sequence[Bag] = ()) -> Tensor:
        """The vectors of a batch, multi-valued fields pooled: `[B, F, D]`."""
        assert self.embedding is not None, f"{type(self).__qualname__} has no embedding"
        return embed_fields(self.embedding, ids, bags)

    def distinct_vectors(self, ids: Tensor, bags: Sequence[Bag], *blocks: nn.Module | None) -> Tensor | DistinctVectors:
        """The vectors of a batch, as `DistinctVectors` if that is faster and all `blocks` that read them support it."""
        if bags or not self._supports_distinct(ids) or not all(map(takes_distinct, blocks)):
            return self.vectors(ids, bags)
        assert isinstance(self.embedding, RowEmbedding)
        if find_distinct(ids, self.embedding.num_features).num_ids > MAX_DISTINCT_SHARE * ids.numel():
            return self.vectors(ids)
        rows, distinct = self.embedding.distinct_rows(ids)
        vectors = DistinctVectors(rows, distinct, self.embedding.field_sizes)
        return vectors if runs_on_kernels(rows) else vectors.expand()

    def _supports_distinct(self, ids: Tensor) -> bool:
        """Whether CPU kernels can be used, and neither model nor embedding changes the lookup.

        Finding distinct ids reads one bit per row of the table. That is negligible in a training step, but not in a
        prediction for a few rows, so in evaluation a batch must have more ids than the table has rows.
        """
        embedding = self.embedding
        return (
            isinstance(embedding, RowEmbedding)
            and embedding.embedding_dim >= MIN_WIDTH
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
        """`num_parameters()` plus all parameters outside the embedding."""
        return self.num_parameters() + sum(parameter.numel() for parameter in self.other_parameters())

    def other_parameters(self) -> list[nn.Parameter]:
        """All parameters outside the embedding: first-order weights and the network."""
        inside = set() if self.embedding is None else {id(parameter) for parameter in self.embedding.parameters()}
        return [parameter for parameter in self.parameters() if id(parameter) not in inside]


@dataclass(frozen=True)
class RegisteredModel:
    name: str
    config: type[ModelConfig]
    model: type[CtrModel]


model_registry: Registry[RegisteredModel] = Registry(
    "model", [f"thresher.models.{name}" for name in ("autoint", "deepfm", "fm", "lr")], group="thresher.models"
)
"""All models by name; the functions on it are in `thresher.models.model_registry`."""
