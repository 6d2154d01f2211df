"""PEP during the search: a table whose entries are soft-thresholded after lookup (Eq. 8).

With `pressure = "plan"` the threshold is `g(clock + deviation)`: `deviation` is learned, and `clock` is one number that
the search sets so that the number of kept entries follows its plan. With `pressure = "decay"`, as published, the
threshold is `g(raw_threshold)`, and weight decay on `raw_threshold` raises it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher._internal.mapped_tensors import CHUNK_ENTRIES, new_zeros
from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig, Role, RowEmbedding, new_table
from thresher.embeddings.method_registry import register_embedding
from thresher.embeddings.row_records import RowRecords
from thresher.embeddings.thresholds import (
    GRANULARITIES,
    THRESHOLD_FUNCTIONS,
    GranularityName,
    ThresholdFunctionName,
    field_of_feature,
    keep_mask,
    soft_threshold,
)
from thresher.errors import ConfigError

if TYPE_CHECKING:
    from thresher.kernels.distinct import DistinctIds

Pressure = Literal["plan", "decay"]


@dataclass(frozen=True, kw_only=True)
class PepConfig(EmbeddingConfig):
    """Settings of the thresholds and of how the search raises them.

    Granularity `global` with `plan` is magnitude pruning with a soft threshold: the deviation and the clock cancel.
    The paper neither prunes nor counts first-order weights; at extreme budgets they are larger than everything else.
    """

    pressure: Pressure = "plan"
    """How thresholds rise: `plan` meets budgets exactly and on schedule; `decay` is the published search."""
    granularity: GranularityName = "feature-dimension"
    """Which entries share a threshold. Coarser ones need less memory in the search."""
    threshold_function: ThresholdFunctionName | None = None
    """`g`, which maps a parameter to a threshold of 0 or more. Absent: softplus (`plan`), sigmoid as published
    (`decay`)."""
    learn_deviation: bool = True
    """Whether thresholds deviate from the clock by learned amounts (`plan`). False fixes the deviation at 0, for
    ablations."""
    first_order: bool = False
    """Also prune the model's first-order weights, and count them in the budgets. For budgets so small that these
    weights would be most of the model."""
    raw_threshold_init: float = -15.0
    """The paper's `s_init` (`decay`): −15 on MovieLens-1M, −150 on Criteo and Avazu."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pressure == "decay" and not self.learn_deviation:
            raise ConfigError('learn_deviation = false requires pressure = "plan", got "decay"')

    @property
    def can_start_dense(self) -> bool:
        return self.pressure == "plan"

    @classmethod
    def grid(cls) -> Sequence[Self]:
        return [cls(embedding_dim=width) for width in (128, 64, 32)]


