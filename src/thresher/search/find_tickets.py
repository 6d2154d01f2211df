"""find_tickets(): one search, a ticket for every budget. Also the registry of search algorithms.

A method declares its algorithm as `FieldEmbedding.search_algorithm`; other packages may register further ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn

from thresher._internal.processes import current_processes, writes_files
from thresher._internal.registry import Registry
from thresher.embeddings.base import FieldEmbedding
from thresher.errors import AttachError, BudgetError, ConfigError
from thresher.search.budget import Budget, parse_budgets
from thresher.search.mask_search import count_halvings
from thresher.search.schedule import Schedule, SearchConfig
from thresher.search.ticket import MaskTicket, Ticket
from thresher.search.ticket_files import load_mask_ticket, save_ticket
from thresher.training.distillation import SoftLabels
from thresher.training.loop import run_epochs
from thresher.training.progress import Progress, Renamed
from thresher.training.run_state import TrainingController

if TYPE_CHECKING:
    from thresher.data.batches.split_batches import SplitBatches


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """The input of a search algorithm; `folder` and `should_stop` as for `find_tickets`."""

    model: nn.Module  # the search trains and changes it
    data: "SplitBatches"
    budgets: tuple[Budget, ...]
    config: SearchConfig
    seed: int
    decay_share: float = 1.0  # of distillation; applied to `config`, not to a method's own weight decay
    folder: Path | None = None
    progress: Progress | None = None
    should_stop: Callable[[], bool] | None = None

    def schedule(self, weights: Iterable[Tensor], num_entries: int | None = None) -> Schedule:
        """The settings in steps, for tables with these weights `[N, D]`; `num_entries` leaves out padding rows."""
        tables = list(weights)
        num_entries = sum(table.numel() for table in tables) if num_entries is None else num_entries
        num_halvings = count_halvings(self.budgets, tables, num_entries=num_entries)
        return Schedule.of(self.config, len(self.data.train), num_halvings)

    def train(
        self,
        optimizer: torch.optim.Optimizer,
        controller: TrainingController,
        *,
        stage: str,
        settings: Mapping[str, Any],
        max_epochs: int,
        share_tables: bool = False,
    ) -> None:
        """Train the model until the controller has finished, as `run_epochs` does."""
        run_epochs(
            self.model,
            optimizer,
            controller,
            self.data,
            stage=stage,
            settings=settings,
            seed=self.seed,
            max_epochs=max_epochs,
            folder=self.folder,
            progress=self.progress,
            should_stop=self.should_stop,
            share_tables=share_tables,
        )

    def save(self, ticket: Ticket) -> None:
        """Write a ticket into a subfolder named after its budget, if there is a folder."""
        if self.folder is not None and writes_files():
            save_ticket(ticket, self.folder / ticket.budget.slug)

    def load_mask_tickets(self, slugs: Iterable[str]) -> list[MaskTicket]:
        """Load saved tickets by the names of their budgets."""
        assert self.folder is not None, "only a search with a folder can be resumed"
        return [load_mask_ticket(self.folder / slug) for slug in slugs]


class SearchAlgorithm(Protocol):
    """A search. Its constructor checks settings and budgets and trains nothing."""

    def __init__(self, task: SearchTask) -> None: ...
    def run(self) -> Sequence[Ticket]:
        """Search the model of the task; returns a ticket for each budget, largest first."""


AlgorithmT = TypeVar("AlgorithmT", bound=type[SearchAlgorithm])
_MODULES = (
    "thresher.search.immediate",
    "thresher.search.searcher",
    "thresher.baselines.bilevel",
    "thresher.baselines.l1_projection",
    "thresher.baselines.magnitude",
    "thresher.baselines.nis",
    "thresher.baselines.post_training",
)


@dataclass(frozen=True)
class _RegisteredSearch:
    """An algorithm and what it declares; see `register_search`."""

    registered_class: type[SearchAlgorithm]
    units: tuple[str, ...]
    shared: bool


_registry: Registry[_RegisteredSearch] = Registry("search algorithm", _MODULES)


def register_search(
    name: str, *, units: Sequence[Literal["rows", "bundle"]] = (), shared: bool = False
) -> Callable[[AlgorithmT], AlgorithmT]:
    """Class decorator: make an algorithm available to methods that declare its name.

    Args:
        units: of budgets that it can meet beside entries, shares and bytes of tables: whole rows (`10%rows`), and all
            that a prediction loads (`1MB bundle`).
        shared: whether several processes can run it together.
    """

    def register(algorithm: AlgorithmT) -> AlgorithmT:
        _registry.add(name, _RegisteredSearch(algorithm, tuple(units), shared))
        return algorithm

    return register


def search_algorithm(name: str) -> type[SearchAlgorithm]:
    """Return the algorithm registered under a name."""
    return _registry.find(name).registered_class


def find_tickets(
    model: nn.Module,
    data: "SplitBatches",
    budgets: str | Iterable[str | int | Budget],
    config: SearchConfig | None = None,
    *,
    seed: int = 0,
    folder: Path | None = None,
    soft_labels: SoftLabels | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Sequence[Ticket]:
    """Search `model`, which is trained and pruned, and return a ticket for each budget, largest first.

    Args:
        data: its training and validation splits; the test split is not read.
        budgets: `"50k,2%,1MB"` or a list; parameters, shares or bytes over all searched tables together.
        seed: of the randomness inside training; the caller decides initial weights and batch order.
        folder: where tickets, history and a checkpoint are written; an unfinished search found there is resumed.
        soft_labels: targets of the training rows that replace their labels.
        should_stop: called after every step; if it returns True, a checkpoint is written and `TimeLimitReached` raised.
    """
    config = SearchConfig() if config is None else config
    if config.learning_rate_factor is not None:
        rate = config.optimizer.learning_rate * config.learning_rate_factor
        config = replace(config, optimizer=replace(config.optimizer, learning_rate=rate))
    if soft_labels is not None:
        data, config = soft_labels.relabel(data), replace(config, optimizer=soft_labels.scale_decay(config.optimizer))
        progress = Renamed(progress, "{}, soft labels")
    task = SearchTask(
        model=model,
        data=data,
        budgets=parse_budgets(budgets),
        config=config,
        seed=seed,
        decay_share=1.0 if soft_labels is None else 1 - soft_labels.teacher_share,
        folder=folder,
        progress=progress,
        should_stop=should_stop,
    )
    algorithm = _declared_algorithm(model)
    _check_units(algorithm, task.budgets)
    _check_processes(algorithm)
    return search_algorithm(algorithm)(task).run()


def unmet_budgets(
    model: nn.Module, data: "SplitBatches", budgets: Iterable[Budget], config: SearchConfig
) -> dict[Budget, BudgetError]:
    """The budgets that no ticket of this model can meet, with the reason; nothing is trained."""
    declared, remaining = _declared_algorithm(model), list(budgets)
    _check_processes(declared)
    algorithm = search_algorithm(declared)
    unmet: dict[Budget, BudgetError] = {}
    while remaining:
        try:
            _check_units(declared, remaining)
            algorithm(SearchTask(model=model, data=data, budgets=tuple(remaining), config=config, seed=0))
            break
        except BudgetError as error:
            if error.budget is None:
                raise
            refused = Budget.parse(error.budget)
            remaining.remove(refused)
            unmet[refused] = error
    return unmet


def _check_processes(algorithm: str) -> None:
    if current_processes() is not None and not _registry.find(algorithm).shared:
        raise ConfigError(
            f"search {algorithm!r} runs in one process only. Start one process, or use a method with another search, "
            "such as pep"
        )


def _check_units(algorithm: str, budgets: Iterable[Budget]) -> None:
    units = _registry.find(algorithm).units
    for budget in budgets:
        if budget.unit == "rows" and "rows" not in units:
            message = f"budget {budget} keeps whole rows, which the search {algorithm!r} cannot. Use a share: 2%"
            raise BudgetError(message, budget=budget.text)
        if budget.unit == "bundle" and "bundle" not in units:
            message = f"budget {budget} counts a bundle, which the search {algorithm!r} cannot. Use table bytes: 1MB"
            raise BudgetError(message, budget=budget.text)


def _declared_algorithm(model: nn.Module) -> str:
    declared = {module.search_algorithm for module in model.modules() if isinstance(module, FieldEmbedding)}
    if not declared:
        raise AttachError("the model has no embedding to search. Build it with PepConfig or call attach_ on it first")
    if len(declared) > 1:
        raise ConfigError(
            f"the embeddings need different searches: {', '.join(sorted(declared))}. Use one method for all"
        )
    return declared.pop()
