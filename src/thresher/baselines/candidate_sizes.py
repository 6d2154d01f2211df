"""DartsEmb (AutoEmb) and AutoDim: a differentiable choice among candidate sizes for each group of features.

    v_i = Σ_c p_gc · V[i, :d_c] · P_c,   p_g = softmax(size_logits_g),   P_c: d_c × D   (none where d_c = D)

Candidates share the columns of one table: a narrower one is the beginning of a wider one. Weights learn on training
batches, `size_logits` on validation batches (`thresher.baselines.bilevel`), by the first-order approximation of DARTS
(Liu et al., 2019). Then each group keeps its most likely size within the budget, and the model is retrained.

- `darts-emb`: groups are popularity blocks inside each field. Zhao et al., "AutoEmb: automated embedding dimensionality
  search in streaming recommendations" (2020). Not streaming here: groups are made once, from the training split.
- `autodim`: groups are fields, and `p` is drawn with Gumbel noise. Zhao et al., "Memory-efficient embedding for
  recommendations" (2020).

Unlike the authors we do not normalise the candidates' vectors: their lengths show which of them carries the signal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding, Role, new_table
from thresher.embeddings.feature_groups import (
    FeatureRuns,
    Integers,
    MixedDimensionEmbedding,
    field_groups,
    field_popularity_groups,
)
from thresher.embeddings.method_registry import register_embedding
from thresher.errors import ConfigError

MIN_TEMPERATURE = 0.01
GRID_SIZES = ((2, 4, 16), (1, 2, 8), (4, 8, 32))
"""The PEP paper's candidate sizes for DartsEmb."""


@dataclass(frozen=True, kw_only=True)
class CandidateSizesConfig(EmbeddingConfig):
    """The sizes to choose from. The PEP paper's: {1, 2, 8}, {2, 4, 16} and {4, 8, 32}."""

    embedding_dim: int = 8
    """Width to which all candidates are projected; a candidate of this width needs no projection."""
    candidate_sizes: tuple[int, ...] = (1, 2, 8)
    """Widths to choose from, ascending."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_candidate_sizes(self.candidate_sizes, self.embedding_dim)

    @classmethod
    def grid(cls) -> Sequence[Self]:
        return [cls(candidate_sizes=sizes, embedding_dim=sizes[-1]) for sizes in GRID_SIZES]


class CandidateSizesEmbedding(FieldEmbedding):
    """Ids `[...]` → the weighted sum of all candidates `[..., D]`; `group_of_feature` `[N]` is 0 … G − 1."""

    search_algorithm = "bilevel"
    derives: ClassVar[str] = "sizes"
    group_of_feature: Tensor

    def __init__(self, field_sizes: Sequence[int], config: CandidateSizesConfig, group_of_feature: Integers) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        num_groups = int(group_of_feature.max()) + 1
        self.runs = FeatureRuns.of(group_of_feature, num_groups)
        self.register_buffer("group_of_feature", torch.from_numpy(group_of_feature.astype("int64")), persistent=False)
        self.weight = new_table(self.num_features, config.candidate_sizes[-1])
        narrow = [size for size in config.candidate_sizes if size < self.embedding_dim]
        self.projections = nn.ParameterDict({f"size_{size}": new_table(size, self.embedding_dim) for size in narrow})
        self.size_logits = nn.Parameter(torch.zeros(num_groups, len(config.candidate_sizes)))  # [G, C]

    def forward(self, ids: Tensor) -> Tensor:
        distinct, places = torch.unique(ids, return_inverse=True)  # [U], [...]
        shares = functional.embedding(self.group_of_feature[distinct.long()], self.shares())  # [U, C]
        rows = functional.embedding(distinct, self.weight)  # [U, largest size]
        candidates = [self._project(rows[:, :size], size) for size in self.config.candidate_sizes]
        vectors = torch.stack(candidates, dim=1)  # [U, C, D]
        return functional.embedding(places, (shares[..., None] * vectors).sum(1))  # [..., D]

    def shares(self) -> Tensor:
        """The probability of each candidate, `[G, C]`."""
        return torch.softmax(self.size_logits, dim=1)

    def _project(self, rows: Tensor, size: int) -> Tensor:
        name = f"size_{size}"
        return rows @ self.projections[name] if name in self.projections else rows

    def chosen_sizes(self) -> tuple[int, ...]:
        """The most likely candidate of each group."""
        return tuple(self.config.candidate_sizes[choice] for choice in self.size_logits.argmax(1).tolist())

    @torch.no_grad()
    def fixed(self, sizes: Sequence[int]) -> MixedDimensionEmbedding:
        """An embedding with one size per group, holding this table's present values."""
        fixed = self._mixed_dimension(sizes)
        for group, table in fixed.tables.items():
            rows = self.weight[self.group_of_feature == int(group)]  # in the order of ids, as the runs number them
            table.copy_(rows[:, : table.shape[1]])
        for name, projection in fixed.projections.items():
            projection.copy_(self.projections[name])
        return fixed

    def num_parameters(self) -> int:
        """Of the sizes that are most likely now, as they would be retrained."""
        return self._chosen().num_parameters()

    def storage_bytes(self) -> int:
        return self._chosen().storage_bytes()

    def _chosen(self) -> MixedDimensionEmbedding:
        """An embedding of the most likely sizes, without memory."""
        with torch.device("meta"):
            return self._mixed_dimension(self.chosen_sizes())

    def _mixed_dimension(self, sizes: Sequence[int]) -> MixedDimensionEmbedding:
        return MixedDimensionEmbedding(self.field_sizes, self.embedding_dim, self.runs, sizes, share_projections=True)

    def parameter_groups(self) -> Mapping[Role, Sequence[nn.Parameter]]:
        return {"embeddings": [self.weight, *self.projections.values()], "choices": [self.size_logits]}