@register_embedding("pep", PepConfig)
class PepEmbedding(RowRecords, RowEmbedding):
    """Ids `[...]` → `sign(v) · relu(|v| − threshold)` `[..., D]`.

    Args:
        weight: the table to prune, `[N, D]`; by default a new one.
        thresholds: a deviation (or raw threshold) shared with other tables; by default a new one.
        padding_id: a row that is not a feature: it is not counted in `N·D` and never kept.
    """

    search_algorithm = "threshold"
    weight: Tensor

    def __init__(
        self,
        field_sizes: Sequence[int],
        config: PepConfig,
        *,
        feature_counts: Sequence[int] | None = None,
        weight: nn.Parameter | None = None,
        thresholds: nn.Parameter | None = None,
        padding_id: int | None = None,
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        self.padding_id = padding_id
        self.granularity = GRANULARITIES[config.granularity]
        default: ThresholdFunctionName = "softplus" if config.pressure == "plan" else "sigmoid"
        self.threshold_function = THRESHOLD_FUNCTIONS[config.threshold_function or default]
        self.weight = new_table(self.num_features, self.embedding_dim) if weight is None else weight

        if thresholds is None:
            shape = self.granularity.shape(self.field_sizes, self.embedding_dim)
            thresholds = nn.Parameter(new_zeros(*shape), requires_grad=config.learn_deviation)
            if config.pressure == "decay":
                nn.init.constant_(thresholds, config.raw_threshold_init)
        if config.pressure == "plan":
            self.deviation = thresholds
        else:
            self.raw_threshold = thresholds
        # clock = −∞ makes the threshold exactly 0: nothing is pruned until the search sets the clock
        self.register_buffer("clock", torch.tensor(-torch.inf if config.pressure == "plan" else 0.0))
        self.seen = torch.zeros(self.num_features, dtype=torch.bool)  # of this process (OwnState)
        self.register_buffer("field_of_feature", field_of_feature(self.field_sizes), persistent=False)
        self.clock: Tensor
        self.field_of_feature: Tensor
        self._pruned_rows = self._score_histogram = None

    @property
    def thresholds(self) -> nn.Parameter:
        """The learned parameter, of the granularity's shape: `deviation` or `raw_threshold`."""
        return self.deviation if self.config.pressure == "plan" else self.raw_threshold

    @property
    def raw_weight(self) -> nn.Parameter:
        """The table `[N, D]` before Eq. 8."""
        return cast(nn.Parameter, self.weight)

    def dense_gradients_reason(self) -> str | None:
        decays = self.config.pressure == "decay"
        return 'pressure = "decay" applies weight decay to every threshold at every step' if decays else None

    def forward(self, ids: Tensor) -> Tensor:
        if ids.device.type != "cpu" and not self.row_gradients:  # finding distinct ids would wait for the device
            if self.training:
                self.seen[ids.long().flatten()] = True
            return self._pruned_rows_of(ids)
        rows, distinct = self.distinct_rows(ids)
        if self.row_gradients:
            from thresher.kernels.rows import expand_rows

            return expand_rows(rows, distinct)  # [..., D]
        return functional.embedding(distinct.places, rows)  # [..., D]

    def _pruned_rows_of(self, ids: Tensor) -> Tensor:
        """Eq. 8 for ids `[...]` → `[..., D]` in plain torch."""
        values = functional.embedding(ids, self.raw_weight)
        raw = functional.embedding(self.granularity.rows_of(ids, self.field_of_feature), self.thresholds)
        return soft_threshold(values, self.threshold_function(self.clock + raw))

    def distinct_rows(self, ids: Tensor) -> "tuple[Tensor, DistinctIds]":
        """The distinct rows of a batch after Eq. 8, `[U, D]`; rows known to be all 0 are omitted."""
        from thresher.kernels.distinct import find_distinct, mark_

        distinct = find_distinct(ids, self.num_features)
        if self.row_gradients:
            return self._rows_by_kernel(distinct)
        if self.training:
            mark_(self.seen, distinct.ids)
        return self._pruned_rows_of(distinct.ids), distinct

    def _rows_by_kernel(self, distinct: "DistinctIds", *, omit_pruned: bool = True) -> "tuple[Tensor, DistinctIds]":
        """The distinct rows after Eq. 8, `[U, D]`, with row-sparse gradients."""
        from thresher.kernels.distinct import mark_
        from thresher.kernels.rows import lookup_rows
        from thresher.kernels.threshold_lookup import threshold_lookup

        if self.training:
            mark_(self.seen, distinct.ids)
        clock, by_feature = float(self.clock), self.granularity.rows == "feature"
        if clock == -torch.inf:
            rows, live = lookup_rows(self.raw_weight, distinct), distinct
        else:
            rows, live = threshold_lookup(
                self.raw_weight,
                self.thresholds,
                clock,
                distinct,
                None if by_feature else self.granularity.rows_of(distinct.ids, self.field_of_feature),
                function=self.threshold_function.name,
                pruned_rows=self._known_pruned_rows() if by_feature and omit_pruned else None,
            )
        if self.training and self._score_histogram is not None and self._shared_records is None:
            self._score_histogram.expect_changes(live.ids, distinct.ids)
        return rows, live

    def threshold(self, start: int = 0, stop: int | None = None) -> Tensor:
        """`g(clock + deviation)` or `g(raw_threshold)`, broadcastable to `[N, D]` or to rows `start … stop − 1`."""
        return self.threshold_function(self.clock + self._raw_thresholds(slice(start, stop)))

    def _raw_thresholds(self, rows: slice | Tensor) -> Tensor:
        """The learned parameter, broadcastable to these rows of the table."""
        return self.granularity.expand(self.thresholds, self.field_of_feature[rows], rows)

    @torch.no_grad()
    def threshold_range(self) -> tuple[float, float]:
        # g is increasing, so they belong to the smallest and the largest deviation
        low, high = self.thresholds.aminmax()
        return float(self.threshold_function(self.clock + low)), float(self.threshold_function(self.clock + high))

    def pruned_weight(self) -> Tensor:
        """The whole table after Eq. 8, `[N, D]`."""
        return soft_threshold(self.raw_weight, self.threshold())

    @torch.no_grad()
    def kept_values(self, mask: Tensor) -> Tensor:
        """The entries of `mask` `[N, D]` after Eq. 8, `[K]` in row-major order: the values the model computes with."""
        kept_rows = mask.any(1).nonzero().squeeze(1)
        pruned = (
            soft_threshold(self.raw_weight[rows], self.threshold_function(self.clock + self._raw_thresholds(rows)))[
                mask[rows]
            ]
            for rows in torch.split(kept_rows, max(1, CHUNK_ENTRIES // self.embedding_dim))
        )
        return torch.cat(list(pruned))

    @torch.no_grad()
    def scores(self, start: int = 0, stop: int | None = None) -> Tensor:
        """`g⁻¹(|V|) − deviation` of rows `start … stop − 1`: an entry is kept while its score is above the clock.

        −∞ for entries that are exactly 0, for rows never looked up in training, and for the padding row.
        """
        scores = self.scores_of(slice(start, stop))
        if self.padding_id is not None and 0 <= self.padding_id - start < len(scores):
            scores[self.padding_id - start] = -torch.inf
        return scores

    @torch.no_grad()
    def scores_of(self, rows: slice | Tensor) -> Tensor:
        """The scores of chosen rows, which must not include the padding row."""
        scores = self.threshold_function.inverse(self.raw_weight[rows].abs()) - self._raw_thresholds(rows)
        scores[~self.seen[rows]] = -torch.inf
        return scores

    def num_entries(self) -> int:
        """`N·D` without the padding row; budgets are shares of it."""
        return (self.num_features - (self.padding_id is not None)) * self.embedding_dim

    @torch.no_grad()
    def num_parameters(self) -> int:
        # counted in chunks of rows: the table may be larger than the memory
        step = max(1, CHUNK_ENTRIES // self.embedding_dim)
        chunks = ((at, at + step) for at in range(0, self.num_features, step))
        return sum(int(keep_mask(self.raw_weight[slice(*rows)], self.threshold(*rows)).sum()) for rows in chunks)

    def storage_bytes(self) -> int:
        """Bytes of the whole table and its thresholds, which the search needs; compact tables are smaller."""
        return (self.raw_weight.numel() + self.thresholds.numel()) * BYTES_PER_VALUE

    def row_tables(self) -> Sequence[nn.Parameter]:
        by_feature = self.granularity.rows == "feature" and self.thresholds.requires_grad
        return [self.raw_weight, self.thresholds] if by_feature else [self.raw_weight]

    def parameter_groups(self) -> Mapping[Role, Sequence[nn.Parameter]]:
        return {"embeddings": [self.raw_weight], "thresholds": [self.thresholds]}
