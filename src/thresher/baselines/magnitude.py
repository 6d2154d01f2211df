"""Magnitude pruning: keep the entries of largest |v|, without learned thresholds. Three schedules, one table.

    vector_i = m_i ⊙ V[i],   m = 1 for the k entries of largest |V|, k given by the schedule

- `magnitude`, one-shot: train to convergence with an L2 of its own, prune once (Han et al., 2015).
- `gradual-magnitude`: prune while training, k falls along the cubic of Zhu & Gupta, "To prune, or not to prune" (2017).
- `iterative-magnitude`: train, prune a share, rewind the whole model, repeat (Frankle & Carbin, 2019).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from thresher._internal.processes import OwnState, current_processes
from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig, FieldEmbedding, new_table
from thresher.embeddings.method_registry import register_embedding
from thresher.errors import ConfigError
from thresher.search.controller import MaskSearchController, TableSearch, find_tables
from thresher.search.find_tickets import SearchTask, register_search
from thresher.search.mask_search import Scores, top_entries
from thresher.search.schedule import Plan, Schedule
from thresher.training.checkpoint import Checkpoint
from thresher.training.metrics import Metrics
from thresher.training.optimizers import build_optimizer


@dataclass(frozen=True, kw_only=True)
class MagnitudeConfig(EmbeddingConfig):
    """Settings of all three schedules."""

    search_weight_decay: float | None = None
    """Coupled L2 of table and network in the search. Absent: that of `search.optimizer`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search_weight_decay is not None and not 0 <= self.search_weight_decay < float("inf"):
            raise ConfigError(f"search_weight_decay is {self.search_weight_decay}; it must be 0 or more, and finite")

    @classmethod
    def grid(cls) -> Sequence[Self]:
        decays = [cls(embedding_dim=128, search_weight_decay=decay) for decay in (1e-4, 3e-5)]
        return [cls(embedding_dim=128), cls(embedding_dim=64), *decays]


@dataclass(frozen=True, kw_only=True)
class GradualMagnitudeConfig(MagnitudeConfig):
    """Warm-up and length of the plan are those of `[search]`: `warmup_epochs`, `plan_epochs`."""

    @property
    def can_start_dense(self) -> bool:
        return True

    @classmethod
    def grid(cls) -> Sequence[Self]:
        return super().grid()[:3]


