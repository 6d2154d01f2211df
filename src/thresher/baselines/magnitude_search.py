"""Magnitude pruning's three schedules: once after training, gradually along a cubic, or in rounds with rewinding.

Each serves all budgets in one run, cuts exactly their number of entries over all tables together, and gets the warm-up,
the validation and the retraining that PEP gets: these are baselines meant to be hard to beat.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from thresher.baselines.magnitude import IterativeMagnitudeConfig, MagnitudeEmbedding
from thresher.embeddings.method_registry import method_name
from thresher.errors import AttachError, ConfigError
from thresher.search.mask_judge import MaskJudge, PressingJudge, run_mask_search
from thresher.search.task import SearchTask, register_search
from thresher.search.ticket import MaskTicket, top_entries
from thresher.training.early_stopping import EarlyStopping
from thresher.training.metrics import Metrics
from thresher.training.optimizers import build_optimizer

STAGE = "magnitude search"


@register_search("magnitude")
def search_magnitudes(task: SearchTask) -> Sequence[MaskTicket]:
    """Run the schedule the model's tables declare; a ticket for each budget, largest first."""
    tables = _magnitude_tables(task)
    first = next(iter(tables.values()))
    optimizer_config, decay = task.config.optimizer, first.config.search_weight_decay
    if decay is not None:
        own = decay * task.decay_share
        optimizer_config = replace(optimizer_config, weight_decay=decay, embedding_weight_decay=own)
    optimizer = build_optimizer(task.model, optimizer_config)
    method = method_name(first.config)
    judge: OneShot | Gradual | Iterative
    match first.schedule:
        case "one-shot":
            judge = OneShot(task, tables, method)
        case "gradual":
            judge = Gradual(task, tables, method)
        case "iterative":
            judge = Iterative(task, tables, method, optimizer)
    return run_mask_search(task, optimizer, judge, stage=STAGE, table_config=first.config)


def scores_of(tables: Mapping[str, MagnitudeEmbedding]) -> dict[str, Tensor]:
    return {name: table.scores() for name, table in tables.items()}


def keep_(tables: Mapping[str, MagnitudeEmbedding], num_kept: int, scores: Mapping[str, Tensor]) -> None:
    """Mask all but the `num_kept` entries of highest score."""
    for name, mask in top_entries(scores, num_kept).items():
        tables[name].mask.copy_(mask)


class OneShot(MaskJudge):
    """Train until validation stops improving, go back to the best epoch, prune once for every budget."""

    def __init__(self, task: SearchTask, tables: Mapping[str, MagnitudeEmbedding], method: str) -> None:
        super().__init__(task, tables, method=method)
        self.tables, self.max_epochs = tables, task.config.max_epochs

    def new_stopping(self) -> EarlyStopping:
        return self.config.stopping()

    def judge_epoch(self, metrics: Metrics) -> None:
        self.stopping.update(self.epoch, metrics, self.task.model)
        if self.stopping.should_stop or self.epoch >= self.max_epochs:
            self.stopping.restore_best_(self.task.model)
            self.cut_due(scores_of(self.tables), at_least=0)


@dataclass(frozen=True)
class CubicPlan:
    """`k(t) = k_end + (N·D − k_end) · (1 − t/T)³`: fast while much is superfluous, slow at the end.

    >>> plan = CubicPlan(num_entries=1_000, smallest=200, num_steps=10)
    >>> [plan.num_kept(step) for step in (0, 5, 10, 11)]
    [1000, 300, 200, 200]
    """

    num_entries: int
    smallest: int
    num_steps: int

    def num_kept(self, step: int) -> int:
        left = max(0.0, 1 - step / self.num_steps)
        return self.smallest + round((self.num_entries - self.smallest) * left**3)


class Gradual(PressingJudge):
    """Prune along the cubic while training; a budget's ticket is cut when the count falls to it."""

    def __init__(self, task: SearchTask, tables: Mapping[str, MagnitudeEmbedding], method: str) -> None:
        super().__init__(task, tables, method=method)
        self.tables = tables
        self.plan = CubicPlan(self.cutter.num_entries, self.cutter.smallest, self.schedule.plan_steps)

    def press(self, pressed_steps: int) -> None:
        self.num_kept, scores = self.plan.num_kept(pressed_steps), scores_of(self.tables)
        keep_(self.tables, self.num_kept, scores)
        self.cut_due(scores, at_least=0 if self.at_end else self.num_kept)


class Iterative(MaskJudge):
    """Train, prune to the next rung, rewind the whole model to its initial weights, again.

    The rungs fall by no more than `round_keep_share`, and every budget is one: its ticket is scored by a table that was
    trained with at most a few times as many entries.
    """

    def __init__(
        self,
        task: SearchTask,
        tables: Mapping[str, MagnitudeEmbedding],
        method: str,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        super().__init__(task, tables, method=method)
        config = next(iter(tables.values())).config
        assert isinstance(config, IterativeMagnitudeConfig)
        self.tables, self.optimizer = tables, optimizer
        self.round_epochs, self.round_start = config.round_epochs, 0
        stops = {self.cutter.least_entries(budget) for budget in task.budgets}
        self.rungs = rungs(self.cutter.num_entries, sorted(stops, reverse=True), config.round_keep_share)
        self.max_epochs = len(self.rungs) * (config.round_epochs or task.config.max_warmup_epochs)

    def judge_epoch(self, metrics: Metrics) -> None:
        self.stopping.update(self.epoch, metrics, self.task.model)
        age = self.epoch - self.round_start
        at_end = age >= (self.round_epochs or self.config.max_warmup_epochs)
        if at_end or (self.round_epochs is None and self.stopping.should_stop):
            self._end_round()

    @torch.no_grad()
    def _end_round(self) -> None:
        model = self.task.model
        self.stopping.restore_best_(model)
        scores = {name: table.scores().masked_fill(~table.mask, -torch.inf) for name, table in self.tables.items()}
        rung = next(rung for rung in self.rungs if rung < self.num_kept or rung == self.rungs[-1])
        self.cut_due(scores, at_least=0 if rung == self.rungs[-1] else rung)
        if not self.finished:
            model.load_state_dict(self.cutter.initial_state)
            keep_(self.tables, rung, scores)
            self.num_kept = rung
            self.optimizer.state.clear()  # moments of another round
            self.stopping, self.round_start = self.new_stopping(), self.epoch

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "round_start": self.round_start}

    def load(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        super().load(facts, tensors)
        self.round_start = facts["round_start"]


def rungs(num_entries: int, stops: Sequence[int], keep_share: float) -> list[int]:
    """Counts from below `num_entries` down through all `stops`, each at least `keep_share` of the one before.

    >>> rungs(1_000, [400, 100], keep_share=0.5)
    [632, 400, 200, 100]
    """
    counts: list[int] = []
    high = num_entries
    for low in stops:
        num_rounds = max(1, math.ceil(math.log(low / high) / math.log(keep_share) - 1e-9))
        counts += [round(high * (low / high) ** (at / num_rounds)) for at in range(1, num_rounds + 1)]
        high = low
    return counts


def _magnitude_tables(task: SearchTask) -> dict[str, MagnitudeEmbedding]:
    tables = {name: module for name, module in task.model.named_modules() if isinstance(module, MagnitudeEmbedding)}
    if not tables:
        raise AttachError("the model has no table under magnitude pruning; build it with MagnitudeConfig or its kin")
    if len({table.config for table in tables.values()}) > 1:
        raise ConfigError(
            "the model's tables have different settings of magnitude pruning; one search has one schedule"
        )
    return tables
