"""The tables of a threshold search: each with every module that looks it up."""

import math
from dataclasses import dataclass

from torch import Tensor, nn

from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.errors import AttachError, ConfigError
from thresher.kernels.scores import ScoredTable, ScoresInMemory

IN_MEMORY_ENTRIES = 1 << 22
"""Tables up to this size are scored at once; larger ones a few rows at a time, at each use of their scores."""


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

    def scores(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Scores `[N, D]`, or of some rows; a row is seen if any holder looked it up."""
        first, *others = self.holders
        for other in others:
            first.seen |= other.seen
        return first.scores(start, stop)

    def scored(self) -> ScoredTable:
        """Its present scores, for repeated use."""
        return ScoresInMemory(self.scores(), self.padding_id) if math.prod(self.shape) <= IN_MEMORY_ENTRIES else self


def searched_tables(model: nn.Module) -> dict[str, SearchedTable]:
    """The PEP tables of `model`, each once, under its first name."""
    holders: dict[nn.Parameter, dict[str, PepEmbedding]] = {}
    for name, module in model.named_modules():
        if isinstance(module, PepEmbedding):
            holders.setdefault(module.raw_weight, {})[name] = module
    if not holders:
        raise AttachError("the model has no PEP table to search. Build it with PepConfig or call attach_ on it first")
    tables = {next(iter(named)): SearchedTable(tuple(named.values())) for named in holders.values()}
    if len({holder.config.pressure for table in tables.values() for holder in table.holders}) > 1:
        raise ConfigError('some tables have pressure = "plan", others "decay". Use one pressure for all tables')
    return tables