@dataclass(frozen=True, kw_only=True)
class IterativeMagnitudeConfig(MagnitudeConfig):
    """How fast the rounds prune."""

    round_keep_share: float = 0.5
    """Smallest share of the entries that a round keeps; smaller means fewer rounds."""
    round_epochs: int | None = None
    """Epochs of a round. Absent: until validation stops improving."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.round_keep_share < 1:
            raise ConfigError(f"round_keep_share is {self.round_keep_share}; it must lie between 0 and 1")
        if self.round_epochs is not None and self.round_epochs < 1:
            raise ConfigError(f"round_epochs is {self.round_epochs}; it must be at least 1")

    @classmethod
    def grid(cls) -> Sequence[Self]:
        return [cls(embedding_dim=128), cls(embedding_dim=64), cls(embedding_dim=128, round_keep_share=0.7)]


class SeenTable(OwnState, FieldEmbedding):
    """A table `V` `[N, D]` scored by `|V|`; it records which rows were looked up in training.

    Rows that are not in `seen` `[N]` carry no information.
    """

    def __init__(self, field_sizes: Sequence[int], config: EmbeddingConfig) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.weight = new_table(self.num_features, self.embedding_dim)
        self.seen = torch.zeros(self.num_features, dtype=torch.bool)  # of this process (OwnState)

    @torch.no_grad()
    def scores(self) -> Tensor:
        """`|V|` `[N, D]`; −∞ for rows never seen in training by any process."""
        if (processes := current_processes()) is not None:
            self.unite_seen(processes)
        return self.weight.abs().masked_fill(~self.seen[:, None], -torch.inf)


@register_embedding("magnitude", MagnitudeConfig)
class MagnitudeEmbedding(SeenTable):
    """Ids `[...]` → `m ⊙ V` `[..., D]`; the mask `m` `[N, D]` is set by the search and gets no gradient."""

    search_algorithm = "magnitude"
    mask: Tensor

    def __init__(
        self, field_sizes: Sequence[int], config: MagnitudeConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config)
        self.config = config
        self.register_buffer("mask", torch.ones(self.num_features, self.embedding_dim, dtype=torch.bool))

    def forward(self, ids: Tensor) -> Tensor:
        distinct, places = torch.unique(ids, return_inverse=True)  # [U], [...]
        if self.training:
            self.seen[distinct.long()] = True
        kept = functional.embedding(distinct, self.weight) * self.mask[distinct.long()]  # [U, D]
        return functional.embedding(places, kept)  # [..., D]

    def num_parameters(self) -> int:
        return int(self.mask.sum())

    def storage_bytes(self) -> int:
        """The search holds the whole table and a bit per entry; a ticket saves bytes only after retraining."""
        return self.weight.numel() * BYTES_PER_VALUE + -(-self.mask.numel() // 8)


@register_embedding("gradual-magnitude", GradualMagnitudeConfig)
class GradualMagnitudeEmbedding(MagnitudeEmbedding):
    """The same table, pruned along the cubic schedule."""

    search_algorithm = "gradual-magnitude"


@register_embedding("iterative-magnitude", IterativeMagnitudeConfig)
class IterativeMagnitudeEmbedding(MagnitudeEmbedding):
    """The same table, pruned in rounds that each start from the initial weights."""

    search_algorithm = "iterative-magnitude"


class MagnitudeSearch(TableSearch):
    """A mask search that prunes by setting the tables' masks."""

    tables: Mapping[str, MagnitudeEmbedding]

    def keep(self, num_kept: int, scores: Scores) -> None:
        """Mask all but the `num_kept` entries of highest score."""
        for name, mask in top_entries(scores, num_kept).items():
            self.tables[name].mask.copy_(mask)
        self.num_kept = num_kept


class GradualSearch(MagnitudeSearch):
    """Prunes along the cubic while training."""

    def __init__(self, task: SearchTask, tables: Mapping[str, MagnitudeEmbedding], schedule: Schedule) -> None:
        super().__init__(task, tables, schedule)
        self.plan = CubicPlan(self.num_entries, self.smallest, schedule.plan_steps)

    def prune(self, steps: int) -> None:
        scores = self.scores()
        self.keep(self.plan.num_kept(steps), scores)
        self.cut_due(scores, at_least=0 if self.at_end else self.num_kept)


class CubicPlan(Plan):
    """`k(t) = k_end + (N·D − k_end) · (1 − t/T)³`: fast at the beginning, slow at the end.

    >>> plan = CubicPlan(num_entries=1_000, smallest=200, num_steps=10)
    >>> [plan.num_kept(step) for step in (0, 5, 10, 11)]
    [1000, 300, 200, 200]
    """

    def num_kept(self, step: int) -> int:
        left = max(0.0, 1 - step / self.num_steps)
        return self.smallest + round((self.num_entries - self.smallest) * left**3)


class MagnitudeController(MaskSearchController):
    """Base of the three schedules: the optimizer, and the search without a plan."""

    stage = "magnitude search"
    search: MagnitudeSearch
    tables: Mapping[str, MagnitudeEmbedding]

    def __init__(self, task: SearchTask, max_epochs: int | None = None) -> None:
        self.tables = find_tables(task.model, MagnitudeEmbedding)
        config, decay = task.config.optimizer, next(iter(self.tables.values())).config.search_weight_decay
        if decay is not None:
            config = replace(config, weight_decay=decay, embedding_weight_decay=decay * task.decay_share)
        super().__init__(task, self.new_search(task), build_optimizer(task.model, config), max_epochs=max_epochs)

    def new_search(self, task: SearchTask) -> MagnitudeSearch:
        return MagnitudeSearch(task, self.tables)


