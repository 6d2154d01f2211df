"""From scores to tickets: how many entries a budget holds, exactly, and the mask of just those.

Every search that ends in masks cuts them here; they differ in what they score entries by, and when.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from thresher._internal.mapped_tensors import copy_into_, copy_of
from thresher._internal.tensor_state import tensor_state
from thresher.compact.layouts import compact_bytes
from thresher.errors import BudgetError, NonFiniteError
from thresher.search.budget import Budget, check_budgets
from thresher.search.ticket import MaskTicket, Provenance, Scores, kept_weights, top_entries

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
    """Cuts a ticket for each budget, once, over all tables together.

    The model's state when this is built is what tickets rewind to.

    Args:
        weights: table name → its weight `[N, D]`.
        num_entries: `N·D` over all tables, padding left out: what a share is a share of.
        method: written into the tickets, as `seed` is.
        on_ticket: called with each ticket as it is cut.
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
        self._least = {budget: least_entries(budget, tables, num_entries=num_entries) for budget in budgets}
        self.tickets: list[MaskTicket] = []
        self.initial_state = {name: copy_of(value) for name, value in tensor_state(model).items()}

    @property
    def finished(self) -> bool:
        """Every budget has its ticket."""
        return len(self.tickets) == len(self.budgets)

    @property
    def smallest(self) -> int:
        """Where a plan for all budgets ends."""
        return min(self._least.values())

    def open_budgets(self) -> list[Budget]:
        """Those still without a ticket, largest first."""
        cut = {ticket.budget for ticket in self.tickets}
        budgets = [budget for budget in self.budgets if budget not in cut]
        return sorted(budgets, key=lambda budget: -budget.max_entries(self.num_entries))

    def least_entries(self, budget: Budget) -> int:
        """How far a plan must fall for this budget."""
        return self._least[budget]

    def may_be_due(self, at_least: int) -> bool:
        """Whether `cut_due` might cut anything, as far as can be told without scores."""
        return any(budget.max_entries(self.num_entries) >= at_least for budget in self.open_budgets())

    def cut_due(self, scores: Scores, *, at_least: int, step: int, epoch: int) -> None:
        """Cut every open budget that holds the `at_least` best entries, largest first; each takes all it holds.

        Args:
            at_least: what the tables hold now, so that a ticket is cut as soon as it can be, of entries that were
                still trained. 0 at the end: what bytes hold depends on the mask, and then they take what fits,
                however little.
        """
        held = {
            budget: entries_within(budget, scores, num_entries=self.num_entries, at_least=at_least)
            for budget in self.open_budgets()
        }
        due = {budget: num_kept for budget, num_kept in held.items() if num_kept is not None}
        for budget in sorted(due, key=lambda budget: -due[budget]):
            self.keep(budget, top_entries(scores, due[budget]), step=step, epoch=epoch)

    def keep(self, budget: Budget, masks: Mapping[str, Tensor], *, step: int, epoch: int) -> None:
        """Cut the ticket of these very entries."""
        final = kept_weights(self.model, masks)
        if broken := [name for name, values in final.values.items() if not values.isfinite().all()]:
            raise NonFiniteError(
                f"table {broken[0]!r} holds NaN or infinities at step {step}: training diverged, no ticket "
                "can be cut of it; lower the learning rate, clip gradients, or train in float32"
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
        """Go on with what was cut before, and with the state the search began with."""
        copy_into_(self.initial_state, initial_state)
        self.tickets = list(tickets)
