"""The trivial rival: a narrow table of the most frequent features, as a larger `min_count` and a smaller width give.

    v_i = V[i]        if i is one of the most frequent features
    v_i = V[u_f]      otherwise, with the unknown feature u_f of its field

Nothing is searched. A method that is worth its search is better than this at equal bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from thresher.baselines.shared_rows import SharedRows, SharedRowsConfig
from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig, new_table
from thresher.embeddings.feature_groups import FeatureRuns
from thresher.embeddings.method_registry import register_embedding
from thresher.embeddings.stored_form import StoredForm, register_stored_form
from thresher.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class FrequentConfig(SharedRowsConfig):
    """`num_buckets` is one row per field for its unknown feature, and the others for the most frequent features."""

    embedding_dim: int = 8
    """Width of the table."""

    @classmethod
    def grid(cls) -> Sequence[Self]:
        return [cls(embedding_dim=width) for width in (4, 8, 16, 2, 32)]


@register_stored_form("FrequentEmbedding")
@register_embedding("frequent", FrequentConfig)
class FrequentEmbedding(SharedRows):
    """Rows of their own for frequent features (group 0 of `runs`); the others have the row of their unknown feature."""

    config_type = FrequentConfig
    config: FrequentConfig
    run_starts: Tensor
    run_groups: Tensor
    run_rows: Tensor
    row_of_feature: Tensor  # int32 [N], computed from the runs

    def __init__(
        self,
        field_sizes: Sequence[int],
        config: FrequentConfig,
        *,
        feature_counts: Sequence[int] | None = None,
        runs: FeatureRuns | None = None,
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        unknown = np.cumsum([0, *field_sizes[:-1]])
        if runs is None:
            if feature_counts is None:
                raise ConfigError("frequent keeps frequent features and needs feature_counts")
            runs = FeatureRuns.of(_groups(np.asarray(feature_counts), unknown, config.num_buckets), 2)
        groups = np.repeat(runs.groups, np.diff(np.r_[runs.starts, self.num_features]))
        if groups[unknown].any():
            raise ValueError("the unknown feature of a field has no row")
        rows = np.cumsum(groups == 0) - 1
        rows = np.where(groups == 0, rows, np.repeat(rows[unknown], field_sizes))
        self.group_sizes = runs.group_sizes
        for part in ("starts", "groups", "rows"):
            self.register_buffer(f"run_{part}", torch.from_numpy(getattr(runs, part)))
        self.register_buffer("row_of_feature", torch.from_numpy(rows.astype(np.int32)), persistent=False)
        self.weight = new_table(runs.group_sizes[0], config.embedding_dim)

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(self.row_of_feature[ids.long()], self.weight)  # [..., D]

    def storage_bytes(self) -> int:
        runs = (self.run_starts, self.run_groups, self.run_rows)
        return self.weight.numel() * BYTES_PER_VALUE + sum(tensor.nbytes for tensor in runs)

    def _metadata(self) -> dict[str, Any]:
        return {"group_sizes": self.group_sizes}

    @classmethod
    def _from_form(cls, field_sizes: Sequence[int], config: EmbeddingConfig, form: StoredForm) -> Self:
        assert isinstance(config, FrequentConfig)
        return cls(field_sizes, config, runs=FeatureRuns.from_stored(form, 2, sum(field_sizes)))


def min_count_of(config: FrequentConfig, feature_counts: NDArray[np.int64], field_sizes: Sequence[int]) -> int:
    """The `min_count` that these rows amount to: the count of the rarest feature with a row of its own."""
    unknown = np.cumsum([0, *field_sizes[:-1]])
    known = _groups(feature_counts, unknown, config.num_buckets) == 0
    known[unknown] = False
    return int(feature_counts[known].min()) if known.any() else int(feature_counts.max()) + 1


def _groups(counts: NDArray[Any], unknown: NDArray[Any], num_rows: int) -> NDArray[np.int64]:
    """0 for features with a row of their own, 1 for the others, `[N]`."""
    order = np.argsort(-counts, kind="stable")
    order = np.concatenate((unknown, order[~np.isin(order, unknown)]))
    groups = np.ones(len(counts), np.int64)
    groups[order[: min(num_rows, len(counts))]] = 0
    return groups
