"""SteppedSearch: a mask search that the user's own training loop steps, once after each step of the optimizer."""

from collections.abc import Mapping
from typing import Self

from torch import Tensor

from thresher._internal.text import list_first
from thresher.errors import warn_user
from thresher.search.budget import Budget
from thresher.search.mask_search import MaskSearch
from thresher.search.ticket import MaskTicket


class SteppedSearch(MaskSearch):
    """Warns if the loop ends before every budget has its ticket, and if a ticket keeps nothing of a table."""

    _warned_unfinished = False

    @property
    def tickets(self) -> list[MaskTicket]:
        """The tickets, largest first; warns if budgets are missing because the loop ended too early."""
        self.warn_if_unfinished()
        return self.tickets_so_far

    def warn_if_unfinished(self) -> None:
        """Call this after the training loop: warns once if some budgets have no ticket."""
        if self.finished or self._warned_unfinished or not self.current_step or self.schedule is None:
            return
        self._warned_unfinished = True
        missing = ", ".join(map(str, self.open_budgets()))
        at = f"step {self.current_step:,} of {self.schedule.num_steps:,}"
        warn_user(
            f"the search has no ticket for {missing}: it is at {at}. Step it after every step of the optimizer, to the "
            "end; disable early stopping, since metrics fall while the search prunes. tickets_so_far does not warn"
        )

    def cut(self, budget: Budget, masks: Mapping[str, Tensor]) -> None:
        super().cut(budget, masks)
        if empty := [name for name, mask in masks.items() if not mask.any()]:
            warn_user(
                f"the ticket of {budget} keeps no entry of {list_first(empty, 3)}: its vectors are all 0 and cannot be "
                "retrained. Use a larger budget, or exclude the table from the search"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self.warn_if_unfinished()

    def __repr__(self) -> str:
        stage = "finished" if self.finished else "warming up" if self.warming_up else "pruning"
        kept = f"{self.num_kept:,} of {self.num_entries:,} entries kept"
        following = [] if self.next_budget is None else [f"next budget {self.next_budget}"]
        cut = ", ".join(str(ticket.budget) for ticket in self.tickets_so_far) or "none yet"
        progress = ", ".join([f"step {self.current_step:,}", stage, kept, *following])
        return f"{type(self).__name__}({progress}, tickets: {cut})"
