"""The interface of embedding methods: feature ids in, vectors out, with parameter counts and storage size."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from torch import Tensor, nn

from thresher._internal.mapped_tensors import new_zeros
from thresher._internal.registry import Registry
from thresher.embeddings.shared_state import SharedState
from thresher.errors import ConfigError

if TYPE_CHECKING:
    from thresher._internal.processes import Processes
    from thresher.kernels.distinct import DistinctIds
    from thresher.kernels.score_histogram import SharedCounts

Role = Literal["embeddings", "thresholds", "choices"]
"""Roles of parameters. The optimizer has a group with its own rate and decay for each; all others are `network`."""
Status = Literal["stable", "experimental"]

BYTES_PER_VALUE = 4  # float32


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """Settings shared by all methods. In TOML: `[embedding]`, where `method = "…"` selects the subclass."""

    config_tag: ClassVar[str] = "method"
    budget_setting: ClassVar[str] = "embedding_dim"
    """The integer setting that is lowered to meet a budget when a method has no search of its own."""

    embedding_dim: int = 64
    """Width of the vectors before pruning, D. A larger table costs training time and memory; what is kept is decided by
    the budgets."""

    def __post_init__(self) -> None:
        if self.embedding_dim < 1:
            raise ConfigError(f"embedding_dim must be at least 1, got {self.embedding_dim}")

    @property
    def can_start_dense(self) -> bool:
        """Whether the method's search can start from the weights of a trained dense model."""
        return False

    @property
    def needs_trained_model(self) -> bool:
        """Whether the method prunes a trained dense model and trains nothing itself."""
        return False

    def budget_values(self, field_sizes: Sequence[int]) -> Sequence[int]:
        """Candidate values of `budget_setting`, smallest table first; by default 1 to the configured one."""
        return range(1, self.embedding_dim + 1)

    @classmethod
    def grid(cls) -> "Sequence[EmbeddingConfig]":
        """The settings a comparison tries for this method, in this order, before it chooses on validation.

        A comparison uses the first ones, so the first three should span the grid. What a budget decides (the width of a
        uniform table, the rows of a hashed one) is not part of it.
        """
        return [cls()]

    @classmethod
    def frontier_points(cls) -> "Sequence[EmbeddingConfig]":
        """Settings that a comparison adds to the frontier whatever the budgets."""
        return []

    @classmethod
    def config_variants(cls) -> Mapping[str, type["EmbeddingConfig"]]:
        """Config classes by method name: the choices for `method` under `[embedding]`."""
        return {name: registered.config for name, registered in embedding_registry.entries().items()}


@dataclass(frozen=True)
class SharedRecords:
    """Records of rows in memory that the processes of a machine share, together with the table."""

    counts: "SharedCounts"
    from_clock: Tensor  # of `PrunedRows`


class RowGradients:
    """Mixin for modules whose tables can have row-sparse gradients (only the rows of a batch), used by `RowAdam`."""

    row_gradients: bool = False  # set by `build_optimizer`, because the optimizer must support such gradients

    def dense_gradients_reason(self) -> str | None:
        """Why this module requires dense gradients; None if it supports row-sparse ones."""
        return None

    @property
    def recorded_table(self) -> nn.Parameter | None:
        """The table of whose rows this module keeps records that follow their updates; None if it keeps none."""
        return None

    def row_tables(self) -> Sequence[nn.Parameter]:
        """Parameters `[N, …]` of which only updates of the rows of a batch write; processes of a machine share them."""
        return []

    def known_pruned(self, ids: Tensor) -> Tensor | None:
        """Which rows `ids` `[U]` are recorded as all 0; None without such records."""
        return None

    def expect_updates(self, ids: Tensor, pruned: Tensor) -> None:
        """Rows `ids` `[U]` are about to be updated, also those that another process looked up."""

    def share_records(self, shared: SharedRecords | None) -> None:
        """From now on, keep the records in memory that other processes share; None: keep them here."""

    def unite_records(self, processes: "Processes") -> None:
        """Share records of rows that processes looked up without training on them."""


class FieldEmbedding(nn.Module, ABC):
    """Feature ids `[..., F]` → vectors `[..., F, D]`; any leading shape, `F` may be absent.

    Ids are global: feature `i` of field `f` is row `field_offsets[f] + i` of one table of `N` rows.
    Row `field_offsets[f]` (local id 0) is the *unknown* feature of the field.
    """

    search_algorithm: ClassVar[str] = "immediate"  # the algorithm in `thresher.search` that finds its tickets

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
        """Parameters by role, from which training builds the optimizer's groups."""
        return {"embeddings": list(self.parameters())}


class RowEmbedding(RowGradients, SharedState, FieldEmbedding):
    """An embedding that can look up and differentiate each distinct row of a batch once."""

    @property
    def prefers_distinct_rows(self) -> bool:
        """Whether models that support distinct rows should call `distinct_rows` instead of `forward`."""
        return self.row_gradients

    @abstractmethod
    def distinct_rows(self, ids: Tensor) -> "tuple[Tensor, DistinctIds]":
        """Ids `[...]` → the distinct rows `[U, D]` of the batch and their positions, which together equal `forward`.

        Rows of zeros may be omitted. Gradients are row-sparse if `row_gradients` is set.
        """

    @property
    def has_distinct_rows(self) -> bool:
        """Whether `distinct_rows` matches `forward`: False if a subclass overrides `forward` alone."""
        first = next(cls for cls in type(self).__mro__ if {"forward", "distinct_rows"} & cls.__dict__.keys())
        return "distinct_rows" in first.__dict__


@dataclass(frozen=True)
class RegisteredEmbedding:
    name: str
    config: type[EmbeddingConfig]
    embedding: type[FieldEmbedding]
    status: Status

    @property
    def registered_class(self) -> type[FieldEmbedding]:
        return self.embedding


_BASELINES = (
    "bilevel",
    "candidate_sizes",
    "frequent",
    "hashing",
    "l1_projection",
    "magnitude",
    "mde",
    "mgqe",
    "nis",
    "post_training",
    "quantized",
)
_MODULES = ["thresher.embeddings.pep", "thresher.embeddings.uniform", *(f"thresher.baselines.{n}" for n in _BASELINES)]
embedding_registry: Registry[RegisteredEmbedding] = Registry("embedding method", _MODULES, group="thresher.embeddings")
"""All methods by name; the functions on it are in `thresher.embeddings.method_registry`."""


def new_table(num_features: int, embedding_dim: int) -> nn.Parameter:
    """A new table `[N, D]`, Xavier-uniform over the whole table as in the authors' code."""
    return nn.Parameter(nn.init.xavier_uniform_(new_zeros(num_features, embedding_dim)))
