"""Search algorithms by name. A method declares which one serves it; a third party may register another."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from thresher._internal.registry import Registry
from thresher.search.budget import Budget
from thresher.search.config import SearchConfig
from thresher.search.ticket import MaskTicket, Ticket
from thresher.search.ticket_files import load_mask_ticket, save_ticket
from thresher.training.progress import Progress

if TYPE_CHECKING:
    from thresher.data.batches.split_batches import SplitBatches


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """All a search is given.

    Attributes:
        model: to be searched, and changed by it.
        decay_share: factor on a method's own weight decay of embeddings; that in `config` is scaled already.
        folder: where tickets, history and checkpoint go; a search found there is taken up again. None: memory only.
    """

    model: nn.Module
    data: "SplitBatches"
    budgets: tuple[Budget, ...]
    config: SearchConfig
    seed: int
    decay_share: float = 1.0
    folder: Path | None = None
    progress: Progress | None = None
    should_stop: Callable[[], bool] | None = None

    def save(self, ticket: Ticket) -> None:
        """Write a ticket into the folder, under its budget's name; without one, do nothing."""
        if self.folder is not None:
            save_ticket(ticket, self.folder / ticket.budget.slug)

    def load_mask_tickets(self, slugs: Iterable[str]) -> list[MaskTicket]:
        """Those saved before, by the names of their budgets."""
        assert self.folder is not None, "only a search with a folder has anything to take up"
        return [load_mask_ticket(self.folder / slug) for slug in slugs]


SearchAlgorithm = Callable[[SearchTask], Sequence[Ticket]]
_MODULES = (
    "thresher.search.immediate",
    "thresher.search.threshold",
    "thresher.baselines.bilevel",
    "thresher.baselines.l1_projection_search",
    "thresher.baselines.magnitude_search",
    "thresher.baselines.nis_controller",
)
_registry: Registry[SearchAlgorithm] = Registry("search algorithm", _MODULES)


def register_search(name: str) -> Callable[[SearchAlgorithm], SearchAlgorithm]:
    """Function decorator: make an algorithm available to methods that declare its name."""

    def register(algorithm: SearchAlgorithm) -> SearchAlgorithm:
        _registry.add(name, algorithm)
        return algorithm

    return register


def search_algorithm(name: str) -> SearchAlgorithm:
    """The algorithm registered under a name."""
    return _registry.find(name)
