"""RowRecords: what a PEP table knows of its rows: which were seen and are all 0, and the histogram of their scores.

Lookups with row gradients keep the records up to date. Processes that train together exchange them.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from thresher._internal.processes import OwnState
from thresher.embeddings.base import SharedRecords

if TYPE_CHECKING:
    from thresher._internal.processes import Processes
    from thresher.embeddings.thresholds import Granularity, Sigmoid, Softplus
    from thresher.kernels.score_histogram import ScoreHistogram
    from thresher.kernels.threshold_lookup import PrunedRows


class RowRecords(OwnState):
    """Records of the rows of one table `[N, D]`; a mixin of `PepEmbedding`."""

    clock: Tensor
    field_of_feature: Tensor
    granularity: "Granularity"
    threshold_function: "Softplus | Sigmoid"
    padding_id: int | None
    row_gradients: bool
    _pruned_rows: "PrunedRows | None"
    _score_histogram: "ScoreHistogram | None"
    _shared_records: SharedRecords | None = None

    @property
    def raw_weight(self) -> nn.Parameter:
        """The table `[N, D]` before Eq. 8."""
        raise NotImplementedError

    @property
    def thresholds(self) -> nn.Parameter:
        """The learned parameter, of the granularity's shape."""
        raise NotImplementedError

    def score_histogram(self) -> "ScoreHistogram":
        """Histogram of `scores`; after the first call, lookups with row gradients keep it up to date."""
        from thresher.kernels.score_histogram import ScoreHistogram

        known = self._score_histogram
        if known is None or not (known.weight is self.raw_weight and known.deviation is self.thresholds):
            by_feature = self.granularity.rows == "feature"
            all_rows = torch.arange(len(self.raw_weight), device=self.raw_weight.device)
            used = None if by_feature else self.granularity.rows_of(all_rows, self.field_of_feature)
            known = ScoreHistogram(
                self.raw_weight,
                self.thresholds,
                self.seen,
                used,
                function=self.threshold_function.name,
                padding_id=self.padding_id,
                shared=None if self._shared_records is None else self._shared_records.counts,
            )
            self._score_histogram = known
        return known

    def _known_pruned_rows(self) -> "PrunedRows":
        from thresher.kernels.threshold_lookup import PrunedRows

        known = self._pruned_rows
        if known is None or not (known.weight is self.raw_weight and known.deviation is self.thresholds):
            shared = None if self._shared_records is None else self._shared_records.from_clock
            self._pruned_rows = known = PrunedRows(self.raw_weight, self.thresholds, shared)
        return known

    @property
    def recorded_table(self) -> nn.Parameter:
        return self.raw_weight

    def known_pruned(self, ids: Tensor) -> Tensor | None:
        known = self._pruned_rows
        return None if known is None or not self._records_pruned_rows else known.from_clock[ids] < torch.inf

    def expect_updates(self, ids: Tensor, pruned: Tensor) -> None:
        if self._score_histogram is not None:
            self._score_histogram.expect_changes(ids)
        if self._records_pruned_rows and self._shared_records is None:
            self._known_pruned_rows().record(ids, pruned, float(self.clock))

    def unite_records(self, processes: "Processes") -> None:
        if self._records_pruned_rows and self._shared_records is None:
            processes.min_(self._known_pruned_rows().up_to_date().from_clock)

    @property
    def _records_pruned_rows(self) -> bool:
        return self.row_gradients and self.granularity.rows == "feature" and float(self.clock) != -torch.inf

    def unite_seen(self, processes: "Processes") -> None:
        """Mark the rows that any process has seen."""
        own = self.seen.clone()
        processes.unite_(self.seen)
        if self._score_histogram is not None:
            new = self.seen & ~own
            if (shared := self._shared_records) is not None:  # lookups add no row to the histogram
                new = torch.zeros_like(own)
                new[shared.counts.rows] = self.seen[shared.counts.rows]
            rows = new.nonzero().squeeze(1)
            self._score_histogram.expect_changes(rows[:0], rows)

    def forget_row_records(self) -> None:
        """Call this if rows were updated that this process did not look up: they are counted again."""
        self._pruned_rows = self._score_histogram = None

    def share_records(self, shared: SharedRecords | None) -> None:
        self._shared_records = shared
        self.forget_row_records()

    def accept_row_update(self) -> None:
        """An optimizer updated only rows of the last gradients, although it wrote the whole tensors."""
        if self._score_histogram is not None:
            self._score_histogram.accept_row_update()
