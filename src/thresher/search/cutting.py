"""From scores to tickets: how many entries a budget holds, exactly, and the mask of just those.

Every search that ends in masks cuts them here; they differ in what they score entries by, and when.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from thresher.compact.layouts import compact_bytes
from thresher.embeddings.base import FieldEmbedding
from thresher.errors import BudgetError
from thresher.kernels.tables import copy_into_, copy_of
from thresher.search.registry import SearchTask
from thresher.tickets.budget import Budget, check_budgets
from thresher.tickets.store import load_mask_ticket, save_ticket
from thresher.tickets.ticket import MaskTicket, Provenance, Scores, kept_weights, top_entries

# compact bytes an entry takes where several share a row: 4 of value, 2 of place; alone in its row it takes more
BYTES_PER_ENTRY = 6


def entries_within(budget: Budget, scores: Scores, *, num_entries: int, at_least: int = 0) -> int | None:
    """The most entries, best scores first, that `budget` allows; for bytes, in the smallest compact layout.

    Args:
        num_entries: `N·D` over all tables, padding left out: what a share is a share of.
        at_least: how many must be allowed for the question to matter; None if they are not.
    """
    most = min(budget.max_entries(num_entries), num_entries)
    if most < at_least or (budget.unit == "bytes" and _bytes_of(scores, at_least) > budget.amount):
        return None
    if budget.unit != "bytes":
        return most
    fits, exceeds = at_least, most + 1  # bytes rise with the entries kept
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        if _bytes_of(scores, middle) <= budget.amount:
            fits = middle
        else:
            exceeds = middle
    return fits


def _bytes_of(scores: Scores, num_kept: int) -> int:
    return sum(compact_bytes(mask) for mask in top_entries(scores, num_kept).values())


def least_entries(budget: Budget, weights: Sequence[Tensor], *, num_entries: int) -> int:
    """How far a plan must fall for this budget; for bytes a guess, since what a place costs depends on the mask.

    Args:
        num_entries: `N·D` over all tables, padding left out, as for `entries_within`.
    """
    if budget.unit != "bytes":
        return budget.max_entries(num_entries)
    empty = first = 0
    for weight in weights:
        mask = torch.zeros_like(weight, dtype=torch.bool)
        empty += (alone := compact_bytes(mask))
        mask.view(-1)[0] = True
        first = max(first, compact_bytes(mask) - alone)
    if budget.amount < empty + first:
        raise BudgetError(
            f"budget {budget} is less than the {empty + first:,} bytes of an index with one entry; raise it",
            budget=budget.text,
        )
    return max(1, min(num_entries, int(budget.amount - empty) // BYTES_PER_ENTRY))


class Cutter:
    """Cuts a ticket for each budget of a task, once, over all its tables together, and stores it.

    The model's state when this is built is what tickets rewind to.

    Args:
        tables: name → embedding with a `weight` `[N, D]`.
        method: written into the tickets.
    """

    def __init__(self, task: SearchTask, tables: Mapping[str, FieldEmbedding], method: str) -> None:
        self.task, self.method = task, method
        self.weights = {name: table.get_parameter("weight") for name, table in tables.items()}
        self.num_entries = sum(weight.numel() for weight in self.weights.values())
        check_budgets(task.budgets, self.num_entries)
        weights = list(self.weights.values())
        self._least = {budget: least_entries(budget, weights, num_entries=self.num_entries) for budget in task.budgets}
        self.tickets: list[MaskTicket] = []
        self.initial_state = {name: copy_of(value) for name, value in task.model.state_dict().items()}

    @property
    def finished(self) -> bool:
        return not self.open_budgets()

    def open_budgets(self) -> list[Budget]:
        """Those still without a ticket, largest first."""
        cut = {ticket.budget for ticket in self.tickets}
        budgets = [budget for budget in self.task.budgets if budget not in cut]
        return sorted(budgets, key=self.least_entries, reverse=True)

    def least_entries(self, budget: Budget) -> int:
        """How far a plan must fall for this budget."""
        return self._least[budget]

    def cut(self, budget: Budget, scores: Scores, *, step: int, epoch: int) -> None:
        """Write the ticket that keeps the best-scored entries `budget` allows."""
        num_kept = entries_within(budget, scores, num_entries=self.num_entries)
        assert num_kept, "budgets that leave nothing are refused before a search starts"
        self.keep(budget, top_entries(scores, num_kept), step=step, epoch=epoch)

    def keep(self, budget: Budget, masks: Mapping[str, Tensor], *, step: int, epoch: int) -> None:
        """Write the ticket of these very entries."""
        ticket = MaskTicket(
            budget=budget,
            masks=masks,
            initial=kept_weights(self.task.model, masks, self.initial_state),
            final=kept_weights(self.task.model, masks),
            provenance=Provenance(method=self.method, seed=self.task.seed, step=step, epoch=epoch),
        )
        self.tickets.append(ticket)
        if self.task.folder is not None:
            save_ticket(ticket, self.task.folder / budget.slug)

    def facts(self) -> dict[str, Any]:
        return {"tickets": [ticket.budget.slug for ticket in self.tickets]}

    def load(self, facts: Mapping[str, Any], initial_state: Mapping[str, Tensor]) -> None:
        """Go on from `facts()` and the `initial_state` of a checkpoint."""
        assert self.task.folder is not None, "only a search with a folder has a checkpoint"
        self.tickets = [load_mask_ticket(self.task.folder / slug) for slug in facts["tickets"]]
        copy_into_(self.initial_state, initial_state)