@dataclass(frozen=True, kw_only=True)
class DartsEmbConfig(CandidateSizesConfig):
    """Settings of DartsEmb."""

    groups_per_field: int = 4
    """Popularity blocks of each field, of about equal total count; each chooses a width."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups_per_field < 1:
            raise ConfigError(f"groups_per_field is {self.groups_per_field}; it must be at least 1")


@register_embedding("darts-emb", DartsEmbConfig)
class DartsEmbedding(CandidateSizesEmbedding):
    """One choice for each popularity block of each field."""

    def __init__(
        self, field_sizes: Sequence[int], config: DartsEmbConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        if feature_counts is None:
            raise ConfigError("DartsEmb groups features by popularity and needs feature_counts")
        groups = field_popularity_groups(field_sizes, feature_counts, config.groups_per_field)
        super().__init__(field_sizes, config, groups)


@dataclass(frozen=True, kw_only=True)
class AutoDimConfig(CandidateSizesConfig):
    """Settings of AutoDim."""

    temperature_decay: float = 5e-5
    """Decay of the temperature of the choice, per lookup in training; it begins at 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.temperature_decay <= 1:
            raise ConfigError(f"temperature_decay is {self.temperature_decay}; it must lie between 0 and 1")


@register_embedding("autodim", AutoDimConfig)
class AutoDimEmbedding(CandidateSizesEmbedding):
    """One choice for each field: `p = softmax((log softmax(size_logits) + Gumbel noise) / temperature)` in training."""

    config: AutoDimConfig
    num_draws: Tensor

    def __init__(
        self, field_sizes: Sequence[int], config: AutoDimConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config, field_groups(field_sizes))
        self.register_buffer("num_draws", torch.zeros((), dtype=torch.int64))

    def shares(self) -> Tensor:
        if not self.training:
            return super().shares()
        temperature = max(MIN_TEMPERATURE, 1 - self.config.temperature_decay * int(self.num_draws))
        self.num_draws += 1
        noise = -torch.log(-torch.log(torch.rand_like(self.size_logits).clamp(1e-9, 1 - 1e-7)))
        return torch.softmax((torch.log_softmax(self.size_logits, dim=1) + noise) / temperature, dim=1)


def check_candidate_sizes(sizes: Sequence[int], embedding_dim: int) -> None:
    if not sizes or list(sizes) != sorted(set(sizes)) or sizes[0] < 1 or sizes[-1] > embedding_dim:
        raise ConfigError(f"candidate_sizes are {list(sizes)}; expected ascending, 1 to embedding_dim {embedding_dim}")
