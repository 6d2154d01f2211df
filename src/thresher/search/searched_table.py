"""The tables of a threshold search: each with every module that looks it up."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from thresher._internal.mapped_tensors import new_zeros
from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.errors import AttachError, ConfigError
from thresher.kernels.score_histogram import BINS_PER_UNIT, LOWEST, ScoreHistogram, clock_from_counts, sum_of_counts
from thresher.kernels.top_scores import ScoredTable, ScoresInMemory, rows_above

IN_MEMORY_ENTRIES = 1 << 22
"""Tables up to this size are scored at once; larger ones a few rows at a time, at each use of their scores."""
MARGIN_BINS = 3
"""Bins of a histogram between the bound of `rows_with_top_scores` and the lowest score that is kept."""


@dataclass(frozen=True)
class SearchedTable:
    """A table of a threshold search with every module that looks it up: a table may be shared or tied."""

    holders: tuple[PepEmbedding, ...]

    @property
    def config(self) -> PepConfig:
        return self.holders[0].config

    @property
    def shape(self) -> tuple[int, int]:
        num_rows, width = self.holders[0].raw_weight.shape
        return num_rows, width

    @property
    def padding_id(self) -> int | None:
        return self.holders[0].padding_id

    @property
    def row_gradients(self) -> bool:
        return all(holder.row_gradients for holder in self.holders)

    def merge_seen(self) -> None:
        """A row is seen if any holder looked it up."""
        first, *others = self.holders
        for other in others:
            first.seen |= other.seen

    def score_histogram(self) -> ScoreHistogram:
        """Histogram of its present scores; after row updates it is brought up to date, else all rows are counted."""
        self.merge_seen()
        histogram = self.holders[0].score_histogram()
        if not self.row_gradients:
            histogram.count_all_next()
        return histogram

    def scores(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Scores `[N, D]`, or of some rows."""
        if start == 0:
            self.merge_seen()
        return self.holders[0].scores(start, stop)

    def rows_above(self, bound: float) -> tuple[Tensor, int] | None:
        """Rows with scores above a bound, and the number of these scores, as `rows_above` of the kernels."""
        histogram = self.score_histogram()
        counted = torch.from_numpy(histogram.counted_rows())
        return rows_above(
            histogram.weight,
            histogram.deviation,
            counted,
            bound,
            histogram.deviation_rows,
            function=histogram.function,
        )

    def scored(self) -> ScoredTable:
        """Its present scores, for repeated use."""
        return ScoresInMemory(self.scores(), self.padding_id) if math.prod(self.shape) <= IN_MEMORY_ENTRIES else self


@dataclass(frozen=True)
class ChosenRows:
    """Exact scores `[U, D]` of some rows of a table `[N, D]`, for a cut that keeps nothing in the others."""

    rows: Tensor  # int64 [U], ascending
    all_scores: Tensor  # [U, D]
    num_rows: int
    padding_id: None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.all_scores.shape[0], self.all_scores.shape[1]

    def scores(self, start: int, stop: int) -> Tensor:
        return self.all_scores[start:stop]

    def whole_mask(self, mask: Tensor) -> Tensor:
        """The mask `[N, D]` of a mask of these rows."""
        whole = new_zeros(self.num_rows, mask.shape[1], dtype=torch.bool)
        return whole.index_copy_(0, self.rows, mask)


def rows_with_top_scores(tables: Mapping[str, SearchedTable], num_kept: int) -> dict[str, ChosenRows] | None:
    """The rows that hold the `num_kept` highest scores of all tables; None if they cannot be found this way.

    Histograms give a bound below these scores; a pass over the tables checks that enough scores are above it.
    """
    counts = sum_of_counts([table.score_histogram() for table in tables.values()])
    bound = clock_from_counts(counts, num_kept) - MARGIN_BINS / BINS_PER_UNIT
    found = {name: table.rows_above(bound) for name, table in tables.items()} if bound > LOWEST else {}
    rows = {name: result for name, result in found.items() if result is not None}
    few = sum(len(ids) * tables[name].shape[1] for name, (ids, _) in rows.items())
    all_entries = sum(math.prod(table.shape) for table in tables.values())
    if len(rows) < len(tables) or sum(above for _, above in rows.values()) < num_kept or few > all_entries // 4:
        return None
    return {
        name: ChosenRows(ids, tables[name].holders[0].scores_of(ids), tables[name].shape[0])
        for name, (ids, _) in rows.items()
    }


def searched_tables(model: nn.Module) -> dict[str, SearchedTable]:
    """The PEP tables of `model`, each once, under its first name."""
    holders: dict[nn.Parameter, dict[str, PepEmbedding]] = {}
    for name, module in model.named_modules():
        if isinstance(module, PepEmbedding):
            holders.setdefault(module.raw_weight, {})[name] = module
    if not holders:
        if any(type(module).__name__.startswith("ShardedEmbedding") for module in model.modules()):
            raise AttachError(
                "the model has no PEP table to search: TorchRec shards its tables. Use ShardedSearcher of "
                "thresher.integrations.torchrec, or call attach_ of that module before DistributedModelParallel"
            )
        raise AttachError("the model has no PEP table to search. Build it with PepConfig or call attach_ on it first")
    tables = {next(iter(named)): SearchedTable(tuple(named.values())) for named in holders.values()}
    if len({holder.config.pressure for table in tables.values() for holder in table.holders}) > 1:
        raise ConfigError('some tables have pressure = "plan", others "decay". Use one pressure for all tables')
    return tables
