"""The contract every embedding method keeps: feature ids in, vectors out, honest about its size.

Not here: how sizes or masks are searched for (`thresher.search`), nor how tables are stored (`thresher.compact`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from torch import Tensor, nn

from thresher._internal.mapped_tensors import new_zeros
from thresher.errors import ConfigError

if TYPE_CHECKING:
    from thresher.kernels.distinct import DistinctIds

Role = Literal["embeddings", "thresholds", "choices"]
"""What a parameter is for. The optimizer gives each role its own group, rate and decay; all others are `network`."""

BYTES_PER_VALUE = 4  # float32


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """Settings shared by all methods. In TOML: `[embedding]` with `method = "…"` naming the subclass."""

    config_tag: ClassVar[str] = "method"
    budget_setting: ClassVar[str] = "embedding_dim"
    """The one whole number that is lowered when a method that is not searched must meet a budget."""

    embedding_dim: int = 64

    def __post_init__(self) -> None:
        if self.embedding_dim < 1:
            raise ConfigError(f"embedding_dim is {self.embedding_dim}; it must be at least 1")

    def budget_values(self, field_sizes: Sequence[int]) -> Sequence[int]:
        """Values of `budget_setting` to choose from, smallest table first; by default up to the present one."""
        return range(1, self.embedding_dim + 1)

    @classmethod
    def config_variants(cls) -> Mapping[str, type["EmbeddingConfig"]]:
        """The configs one may write under `[embedding]`, by method name."""
        from thresher.embeddings.method_registry import embedding_configs

        return embedding_configs()


class RowGradients:
    """Mixin of modules whose tables can have gradients that name only the rows of a batch, as `RowAdam` wants them."""

    row_gradients: bool = False
    """Set together with the optimizer (`build_optimizer`), which must be one that takes such gradients."""

    def why_not_row_gradients(self) -> str | None:
        """The reason why this module must keep dense gradients; None when it need not."""
        return None


class FieldEmbedding(nn.Module, ABC):
    """Feature ids `[..., F]` → vectors `[..., F, D]`; any leading shape, `F` may be absent.

    Ids are global: field `f`'s feature `i` is row `field_offsets[f] + i` of the one table of `N` rows.
    Row `field_offsets[f]` (local id 0) is the field's *unknown* feature.
    """

    search_algorithm: ClassVar[str] = "immediate"
    """Which algorithm of `thresher.search` turns this method into tickets."""

    def __init__(self, field_sizes: Sequence[int], embedding_dim: int) -> None:
        super().__init__()
        self.field_sizes = tuple(int(size) for size in field_sizes)
        self.embedding_dim = embedding_dim

    @property
    def num_fields(self) -> int:
        return len(self.field_sizes)

    @property
    def num_features(self) -> int:
        return sum(self.field_sizes)

    @abstractmethod
    def forward(self, ids: Tensor) -> Tensor:
        """Look up ids `[...]` (int32 or int64) → vectors `[..., D]`."""

    @abstractmethod
    def num_parameters(self) -> int:
        """Embedding parameters as the method's paper counts them, first-order weights excluded."""

    @abstractmethod
    def storage_bytes(self) -> int:
        """Bytes of everything a lookup needs: values, indices, codes, projections."""

    def parameter_groups(self) -> Mapping[Role, Sequence[nn.Parameter]]:
        """Parameters by role, so that training need not know the method."""
        return {"embeddings": list(self.parameters())}


class RowEmbedding(RowGradients, FieldEmbedding):
    """An embedding whose batch can be had as distinct rows, each looked up and differentiated once."""

    @property
    def prefers_distinct_rows(self) -> bool:
        """Whether a model that can do with distinct rows should ask for them, and not for a vector per place."""
        return self.row_gradients

    @abstractmethod
    def distinct_rows(self, ids: Tensor) -> "tuple[Tensor, DistinctIds]":
        """Ids `[...]` → the batch's distinct rows `[U, D]` and where each stands; rows all 0 may be left out.

        Spread to their places they are what `forward` gives, and they have the gradients `row_gradients` tells.
        """

    @property
    def has_distinct_rows(self) -> bool:
        """Whether `distinct_rows` can be had in place of `forward`: a subclass may have changed the latter alone."""
        first = next(cls for cls in type(self).__mro__ if {"forward", "distinct_rows"} & cls.__dict__.keys())
        return "distinct_rows" in first.__dict__


def new_table(num_features: int, embedding_dim: int) -> nn.Parameter:
    """A fresh table `[N, D]`, Xavier-uniform over the whole table, as the authors' code starts from."""
    return nn.Parameter(nn.init.xavier_uniform_(new_zeros(num_features, embedding_dim)))
