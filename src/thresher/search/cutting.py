"""Cuts tickets from scores: how many entries a budget allows, and the mask of exactly those entries.

Every mask search cuts its tickets here; searches differ in the scores and in when they cut.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from thresher._internal.mapped_tensors import copy_into_, copy_of, tensor_state
from thresher.compact.layouts import compact_bytes
from thresher.errors import BudgetError, NonFiniteError
from thresher.kernels.scores import ScoredTable, ScoresInMemory, top_masks
from thresher.search.budget import Budget, check_budgets
from thresher.search.ticket import MaskTicket, Provenance, kept_weights

BYTES_PER_ENTRY = 6
"""Compact bytes of an entry in a row with others: 4 of value, 2 of position; alone in its row it takes more."""

Scores = Mapping[str, Tensor | ScoredTable]
"""Table name → its scores `[N, D]`, in memory or a few rows at a time."""


def scored_tables(scores: Scores) -> list[ScoredTable]:
    return [ScoresInMemory(table) if isinstance(table, Tensor) else table for table in scores.values()]


def top_entries(scores: Scores, num_kept: int) -> dict[str, Tensor]:
    """Masks `[N, D]` of the `num_kept` highest scores over all tables together; ties go to the lower index."""
    return dict(zip(scores, top_masks(scored_tables(scores), num_kept), strict=True))


def entries_within(budget: Budget, scores: Scores, *, num_entries: int, at_least: int = 0) -> int | None:
    """The largest number of entries, highest scores first, within `budget`; bytes are those of the compact form.

    Args:
        num_entries: `N·D` over all tables without padding rows; a share refers to it.
        at_least: return None if the budget allows fewer entries than this.
    """
    most = min(budget.max_entries(num_entries), num_entries)
    if most < at_least or (budget.unit == "bytes" and _compact_bytes(scores, at_least) > budget.amount):
        return None
    if budget.unit != "bytes":
        return most
    fits, exceeds = at_least, most + 1  # bytes grow with the number of entries
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        if _compact_bytes(scores, middle) <= budget.amount:
            fits = middle
        else:
            exceeds = middle
    return fits


def _compact_bytes(scores: Scores, num_kept: int) -> int:
    return sum(compact_bytes(mask) for mask in top_entries(scores, num_kept).values())


def planned_entries(budget: Budget, weights: Sequence[Tensor], *, num_entries: int) -> int:
    """The number of entries to which a plan falls for this budget; an estimate for bytes, which depend on the mask.

    Args:
        num_entries: as for `entries_within`.
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
            f"budget {budget} is less than the {empty + first:,} bytes of an index with one entry. Raise it",
            budget=budget.text,
        )
    return max(1, min(num_entries, int(budget.amount - empty) // BYTES_PER_ENTRY))


class Cutter:
    """Cuts one ticket for each budget over all tables together. Tickets rewind to the model's state at construction.

    Args:
        weights: table name → its weight `[N, D]`.
        num_entries: `N·D` over all tables without padding rows; a share refers to it.
        method: stored in the tickets, like `seed`.
        on_ticket: called with each ticket when it is cut.
    """

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
    ) -> None:
        self.model, self.budgets, self.num_entries = model, budgets, num_entries
        self.method, self.seed, self.on_ticket = method, seed, on_ticket
        check_budgets(budgets, num_entries)
        tables = list(weights.values())
        self.planned = {budget: planned_entries(budget, tables, num_entries=num_entries) for budget in budgets}
        """Budget → the number of entries to which a plan falls for it."""
        self.tickets: list[MaskTicket] = []
        self.initial_state = {name: copy_of(value) for name, value in tensor_state(model).items()}

    @property
    def finished(self) -> bool:
        """Whether every budget has its ticket."""
        return len(self.tickets) == len(self.budgets)

    @property
    def smallest(self) -> int:
        """The number of entries at which a plan for all budgets ends."""
        return min(self.planned.values())

    def open_budgets(self) -> list[Budget]:
        """The budgets without a ticket, largest first."""
        cut = {ticket.budget for ticket in self.tickets}
        budgets = [budget for budget in self.budgets if budget not in cut]
        return sorted(budgets, key=lambda budget: -budget.max_entries(self.num_entries))

    def may_be_due(self, at_least: int) -> bool:
        """Whether `cut_due` may cut a ticket; False is certain without scores."""
        return any(budget.max_entries(self.num_entries) >= at_least for budget in self.open_budgets())

    def cut_due(self, scores: Scores, *, at_least: int, step: int, epoch: int) -> None:
        """Cut every open budget that allows at least `at_least` entries, largest first, with all entries it allows.

        Args:
            at_least: the number of entries kept now, so that a ticket is cut as early as possible, from entries still
                in training. 0 at the end of a search cuts all open budgets: bytes depend on the mask, so a byte budget
                may still be open.
        """
        allowed = {
            budget: entries_within(budget, scores, num_entries=self.num_entries, at_least=at_least)
            for budget in self.open_budgets()
        }
        due = {budget: num_kept for budget, num_kept in allowed.items() if num_kept is not None}
        for budget in sorted(due, key=lambda budget: -due[budget]):
            self.cut(budget, top_entries(scores, due[budget]), step=step, epoch=epoch)

    def cut(self, budget: Budget, masks: Mapping[str, Tensor], *, step: int, epoch: int) -> None:
        """Cut a ticket with these masks."""
        final = kept_weights(self.model, masks)
        if broken := [name for name, values in final.values.items() if not values.isfinite().all()]:
            raise NonFiniteError(
                f"table {broken[0]!r} holds NaN or infinities at step {step}: training diverged, and no ticket can be "
                "cut. Lower the learning rate, clip gradients, or train in float32"
            )
        ticket = MaskTicket(
            budget=budget,
            masks=masks,
            initial=kept_weights(self.model, masks, self.initial_state),
            final=final,
            provenance=Provenance(method=self.method, seed=self.seed, step=step, epoch=epoch),
        )
        self.tickets.append(ticket)
        if self.on_ticket is not None:
            self.on_ticket(ticket)

    def restore(self, initial_state: Mapping[str, Tensor], tickets: Iterable[MaskTicket]) -> None:
        """Resume with the tickets cut before and the state the search began with."""
        copy_into_(self.initial_state, initial_state)
        self.tickets = list(tickets)
