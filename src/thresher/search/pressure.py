"""What makes the kept count fall during a search, one class for each of PEP's pressures.

`PlanPressure` moves the clock so that the count follows a plan. `DecayPressure` only watches: weight decay on the raw
thresholds does the pressing, inside the optimizer, as published.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from thresher.embeddings.pep import PepEmbedding
from thresher.errors import AttachError, ConfigError
from thresher.search.plan import Plan

Scores = Mapping[str, Tensor]


class PressureOn(Protocol):
    """Presses the tables and says how many entries are left."""

    def press(self, pressed_steps: int, scores: Scores) -> int: ...


class PlanPressure:
    """Threshold `g(clock + deviation)`: the clock is set between the scores that stay and those that go."""

    def __init__(self, tables: Sequence[PepEmbedding], plan: Plan) -> None:
        self.tables, self.plan = tables, plan

    def press(self, pressed_steps: int, scores: Scores) -> int:
        num_kept = self.plan.num_kept(pressed_steps)
        clock = clock_for(scores, num_kept)
        for table in self.tables:
            table.clock.copy_(clock)
        return num_kept


class DecayPressure:
    """Threshold `g(raw_threshold)`: an entry is left while its score is above 0."""

    def press(self, pressed_steps: int, scores: Scores) -> int:
        return sum(int((table > 0).sum()) for table in scores.values())


def clock_for(scores: Scores, num_kept: int) -> Tensor:
    """The clock above which exactly `num_kept` scores lie (but for ties): the next score below them."""
    flat = torch.cat([table.reshape(-1) for table in scores.values()])
    if num_kept >= flat.numel():
        return torch.tensor(-torch.inf)
    return torch.kthvalue(flat, flat.numel() - num_kept).values


@dataclass(frozen=True)
class SearchedTable:
    """One table a threshold search prunes, and every module that looks it up: a table may be shared or tied."""

    holders: tuple[PepEmbedding, ...]

    def num_entries(self) -> int:
        return self.holders[0].num_entries()

    def scores(self) -> Tensor:
        """Its scores `[N, D]`; a row is seen when any holder looked it up."""
        first, *others = self.holders
        for other in others:
            first.seen |= other.seen
        return first.scores()


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
