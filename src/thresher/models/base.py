"""The interface of CTR models: feature ids and dense inputs in, one logit per row out.

A model gets its embedding from outside and does not depend on the embedding's method. It may read the vectors of a
batch as `DistinctVectors`, so that projections multiply each of them once: 1,024 rows of MovieLens-1M have 7,168 ids
but about 1,200 distinct features. Results are equal up to rounding. Modified layers get one vector per id, as usual.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import torch
from torch import Tensor, nn

from thresher._internal.registry import Registry
from thresher.data.schema import Pooling
from thresher.data.table import Bag
from thresher.embeddings.base import FieldEmbedding, RowEmbedding
from thresher.kernels.compiling import runs_on_kernels
from thresher.kernels.distinct import DistinctIds, find_distinct
from thresher.kernels.interactions import join_rows
from thresher.kernels.rows import expand_rows

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
    """Vectors `[total, D]` of ragged rows → one vector per row `[B, D]`; a row without values gets zeros.

    Exports have padded rows instead: vectors `[B, M, D]`, and for `offsets` a mask `[B, M]` of 1 and 0.
    """
    if vectors.ndim == 3:
        summed = (vectors * offsets.unsqueeze(-1)).sum(1)  # [B, D]
        return summed if pooling == "sum" else summed / offsets.sum(1, keepdim=True).clamp(min=1)
    lengths = offsets.diff()  # [B]
    rows = torch.repeat_interleave(lengths)  # [total]
    pooled = vectors.new_zeros(lengths.numel(), vectors.shape[-1]).index_add(0, rows, vectors)  # [B, D]
    return pooled if pooling == "sum" else pooled / lengths.clamp(min=1).to(pooled.dtype).unsqueeze(1)


def embed_fields(lookup: Callable[[Tensor], Tensor], ids: Tensor, bags: Sequence[Bag] = ()) -> Tensor:
    """Look up single-valued fields `[B, F − number of bags]` and bags → vectors `[B, F, D]` in the order of the fields.

    `lookup` maps ids `[...]` to vectors `[..., D]`.
    """
    vectors: Tensor = lookup(ids)  # [B, F', D]
    if not bags:
        return vectors
    pooled = {bag.field: pool(lookup(bag.values), bag.offsets, bag.pooling) for bag in bags}  # field: [B, D]
    single = iter(vectors.unbind(1))
    num_fields = vectors.shape[1] + len(bags)
    return torch.stack([pooled[field] if field in pooled else next(single) for field in range(num_fields)], dim=1)


@dataclass(frozen=True, eq=False)
class DistinctVectors:
    """Vectors `[B, F, D]` as distinct rows and their positions."""

    rows: Tensor  # [U, D], ordered by id
    distinct: DistinctIds  # the ids and their positions [B, F]; an omitted id has a vector of zeros
    field_sizes: Sequence[int]

    def expand(self) -> Tensor:
        return expand_rows(self.rows, self.distinct)  # [B, F, D]

    def project(self, layer: nn.Linear) -> Tensor:
        """Apply a layer to every vector, `[B, F, A]`."""
        if not (is_unmodified(layer, nn.Linear) and layer.bias is None):  # omitted vectors would miss the bias
            projected: Tensor = layer(self.expand())
            return projected
        return expand_rows(layer(self.rows), self.distinct)

    def project_concatenated(self, weight: Tensor) -> Tensor | None:
        """`W · (v_1, …, v_F)` for the concatenated vectors of a row, as `Σ_f W_f v_f`: `W` `[H, F·D]` → `[B, H]`.

        None if a column contains ids of another field, which encoded rows never do.
        """
        first_ids = torch.tensor(list(accumulate(self.field_sizes, initial=0)))
        bounds = torch.searchsorted(self.distinct.ids, first_ids)  # first row of each field, end of the last: [F + 1]
        places = self.distinct.places
        inside = (places >= bounds[:-1]) & (places < bounds[1:]) | (places == self.distinct.num_ids)
        if not bool(inside.all()):
            return None
        by_field = torch.split(self.rows, bounds.diff().tolist())  # F times [U_f, D]
        weights = weight.view(len(weight), len(by_field), -1).unbind(1)  # F times [H, D]
        products = [rows @ field_weight.T for rows, field_weight in zip(by_field, weights, strict=True)]
        return join_rows(torch.cat(products), self.distinct)


def takes_distinct(block: nn.Module | None) -> bool:
    """Whether a block has no hooks and its class, not a base of it, sets `reads_distinct_vectors`."""
    if block is None:
        return True
    if is_unmodified(block, nn.Sequential):
        first = next(block.children(), None)
        return first is not None and takes_distinct(first)
    return "reads_distinct_vectors" in vars(type(block)) and not has_hooks(block)


def is_unmodified(module: nn.Module, expected: type[nn.Module]) -> bool:
    """Whether a module is exactly of this class, without hooks; pruning and parametrizations change one of them."""
    return type(module) is expected and not has_hooks(module)


def has_hooks(module: nn.Module) -> bool:
    return any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks))


class CtrModel(nn.Module, ABC):
    """Ids `[B, F]`, dense inputs `[B, K]` and multi-valued fields → logits `[B]`.

    A model is built as `cls(embedding, config, num_dense=K)`. It uses only `field_sizes`, `embedding_dim` and the
    lookup of the embedding, so every method works with every model.
    """

    uses_embedding: ClassVar[bool] = True  # False for a model without vectors, such as logistic regression

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
        """Whether CPU kernels can be used, and neither model nor embedding changes the lookup."""
        embedding = self.embedding
        return (
            isinstance(embedding, RowEmbedding)
            and embedding.embedding_dim >= MIN_WIDTH
            # finding distinct ids reads one bit per row of the table, which is slow for a prediction of a few rows
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
        inside = set() if self.embedding is None else set(self.embedding.parameters())
        return [parameter for parameter in self.parameters() if parameter not in inside]


@dataclass(frozen=True)
class RegisteredModel:
    name: str
    config: type[ModelConfig]
    model: type[CtrModel]

    @property
    def registered_class(self) -> type[CtrModel]:
        return self.model


model_registry: Registry[RegisteredModel] = Registry(
    "model", [f"thresher.models.{name}" for name in ("autoint", "fm")], group="thresher.models"
)
"""All models by name; the functions on it are in `thresher.models.model_registry`."""
