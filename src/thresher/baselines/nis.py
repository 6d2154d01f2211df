"""NIS: a controller, taught by reward, chooses for each field how many features get a vector, and how wide.

    v_i = active[group of i] ⊙ V[i],   groups are popularity blocks inside fields, active ∈ {0, 1}

A field's features in order of popularity and its dimensions make a grid of blocks. `single`: one rectangle of it, so
many features by so many dimensions. `multiple`: for each slice of dimensions its own number of features, so that
popular features get wide vectors and others narrow ones. Joglekar et al., "Neural input search for large scale
recommendation models" (2019). Features left out are zeros and narrow ones are padded with zeros; the authors project.

Not here: the controller (`thresher.baselines.nis_controller`); this is the table it tries its choices on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher.baselines.candidate_sizes import check_candidate_sizes
from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig, FieldEmbedding, Role, new_table
from thresher.embeddings.feature_groups import FeatureRuns, field_popularity_groups
from thresher.embeddings.method_registry import register_embedding
from thresher.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class NisConfig(EmbeddingConfig):
    """The grid, and how choices are rewarded.

    Attributes:
        mode: `single` size per field, or `multiple`.
        candidate_sizes: widths to choose among, ascending.
        num_blocks: popularity blocks of about equal total count in each field.
        num_samples: choices compared on each validation batch; the reward of each is measured against the others'.
        cost_weight: logloss that twice the budget is made to cost.
    """

    embedding_dim: int = 8
    mode: Literal["single", "multiple"] = "single"
    candidate_sizes: tuple[int, ...] = (2, 4, 8)
    num_blocks: int = 4
    num_samples: int = 4
    cost_weight: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_candidate_sizes(self.candidate_sizes, self.embedding_dim)
        if self.num_blocks < 1 or self.num_samples < 2 or self.cost_weight < 0:
            raise ConfigError("num_blocks must be at least 1, num_samples at least 2, and cost_weight 0 or more")


@register_embedding("nis", NisConfig, status="experimental")
class NisEmbedding(FieldEmbedding):
    """Ids `[...]` → rows of which only active dimensions are left `[..., D]`."""

    search_algorithm = "controller"
    active: Tensor  # bool [G, D], set by the controller
    group_of_feature: Tensor

    def __init__(
        self, field_sizes: Sequence[int], config: NisConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        if feature_counts is None:
            raise ConfigError("NIS orders features by popularity and needs feature_counts")
        groups = field_popularity_groups(field_sizes, feature_counts, config.num_blocks)
        self.group_sizes = FeatureRuns.of(groups, int(groups.max()) + 1).group_sizes
        # groups are numbered field by field, popular ones first
        first = [int(groups[start : start + size].min()) for start, size in _slices(field_sizes)]
        self.groups_of_field = [range(a, b) for a, b in zip(first, [*first[1:], len(self.group_sizes)], strict=True)]
        self.register_buffer("group_of_feature", torch.from_numpy(groups), persistent=False)
        self.weight = new_table(self.num_features, self.embedding_dim)
        self.register_buffer("active", torch.ones(len(self.group_sizes), self.embedding_dim, dtype=torch.bool))

    def forward(self, ids: Tensor) -> Tensor:
        active = self.active[self.group_of_feature[ids.long()]]
        return functional.embedding(ids, self.weight) * active  # [..., D]

    def mask(self) -> Tensor:
        """The active entries, `[N, D]`."""
        return self.active[self.group_of_feature]

    def num_parameters(self) -> int:
        sizes = self.active.sum(1).tolist()
        return sum(count * size for count, size in zip(self.group_sizes, sizes, strict=True))

    def storage_bytes(self) -> int:
        """The search holds the whole table, a bit per block of the grid, and the group of each feature (4 bytes)."""
        return (self.weight.numel() + self.num_features) * BYTES_PER_VALUE + -(-self.active.numel() // 8)

    def parameter_groups(self) -> Mapping[Role, Sequence[nn.Parameter]]:
        return {"embeddings": [self.weight]}


def _slices(field_sizes: Sequence[int]) -> list[tuple[int, int]]:
    starts = [sum(field_sizes[:field]) for field in range(len(field_sizes))]
    return list(zip(starts, field_sizes, strict=True))
