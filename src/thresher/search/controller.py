"""MaskSearchController: a mask search in Thresher's training loop, the base of search algorithms that end in masks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from thresher.embeddings.base import FieldEmbedding
from thresher.embeddings.method_registry import method_name
from thresher.errors import AttachError, ConfigError
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
        self.task.train(self.optimizer, self, stage=self.stage, settings=settings, max_epochs=self.max_epochs)
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
