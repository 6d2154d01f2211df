"""The search controller: warm-up, pruning at regular steps and cutting tickets, written once for all mask searches.

`MaskSearch` is stepped after each optimizer step, by any loop. `MaskSearchController` steps it in Thresher's training
loop; it is the base of the search algorithms that end in masks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from thresher.embeddings.base import FieldEmbedding
from thresher.embeddings.method_registry import method_name
from thresher.errors import AttachError, ConfigError
from thresher.search.budget import Budget
from thresher.search.cutting import Cutter, Scores
from thresher.search.find_tickets import SearchTask
from thresher.search.schedule import Schedule
from thresher.search.ticket import MaskTicket
from thresher.training.checkpoint import Checkpoint
from thresher.training.metrics import Metrics
from thresher.training.optimizers import build_optimizer

TableT = TypeVar("TableT", bound=FieldEmbedding)


class MaskSearch:
    """Prunes tables towards a list of budgets, one search for all of them. Subclasses implement `prune`.

    Args:
        cutter: cuts the tickets; it holds the budgets and the state that tickets rewind to.
        schedule: warm-up, length and interval of pruning; None: nothing is pruned between steps.

    Attributes:
        num_kept: entries kept now.
        current_step: steps so far.
        epoch: epochs so far, set by the training loop; written into tickets and records.
    """

    tables: Mapping[str, Any]
    """Name in the model → searched table, which has a `config`."""

    def __init__(self, cutter: Cutter, schedule: Schedule | None) -> None:
        self.cutter, self.schedule = cutter, schedule
        self.num_kept = self.num_entries
        self.current_step = self.epoch = 0
        self._pruning_since = 0 if schedule is not None and schedule.warmup_steps == 0 else None

    @property
    def budgets(self) -> Sequence[Budget]:
        return self.cutter.budgets

    @property
    def num_entries(self) -> int:
        """`N·D` over all searched tables, without padding rows."""
        return self.cutter.num_entries

    @property
    def tickets(self) -> list[MaskTicket]:
        """The tickets cut so far, largest first."""
        return self.cutter.tickets

    @property
    def initial_state(self) -> dict[str, Tensor]:
        """The model's state before the search, to which tickets rewind."""
        return self.cutter.initial_state

    @property
    def finished(self) -> bool:
        """Whether every budget has its ticket."""
        return self.cutter.finished

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
    def next_budget(self) -> Budget | None:
        """The largest budget without a ticket."""
        return next(iter(self.cutter.open_budgets()), None)

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

    def cut_due(self, scores: Scores, *, at_least: int) -> None:
        """Cut the tickets that are due, as `Cutter.cut_due` does."""
        self.cutter.cut_due(scores, at_least=at_least, step=self.current_step, epoch=self.epoch)

    def record(self) -> dict[str, Any]:
        """Fields for the training history."""
        tickets = [str(ticket.budget) for ticket in self.tickets]
        return {"step": self.current_step, "num_kept": self.num_kept, "tickets": tickets}

    def state(self) -> Checkpoint:
        """The progress of the search, and the model's state before it."""
        progress = {
            "step": self.current_step,
            "epoch": self.epoch,
            "pruning_since": self._pruning_since,
            "num_kept": self.num_kept,
        }
        state = Checkpoint(metadata=progress)
        state.add("initial", Checkpoint(self.initial_state))
        return state

    def restore(self, state: Checkpoint, tickets: Iterable[MaskTicket]) -> None:
        """Resume from `state()`; the caller must load the model's own state."""
        progress = state.metadata
        self.current_step, self.epoch = progress["step"], progress["epoch"]
        self._pruning_since, self.num_kept = progress["pruning_since"], progress["num_kept"]
        self.cutter.restore(state.part("initial").tensors, tickets)


class TableSearch(MaskSearch):
    """A mask search of embeddings that have a `weight` `[N, D]`, a `config` and `scores()`.

    Args:
        tables: name in the model → embedding; all have the same config.
    """

    def __init__(self, task: SearchTask, tables: Mapping[str, Any], schedule: Schedule | None = None) -> None:
        self.tables = tables
        weights = {name: table.get_parameter("weight") for name, table in tables.items()}
        cutter = Cutter(
            task.model,
            weights,
            task.budgets,
            num_entries=sum(weight.numel() for weight in weights.values()),
            method=method_name(next(iter(tables.values())).config),
            seed=task.seed,
            on_ticket=task.save,
        )
        super().__init__(cutter, schedule)

    def scores(self) -> dict[str, Tensor]:
        return {name: table.scores() for name, table in self.tables.items()}


class MaskSearchController:
    """Base of the search algorithms that end in masks: a `TrainingController` that steps a mask search.

    Args:
        optimizer: default: Adam with the settings of the task.
        max_epochs: maximum length of the training; default: warm-up and plan.

    Attributes:
        stage: name of the search in progress display and checkpoint.
    """

    stage: ClassVar[str]

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
        steps = len(task.data.train)
        self.max_epochs = Schedule.of(task.config, steps).num_epochs(steps) if max_epochs is None else max_epochs
        self.stopping = task.config.warmup_stopping()

    def run(self) -> Sequence[MaskTicket]:
        """Train until every budget has its ticket; returns them largest first."""
        settings = {
            **asdict(self.task.config),
            "budgets": [str(budget) for budget in self.task.budgets],
            "tables": {name: asdict(table.config) for name, table in self.search.tables.items()},
        }
        self.task.train(self.optimizer, self, stage=self.stage, settings=settings, max_epochs=self.max_epochs)
        return self.search.tickets

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
        return {"kept_parameters": self.search.num_kept, "next_budget": None if budget is None else str(budget)}

    def state(self) -> Checkpoint:
        state = Checkpoint(metadata={"tickets": [ticket.budget.slug for ticket in self.search.tickets]})
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
