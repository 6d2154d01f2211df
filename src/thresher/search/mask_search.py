"""MaskSearch: warm-up, pruning at regular steps, and cutting tickets from scores, the same for all mask searches."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from thresher._internal.mapped_tensors import copy_into_, copy_of, tensor_state
from thresher.compact.layouts import compact_bytes
from thresher.errors import BudgetError, NonFiniteError
from thresher.kernels.top_scores import ScoredTable, ScoresInMemory, kth_score, top_masks
from thresher.search.budget import Budget, check_budgets
from thresher.search.schedule import Schedule
from thresher.search.searched_table import ChosenRows
from thresher.search.ticket import MaskTicket, Provenance, Weights, kept_entries, kept_weights
from thresher.training.checkpoint import Checkpoint

BYTES_PER_ENTRY = 6
"""Compact bytes of an entry in a row with others: 4 of value, 2 of position; alone in its row it takes more."""
ENTRIES_PER_ROW = 2
"""Entries that share a key, to plan a search for a bundle; tickets count keys exactly."""

Scores = Mapping[str, Tensor | ScoredTable]
"""Table name → its scores `[N, D]`, in memory or a few rows at a time."""


def scored_tables(scores: Scores) -> list[ScoredTable]:
    return [ScoresInMemory(table) if isinstance(table, Tensor) else table for table in scores.values()]


def top_entries(scores: Scores, num_kept: int) -> dict[str, Tensor]:
    """Masks `[N, D]` of the `num_kept` highest scores over all tables together; ties go to the lower index."""
    masks = dict(zip(scores, top_masks(scored_tables(scores), num_kept), strict=True))
    chosen = {name: table for name, table in scores.items() if isinstance(table, ChosenRows)}
    return masks | {name: table.whole_mask(masks[name]) for name, table in chosen.items()}


def clock_for(scores: Scores, num_kept: int) -> Tensor:
    """The clock above which exactly `num_kept` scores lie, except for ties: the next lower score."""
    tables = scored_tables(scores)
    if num_kept >= sum(math.prod(table.shape) for table in tables):
        return torch.tensor(-torch.inf)
    return torch.tensor(kth_score(tables, num_kept + 1))


def entries_within(budget: Budget, scores: Scores, *, num_entries: int, at_least: int = 0) -> int | None:
    """The largest number of entries, highest scores first, within `budget`; bytes are those of the compact form.

    None if the budget allows fewer than `at_least`. A share refers to `num_entries`: `N·D` without padding rows.
    """
    most = min(budget.max_entries(num_entries), num_entries)
    if most < at_least or (budget.in_bytes and _stored_bytes(budget, scores, at_least) > budget.amount):
        return None
    if not budget.in_bytes:
        return most
    fits, exceeds = at_least, most + 1  # bytes grow with the number of entries
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        if _stored_bytes(budget, scores, middle) <= budget.amount:
            fits = middle
        else:
            exceeds = middle
    return fits


def _stored_bytes(budget: Budget, scores: Scores, num_kept: int) -> int:
    """The bytes that `budget` counts if the highest scores are kept."""
    masks = top_entries(scores, num_kept).values()
    stored = sum(map(compact_bytes, masks))
    if budget.rest is None:
        return stored
    return stored + budget.rest(np.logical_or.reduce([mask.any(dim=1).numpy() for mask in masks]))


def planned_entries(budget: Budget, weights: Sequence[Tensor], *, num_entries: int) -> int:
    """The number of entries to which a plan falls for this budget; an estimate for bytes, which depend on the mask."""
    if not budget.in_bytes:
        return budget.max_entries(num_entries)
    empty = first = 0
    for weight in weights:
        mask = torch.zeros_like(weight, dtype=torch.bool)
        empty += (alone := compact_bytes(mask))
        mask.view(-1)[0] = True
        first = max(first, compact_bytes(mask) - alone)
    per_entry = float(BYTES_PER_ENTRY)
    if budget.rest is not None:
        rows = np.zeros(len(weights[0]), np.bool_)
        empty += (without_keys := budget.rest(rows))
        per_entry += (budget.rest(~rows) - without_keys) / len(rows) / ENTRIES_PER_ROW
    if budget.amount < empty + first:
        parts = "an index with one entry" if budget.unit == "bytes" else "a bundle with one entry"
        message = f"budget {budget} is less than the {empty + first:,} bytes of {parts}. Raise it"
        raise BudgetError(message, budget=budget.text)
    return max(1, min(num_entries, int((budget.amount - empty) / per_entry)))


def count_halvings(budgets: Iterable[Budget], weights: Sequence[Tensor], *, num_entries: int) -> float:
    """How often the number of entries halves from `num_entries` to the smallest budget."""
    check_budgets(budgets := tuple(budgets), num_entries)
    smallest = min(planned_entries(budget, weights, num_entries=num_entries) for budget in budgets)
    return math.log2(num_entries / smallest)


class MaskSearch:
    """Prunes tables and cuts a ticket for each budget, which rewinds to the model's state at construction.

    Args:
        weights: table name → its weight `[N, D]`.
        num_entries: `N·D` over all tables without padding rows; a share refers to it.
        schedule: warm-up, length and interval of pruning; None: nothing is pruned between steps.
    """

    tables: Mapping[str, Any]  # name in the model → searched table, which has a `config`
    placeholders: Mapping[str, Tensor] = MappingProxyType({})  # what pruned entries read as, where it is not 0

    def __init__(
        self,
        model: nn.Module,
        weights: Mapping[str, Tensor],
        budgets: Sequence[Budget],
        *,
        num_entries: int,
        method: str,
        seed: int,
        on_ticket: Callable[[MaskTicket], None] | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        self.model, self.budgets, self.num_entries = model, budgets, num_entries
        self.method, self.seed, self.on_ticket = method, seed, on_ticket
        check_budgets(budgets, num_entries)
        self.weights, tables = weights, list(weights.values())
        self.num_rows = sum(map(len, tables))
        self.planned_counts = {budget: planned_entries(budget, tables, num_entries=num_entries) for budget in budgets}
        self.smallest = min(self.planned_counts.values())  # where a plan for all budgets ends
        self.tickets_so_far: list[MaskTicket] = []  # largest first
        self.initial_state = {name: copy_of(value) for name, value in self.model_state().items()}
        self.current_step = self.epoch = 0
        self.schedule, self.num_kept = schedule, num_entries
        self._pruning_since = 0 if schedule is not None and schedule.warmup_steps == 0 else None

    @property
    def finished(self) -> bool:
        """Whether every budget has its ticket."""
        return len(self.tickets_so_far) == len(self.budgets)

    @property
    def warming_up(self) -> bool:
        return self._pruning_since is None

    @property
    def at_end(self) -> bool:
        """Whether the plan has ended; all open budgets must be cut now."""
        if self.schedule is None or self._pruning_since is None:
            return False
        return self.current_step - self._pruning_since >= self.schedule.plan_steps

    @property
    def end_step(self) -> int | None:
        """The step at which the plan ends; None while that depends on the warm-up, or without a plan."""
        if self.schedule is None or self._pruning_since is None:
            return None
        return self._pruning_since + self.schedule.plan_steps

    @property
    def next_budget(self) -> Budget | None:
        """The largest budget without a ticket."""
        return next(iter(self.open_budgets()), None)

    def end_warmup(self) -> None:
        """Start pruning now; the length of the plan does not change."""
        if self._pruning_since is None:
            self._pruning_since = self.current_step

    def step(self) -> None:
        """Call this after each `optimizer.step()`."""
        self.current_step += 1
        if self.schedule is None:
            return
        if self.current_step >= self.schedule.warmup_steps:
            self.end_warmup()
        if self._pruning_since is None or self.finished:
            return
        steps = self.current_step - self._pruning_since
        if steps % self.schedule.every == 0 or steps == self.schedule.plan_steps:
            self.prune(steps)

    def prune(self, steps: int) -> None:
        """Prune the tables `steps` steps after the warm-up, and cut the tickets that are due."""
        raise NotImplementedError

    def record(self) -> dict[str, Any]:
        """Fields for the training history."""
        tickets = [str(ticket.budget) for ticket in self.tickets_so_far]
        return {"step": self.current_step, "num_kept": self.num_kept, "tickets": tickets}

    def state(self) -> Checkpoint:
        """The progress of the search, and the model's state before it."""
        progress = {"step": self.current_step, "epoch": self.epoch, "num_kept": self.num_kept}
        state = Checkpoint(metadata=progress | {"pruning_since": self._pruning_since})
        state.add("initial", Checkpoint(self.initial_state))
        return state

    def restore(self, state: Checkpoint, tickets: Iterable[MaskTicket]) -> None:
        """Resume from `state()`; the caller must load the model's own state."""
        progress = state.metadata
        self.current_step, self.epoch = progress["step"], progress["epoch"]
        self._pruning_since, self.num_kept = progress["pruning_since"], progress["num_kept"]
        copy_into_(self.initial_state, state.part("initial").tensors)
        self.tickets_so_far = list(tickets)

    def open_budgets(self) -> list[Budget]:
        """The budgets without a ticket, largest first."""
        cut = {ticket.budget for ticket in self.tickets_so_far}
        budgets = [budget for budget in self.budgets if budget not in cut]
        return sorted(budgets, key=lambda budget: -budget.max_entries(self.num_entries))

    def may_be_due(self, at_least: int) -> bool:
        """Whether `cut_due` may cut a ticket; False is certain without scores."""
        return any(budget.max_entries(self.num_entries) >= at_least for budget in self.open_budgets())

    def cut_due(self, scores: Scores, *, at_least: int) -> None:
        """Cut each open budget of `at_least` entries or more; 0, at the end of a search, cuts all open budgets."""
        allowed = {
            budget: entries_within(budget, scores, num_entries=self.num_entries, at_least=at_least)
            for budget in self.open_budgets()
        }
        due = {budget: num_kept for budget, num_kept in allowed.items() if num_kept is not None}
        for budget in sorted(due, key=lambda budget: -due[budget]):
            self.cut(budget, self._top_rows(budget) if budget.unit == "rows" else self.kept_masks(scores, due[budget]))

    def kept_masks(self, scores: Scores, num_kept: int) -> Mapping[str, Tensor]:
        """Masks `[N, D]` of the `num_kept` highest scores over all tables together."""
        return top_entries(scores, num_kept)

    def row_norms(self, name: str) -> Tensor:
        """The norm of each row `[N]` as the model computes with it now; −∞ for rows that are not to be kept."""
        whole = torch.ones(self.weights[name].shape, dtype=torch.bool)
        norms: Tensor = torch.linalg.vector_norm(self.kept_values(name, whole).view(whole.shape), dim=1)
        return norms

    def _top_rows(self, budget: Budget) -> dict[str, Tensor]:
        """Masks `[N, D]` that keep a share of all rows whole, largest norms first; ties go to the lower index."""
        norms = {name: self.row_norms(name).cpu() for name in self.weights}
        order = torch.cat(list(norms.values())).sort(descending=True, stable=True).indices
        kept = torch.zeros(len(order), dtype=torch.bool)
        kept[order[: int(budget.amount * self.num_rows)]] = True
        parts = zip(norms, torch.split(kept, [len(norm) for norm in norms.values()]), strict=True)
        return {name: rows.unsqueeze(1).repeat(1, self.weights[name].shape[1]) for name, rows in parts}

    def kept_values(self, name: str, mask: Tensor) -> Tensor:
        """The kept entries of a table as the model computes with them now, `[K]` in row-major order."""
        return kept_entries(self.model.get_submodule(name).get_parameter("weight"), mask)

    def model_state(self) -> Mapping[str, Tensor]:
        """The present tensors of the model that `initial_state` holds copies of."""
        return tensor_state(self.model)

    def present_weights(self, masks: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Weights:
        """The present weights of the model as a ticket holds them, with these kept values."""
        return kept_weights(self.model, masks, values=values)

    def initial_weights(self, masks: Mapping[str, Tensor]) -> Weights:
        """The weights of `initial_state` as a ticket holds them."""
        return kept_weights(self.model, masks, self.initial_state)

    def cut(self, budget: Budget, masks: Mapping[str, Tensor]) -> None:
        """Cut a ticket with these masks."""
        step = self.current_step
        kept = {name: self.kept_values(name, mask) for name, mask in masks.items()}
        final = self.present_weights(masks, kept)
        if broken := [name for name, values in final.values.items() if not values.isfinite().all()]:
            where = f"table {broken[0]!r} holds NaN or infinities at step {step}"
            raise NonFiniteError(f"{where}: training diverged. Lower the learning rate, clip gradients, or use float32")
        ticket = MaskTicket(
            budget=budget,
            masks=masks,
            initial=self.initial_weights(masks),
            final=final,
            provenance=Provenance(method=self.method, seed=self.seed, step=step, epoch=self.epoch),
            placeholders=self.placeholders,
        )
        self.tickets_so_far.append(ticket)
        if self.on_ticket is not None:
            self.on_ticket(ticket)
