"""PEP's search: train; when the kept count falls to a budget, cut its ticket; end after the last.

Algorithm 1 of the paper up to its line 4, for all budgets in one run. The stepping is `Searcher`'s; here our own
training loop drives it, with a warm-up that validation ends, and a folder from which a killed search goes on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor

from thresher.errors import BudgetError, ConfigError
from thresher.search.plan import Schedule
from thresher.search.searcher import Searcher
from thresher.search.task import SearchTask, register_search
from thresher.search.ticket import MaskTicket
from thresher.training.epochs import run_epochs
from thresher.training.metrics import Metrics
from thresher.training.optimizers import OptimizerConfig, build_optimizer
from thresher.training.row_adam import RowAdam

STAGE = "search"


@register_search("threshold")
def search_thresholds(task: SearchTask) -> Sequence[MaskTicket]:
    """Run the search a task describes; tickets come in the order they were cut, largest first."""
    config, schedule = task.config, Schedule.of(task.config, len(task.data.train))
    optimizer = build_optimizer(task.model, config.optimizer)
    searcher = Searcher(
        task.model,
        task.budgets,
        steps=schedule.num_steps,
        warmup_steps=schedule.warmup_steps,
        every=schedule.every,
        seed=task.seed,
        on_ticket=task.save,
        before_cut=optimizer.catch_up if isinstance(optimizer, RowAdam) else None,
    )
    judge = _SearchJudge(searcher, task)
    _check_reachable(judge, config.optimizer)
    run_epochs(
        task.model,
        optimizer,
        judge,
        task.data,
        stage=STAGE,
        settings={
            **asdict(config),
            "budgets": [str(budget) for budget in task.budgets],
            "tables": {name: asdict(table.holders[0].config) for name, table in searcher.tables.items()},
        },
        seed=task.seed,
        max_epochs=schedule.max_epochs if searcher.planned else config.max_epochs,
        folder=task.folder,
        progress=task.progress,
        should_stop=task.should_stop,
    )
    if not searcher.finished:
        missing = ", ".join(str(budget) for budget in searcher.budgets if budget not in judge.cut_budgets())
        raise BudgetError(
            f"after {config.max_epochs} epochs {searcher.num_kept:,} parameters are left, and budget {missing} was not "
            'reached: decay stalls as thresholds near 0. Use pressure = "plan", or a larger budget'
        )
    return searcher.tickets


class _SearchJudge:
    """Ends a search when every budget has its ticket, and its warm-up when validation no longer improves."""

    def __init__(self, searcher: Searcher, task: SearchTask) -> None:
        self.searcher, self.task, self.config = searcher, task, task.config
        self.warmup = task.config.warmup_stopping()
        if not searcher.planned:
            searcher.end_warmup()

    @property
    def finished(self) -> bool:
        gave_up = not self.searcher.planned and self.searcher.epoch >= self.config.max_epochs
        return self.searcher.finished or gave_up

    def cut_budgets(self) -> set[Any]:
        return {ticket.budget for ticket in self.searcher.tickets}

    def after_step(self) -> None:
        self.searcher.step()

    def after_epoch(self, epoch: int, metrics: Metrics) -> Mapping[str, Any]:
        searcher = self.searcher
        searcher.epoch = epoch
        if searcher.warming_up and self.config.warmup_epochs is None:
            self.warmup.update(epoch, metrics)
            if self.warmup.should_stop:
                searcher.end_warmup()
        tables = [table.holders[0] for table in searcher.tables.values()]
        lowest, highest = zip(*(table.threshold_range() for table in tables), strict=True)
        return {
            "step": searcher.current_step,
            "num_kept": sum(table.num_parameters() for table in tables),
            "warming_up": searcher.warming_up,
            "threshold_min": min(lowest),
            "threshold_max": max(highest),
            "tickets": [str(ticket.budget) for ticket in searcher.tickets],
        }

    def progress(self) -> Mapping[str, Any]:
        budget = self.searcher.next_budget
        return {"kept_parameters": self.searcher.num_kept, "next_budget": None if budget is None else str(budget)}

    def facts(self) -> dict[str, Any]:
        slugs = [ticket.budget.slug for ticket in self.searcher.tickets]
        return {"position": self.searcher.position(), "tickets": slugs, "warmup": self.warmup.facts()}

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.searcher.initial_state)

    def load(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        self.searcher.restore(facts["position"], tensors, self.task.load_mask_tickets(facts["tickets"]))
        self.warmup.load(facts["warmup"], {})


def _check_reachable(judge: _SearchJudge, optimizer: OptimizerConfig) -> None:
    """Refuse, before it starts, a search that cannot press."""
    if not judge.searcher.planned and optimizer.threshold_decay * optimizer.threshold_learning_rate == 0:
        raise ConfigError(
            'pressure = "decay" moves thresholds by their weight decay alone, and search.optimizer.threshold_decay (or '
            "threshold_learning_rate) is 0, so no budget would ever be reached; the authors' value is 1e-5"
        )
