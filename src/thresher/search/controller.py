"""What drives a mask search: Thresher's training loop (`MaskSearchController`), or a user's own (`SteppedSearch`)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn

from thresher._internal.text import list_first
from thresher.embeddings.base import FieldEmbedding
from thresher.embeddings.method_registry import method_name
from thresher.errors import AttachError, ConfigError, warn_user
from thresher.search.budget import Budget
from thresher.search.find_tickets import SearchTask
from thresher.search.mask_search import MaskSearch
from thresher.search.schedule import Schedule
from thresher.search.ticket import MaskTicket
from thresher.training.checkpoint import Checkpoint
from thresher.training.metrics import Metrics
from thresher.training.optimizers import build_optimizer

TableT = TypeVar("TableT", bound=FieldEmbedding)


class TableSearch(MaskSearch):
    """A mask search of embeddings that have a `weight` `[N, D]`, `scores()` and the same `config`."""

    def __init__(self, task: SearchTask, tables: Mapping[str, Any], schedule: Schedule | None = None) -> None:
        self.tables = tables
        weights = {name: table.get_parameter("weight") for name, table in tables.items()}
        super().__init__(
            task.model,
            weights,
            task.budgets,
            num_entries=sum(weight.numel() for weight in weights.values()),
            method=method_name(next(iter(tables.values())).config),
            seed=task.seed,
            on_ticket=task.save,
            schedule=schedule,
        )

    def scores(self) -> dict[str, Tensor]:
        return {name: table.scores() for name, table in self.tables.items()}


class MaskSearchController:
    """A `TrainingController` that steps a mask search; by default with the task's Adam, for warm-up and plan."""

    stage: ClassVar[str]  # in progress display and checkpoint
    only_reads_tables: ClassVar[bool] = False  # so that processes of one machine may share them

    def __init__(
        self,
        task: SearchTask,
        search: MaskSearch,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        max_epochs: int | None = None,
    ) -> None:
        self.task, self.search = task, search
        self.optimizer = build_optimizer(task.model, task.config.optimizer) if optimizer is None else optimizer
        self.planned = max_epochs is None
        if max_epochs is None:
            assert search.schedule is not None, "a search without a plan has a maximum number of epochs"
            max_epochs = search.schedule.num_epochs(len(task.data.train))
        self.max_epochs = max_epochs
        self.stopping = task.config.warmup_stopping()

    def run(self) -> Sequence[MaskTicket]:
        """Train until every budget has its ticket; returns them largest first."""
        settings = {
            **asdict(self.task.config),
            "budgets": [str(budget) for budget in self.task.budgets],
            "tables": {name: asdict(table.config) for name, table in self.search.tables.items()},
        }
        self.task.train(
            self.optimizer,
            self,
            stage=self.stage,
            settings=settings,
            max_epochs=self.max_epochs,
            share_tables=self.only_reads_tables,
        )
        return self.search.tickets_so_far

    @property
    def finished(self) -> bool:
        return self.search.finished or self.search.epoch >= self.max_epochs

    def after_step(self) -> None:
        self.search.step()

    def after_epoch(self, epoch: int, metrics: Metrics) -> Mapping[str, Any]:
        self.search.epoch = epoch
        self.end_epoch(metrics)
        return self.search.record()

    def end_epoch(self, metrics: Metrics) -> None:
        """Decide on validation metrics: by default, end a warm-up without a fixed length if they no longer improve."""
        if self.search.warming_up and self.task.config.warmup_epochs is None:
            self.stopping.update(self.search.epoch, metrics)
            if self.stopping.should_stop:
                self.search.end_warmup()

    def progress(self) -> Mapping[str, Any]:
        budget = self.search.next_budget
        kept = {"kept_parameters": self.search.num_kept, "next_budget": None if budget is None else str(budget)}
        return {**kept, **self.length()}

    def length(self) -> Mapping[str, Any]:
        """Fields of `ProgressState` from which the end of the search is estimated."""
        schedule, steps = self.search.schedule, len(self.task.data.train)
        if schedule is None or not self.planned:
            return {}
        if self.search.warming_up and self.task.config.warmup_epochs is None:
            return {**self.stopping.progress(), "planned_epochs": schedule.plan_steps / steps}
        end = schedule.num_steps if self.search.end_step is None else self.search.end_step
        return {"patience": None, "planned_epochs": end / steps}

    def state(self) -> Checkpoint:
        state = Checkpoint(metadata={"tickets": [ticket.budget.slug for ticket in self.search.tickets_so_far]})
        state.add("search", self.search.state())
        state.add("stopping", self.stopping.state())
        return state

    def load(self, state: Checkpoint) -> None:
        self.search.restore(state.part("search"), self.task.load_mask_tickets(state.metadata["tickets"]))
        self.stopping.load(state.part("stopping"))


def find_tables(model: nn.Module, kind: type[TableT]) -> dict[str, TableT]:
    """Name in the model → table of this kind; all must have the same settings."""
    tables = {name: module for name, module in model.named_modules() if isinstance(module, kind)}
    if not tables:
        raise AttachError(f"the model has no {kind.__name__} to search. Build it with a config of that method")
    if len({table.config for table in tables.values()}) > 1:
        raise ConfigError("the model's tables have different settings of their method. Use one for all of them")
    return tables


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