@register_search("gradual-magnitude", units=("rows", "bundle"), shared=True)
class GradualController(MagnitudeController):
    """Prunes along the cubic while training."""

    def new_search(self, task: SearchTask) -> MagnitudeSearch:
        return GradualSearch(task, self.tables, task.schedule(table.weight for table in self.tables.values()))


@register_search("magnitude", units=("rows", "bundle"), shared=True)
class OneShotController(MagnitudeController):
    """Trains until validation stops improving, restores the best epoch, and prunes once for every budget."""

    def __init__(self, task: SearchTask) -> None:
        super().__init__(task, task.config.max_epochs)
        self.stopping = task.config.stopping()

    def end_epoch(self, metrics: Metrics) -> None:
        search = self.search
        self.stopping.update(search.epoch, metrics, self.task.model)
        if self.stopping.should_stop or search.epoch >= self.max_epochs:
            self.stopping.restore_best_(self.task.model)
            search.cut_due(search.scores(), at_least=0)

    def length(self) -> Mapping[str, Any]:
        return self.stopping.progress()


@register_search("iterative-magnitude", units=("rows", "bundle"), shared=True)
class IterativeController(MagnitudeController):
    """Trains a round, prunes to the next count, rewinds the whole model, and repeats. Every budget ends a round."""

    def __init__(self, task: SearchTask) -> None:
        super().__init__(task, task.config.max_epochs)
        config = next(iter(self.tables.values())).config
        assert isinstance(config, IterativeMagnitudeConfig)
        stops = sorted(set(self.search.planned_counts.values()), reverse=True)
        self.round_counts = round_counts(self.search.num_entries, stops, config.round_keep_share)
        self.round_epochs, self.round_start = config.round_epochs, 0
        self.max_round_epochs = config.round_epochs or task.config.max_warmup_epochs
        self.max_epochs = len(self.round_counts) * self.max_round_epochs

    def end_epoch(self, metrics: Metrics) -> None:
        self.stopping.update(self.search.epoch, metrics, self.task.model)
        at_end = self.search.epoch - self.round_start >= self.max_round_epochs
        if at_end or (self.round_epochs is None and self.stopping.should_stop):
            self._end_round()

    @torch.no_grad()
    def _end_round(self) -> None:
        search, model, last = self.search, self.task.model, self.round_counts[-1]
        self.stopping.restore_best_(model)
        scores = {name: table.scores().masked_fill(~table.mask, -torch.inf) for name, table in self.tables.items()}
        count = next(count for count in self.round_counts if count < search.num_kept or count == last)
        search.cut_due(scores, at_least=0 if count == last else count)
        if not search.finished:
            model.load_state_dict(search.initial_state)
            search.keep(count, scores)
            self.optimizer.state.clear()  # moments of the last round
            self.stopping, self.round_start = self.task.config.warmup_stopping(), search.epoch

    def length(self) -> Mapping[str, Any]:
        """The rounds so far show how long the others take."""
        done = sum(count >= self.search.num_kept for count in self.round_counts)
        return {"planned_epochs": len(self.round_counts) * self.round_start / done} if done else {}

    def state(self) -> Checkpoint:
        state = super().state()
        state.metadata["round_start"] = self.round_start
        return state

    def load(self, state: Checkpoint) -> None:
        super().load(state)
        self.round_start = state.metadata["round_start"]


def round_counts(num_entries: int, stops: Sequence[int], keep_share: float) -> list[int]:
    """Entries kept after each round, down through all `stops`, each at least `keep_share` of the one before.

    >>> round_counts(1_000, [400, 100], keep_share=0.5)
    [632, 400, 200, 100]
    """
    counts: list[int] = []
    high = num_entries
    for low in stops:
        num_rounds = max(1, math.ceil(math.log(low / high) / math.log(keep_share) - 1e-9))
        counts += [round(high * (low / high) ** (at / num_rounds)) for at in range(1, num_rounds + 1)]
        high = low
    return counts
