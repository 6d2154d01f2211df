"""What makes the kept count fall during a search, one class for each of PEP's pressures.

`PlanPressure` moves the clock so that the count follows a plan. `DecayPressure` only watches: weight decay on the raw
thresholds does the pressing, inside the optimizer, as published.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from thresher.embeddings.pep import PepEmbedding
from thresher.errors import AttachError, ConfigError
from thresher.kernels.scores import (
    ScoredTable,
    ScoresInMemory,
    clock_from_counts,
    count_above,
    kth_score,
    sum_of_counts,
)
from thresher.search.plan import Plan
from thresher.search.ticket import Scores, as_tables

IN_MEMORY_ENTRIES = 1 << 22
"""Tables up to this size are scored at once; larger ones a few rows at a time, whenever their scores are asked for."""


class PressureOn(Protocol):
    """Presses the tables and says how many entries are left."""

    def press(self, pressed_steps: int, scores: Scores) -> int: ...


class PlanPressure:
    """Threshold `g(clock + deviation)`: the clock is set between the scores that stay and those that go.

    With row updates it is read from histograms that the lookups keep up to date, right to a small part of a bin; with
    dense updates, which change every row, from all scores. Tickets are cut by exact scores either way.
    """

    def __init__(self, tables: Sequence[PepEmbedding], plan: Plan) -> None:
        self.tables, self.plan = tables, plan

    def press(self, pressed_steps: int, scores: Scores) -> int:
        num_kept = self.plan.num_kept(pressed_steps)
        if all(table.row_gradients for table in self.tables):
            histograms = [table.score_histogram() for table in self.tables]
            clock = torch.tensor(clock_from_counts(sum_of_counts(histograms), num_kept))
        else:
            clock = clock_for(scores, num_kept)
        for table in self.tables:
            table.clock.copy_(clock)
        return num_kept


class DecayPressure:
    """Threshold `g(raw_threshold)`: an entry is left while its score is above 0."""

    def press(self, pressed_steps: int, scores: Scores) -> int:
        return count_above(as_tables(scores), 0.0)


def clock_for(scores: Scores, num_kept: int) -> Tensor:
    """The clock above which exactly `num_kept` scores lie (but for ties): the next score below them."""
    tables = as_tables(scores)
    if num_kept >= sum(math.prod(table.shape) for table in tables):
        return torch.tensor(-torch.inf)
    return torch.tensor(kth_score(tables, num_kept + 1))


@dataclass(frozen=True)
class SearchedTable:
    """One table a threshold search prunes, and every module that looks it up: a table may be shared or tied."""

    holders: tuple[PepEmbedding, ...]

    def num_entries(self) -> int:
        return self.holders[0].num_entries()

    @property
    def shape(self) -> tuple[int, int]:
        num_rows, width = self.holders[0].weight.shape
        return num_rows, width

    @property
    def padding_id(self) -> int | None:
        return self.holders[0].padding_id

    def scores(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Its scores `[N, D]`, or those of some rows; a row is seen when any holder looked it up."""
        first, *others = self.holders
        for other in others:
            first.seen |= other.seen
        return first.scores(start, stop)

    def scored(self) -> ScoredTable:
        """Its scores now, to be asked for several times."""
        return ScoresInMemory(self.scores(), self.padding_id) if math.prod(self.shape) <= IN_MEMORY_ENTRIES else self


def searched_tables(model: nn.Module) -> dict[str, SearchedTable]:
    """Every table of `model` that a threshold search prunes, each once, under the first name it has."""
    holders: dict[nn.Parameter, dict[str, PepEmbedding]] = {}
    for name, module in model.named_modules():
        if isinstance(module, PepEmbedding):
            holders.setdefault(module.weight, {})[name] = module
    if not holders:
        raise AttachError("the model has no PEP table to search; build it with PepConfig or call attach_ on it first")
    tables = {next(iter(named)): SearchedTable(tuple(named.values())) for named in holders.values()}
    if len({holder.config.pressure for table in tables.values() for holder in table.holders}) > 1:
        raise ConfigError('some tables have pressure = "plan", others "decay"; one search presses all of them one way')
    return tables
