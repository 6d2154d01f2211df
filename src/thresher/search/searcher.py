"""Searcher: PEP's threshold search as an object that a training loop steps.

    searcher = Searcher(model, budgets=["50k", "2%"], steps=20_000)
    ...
    loss.backward(); optimizer.step(); searcher.step()

This is Algorithm 1 of the paper up to line 4, for all budgets in one run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from thresher._internal.processes import Processes, check_whole, current_processes
from thresher._internal.text import list_first
from thresher.attach.optimizer_watch import OptimizerWatch
from thresher.attach.training_warnings import ThresholdDecayCheck, UntrainedCheck
from thresher.embeddings.pep import PepEmbedding
from thresher.errors import AttachError, BudgetError, ConfigError
from thresher.kernels.score_histogram import clock_from_counts, sum_of_counts
from thresher.kernels.top_scores import ScoredTable, count_above
from thresher.search.budget import Budget, parse_budgets
from thresher.search.controller import MaskSearchController, SteppedSearch
from thresher.search.find_tickets import SearchTask, register_search
from thresher.search.mask_search import Scores, clock_for, scored_tables
from thresher.search.schedule import Plan, Schedule
from thresher.search.searched_table import IN_MEMORY_ENTRIES, rows_with_top_scores, searched_tables
from thresher.search.ticket import MaskTicket
from thresher.search.ticket_files import mask_ticket_from_state, mask_ticket_state
from thresher.training.checkpoint import Checkpoint
from thresher.training.optimizers import build_optimizer

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Searcher(SteppedSearch):
    """Raises the thresholds of a model's PEP tables towards a list of budgets, one search for all of them.

    Args:
        model: a model with PEP tables; tickets rewind to its present state.
        budgets: sizes over all searched tables together.
        warmup_steps: steps in which nothing is pruned (default: a third of `steps`); `end_warmup` ends them earlier.
        every: steps between two settings of the clock (default: 20, in long searches a thousandth of the pruning).
        before_cut: called before the entries of all rows are scored for a ticket; by default `catch_up` of the
            `RowAdam` that updates the tables.
        group: the processes that train copies of the model together (DistributedDataParallel), by default all of
            torch.distributed. Each must step its own searcher; all cut the same tickets.
    """

    def __init__(
        self,
        model: nn.Module,
        budgets: str | int | Budget | Iterable[str | int | Budget],
        *,
        steps: int,
        warmup_steps: int | None = None,
        every: int | None = None,
        seed: int = 0,
        on_ticket: Callable[[MaskTicket], None] | None = None,
        before_cut: Callable[[], None] | None = None,
        group: "ProcessGroup | None" = None,
    ) -> None:
        schedule = Schedule.of_steps(steps, warmup_steps, every)
        self.tables = searched_tables(model)
        for name, table in self.tables.items():
            check_whole(name, table.holders[0].raw_weight)
        super().__init__(
            model,
            {name: table.holders[0].raw_weight for name, table in self.tables.items()},
            parse_budgets(budgets),
            num_entries=sum(table.holders[0].num_entries() for table in self.tables.values()),
            method="pep",
            seed=seed,
            on_ticket=on_ticket,
            schedule=schedule,
        )
        self._holders = [holder for table in self.tables.values() for holder in table.holders]
        self.planned = self._holders[0].config.pressure == "plan"
        if self.planned:
            schedule.check_pruning()
        self._watch, self._num_steps = OptimizerWatch(self._holders), steps
        self.before_cut = self._watch.catch_up if before_cut is None else before_cut
        by_rows = all(table.row_gradients for table in self.tables.values())
        self._counts_in_histograms = by_rows or self.num_entries > IN_MEMORY_ENTRIES
        self.num_rows -= sum(table.padding_id is not None for table in self.tables.values())
        self.plan = Plan(self.num_entries, self.smallest, schedule.plan_steps)
        self._untrained, self._threshold_decay = UntrainedCheck(model, self.initial_state), ThresholdDecayCheck(model)
        self.processes = Processes.of(group)

    def step(self) -> None:
        self._threshold_decay.warn()
        super().step()

    def synchronize(self) -> None:
        """Unite the rows that each process has seen; call it in all of them before one of them saves the model.

        Pruning does this by itself. Raises if the copies of the tables differ.
        """
        if self.processes is None:
            return
        for holder in self._holders:
            holder.unite_seen(self.processes)
        if self.processes == current_processes():
            return  # Thresher's training loop exchanges gradients itself
        parameters = {f"{name}.weight": table.holders[0].raw_weight for name, table in self.tables.items()}
        parameters |= {f"the thresholds of {name}": table.holders[0].thresholds for name, table in self.tables.items()}
        if different := self.processes.differing(list(parameters.values())):
            raise AttachError(
                f"{list_first([list(parameters)[number] for number in different], 3)} differ between the processes. "
                "Call attach_ before the model is wrapped in DistributedDataParallel, use the same seed in all "
                "processes, and train through the wrapped model"
            )
        for holder in self._holders:
            holder.forget_row_records()

    def prune(self, steps: int) -> None:
        self.synchronize()
        self._untrained.check()
        scores = self._scores()
        self.num_kept = self._raise_thresholds(steps, scores)
        if self.may_be_due(self.num_kept):
            self.before_cut()
            scores = self._scores_for_cut()
        self.cut_due(scores, at_least=0 if self.planned and self.at_end else self.num_kept)

    def kept_values(self, name: str, mask: Tensor) -> Tensor:
        holder: PepEmbedding = self.tables[name].holders[0]
        return holder.kept_values(mask)

    def row_norms(self, name: str) -> Tensor:
        norms = super().row_norms(name)
        return norms.where(torch.from_numpy(self.tables[name].score_histogram().counted_rows()), -torch.inf)

    def _scores(self) -> Mapping[str, ScoredTable]:
        return {name: table.scored() for name, table in self.tables.items()}

    def _scores_for_cut(self) -> Mapping[str, ScoredTable]:
        """Scores with at least as many of the highest ones as a budget without ticket may keep."""
        most = max(budget.max_entries(self.num_entries) for budget in self.open_budgets())
        is_large = self.planned and self.num_entries > IN_MEMORY_ENTRIES
        return (rows_with_top_scores(self.tables, most) if is_large else None) or self._scores()

    def _raise_thresholds(self, steps: int, scores: Scores) -> int:
        """Set the clock as planned and return the number of entries kept.

        With row updates, and for large tables, the clock is read from histograms, exact to a small part of a bin; row
        updates keep them up to date. Else it is read from all scores. Tickets are cut by exact scores either way.
        """
        if not self.planned:  # weight decay raises the raw thresholds, inside the optimizer; scores above 0 are kept
            return count_above(scored_tables(scores), 0.0)
        num_kept = self.plan.num_kept(steps)
        if self._counts_in_histograms:
            histograms = [table.score_histogram() for table in self.tables.values()]
            clock = torch.tensor(clock_from_counts(sum_of_counts(histograms), num_kept))
        else:
            clock = clock_for(scores, num_kept)
        for table in self._holders:
            table.clock.copy_(clock)
        return num_kept

    def record(self) -> dict[str, Any]:
        tables = [table.holders[0] for table in self.tables.values()]
        lowest, highest = zip(*(table.threshold_range() for table in tables), strict=True)
        return super().record() | {
            "num_kept": sum(table.num_parameters() for table in tables),
            "warming_up": self.warming_up,
            "threshold_min": min(lowest),
            "threshold_max": max(highest),
        }

    def state_dict(self) -> dict[str, Any]:
        """Plain data and tensors from which a search resumes, together with the state of model and optimizer."""
        state = self.state()
        return {
            "budgets": [str(budget) for budget in self.budgets],
            "steps": self._num_steps,
            "progress": state.metadata,
            "tensors": state.tensors,
            "tickets": [mask_ticket_state(ticket) for ticket in self.tickets_so_far],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state_dict`; the state of model and optimizer must be loaded too."""
        stored = [Budget.parse(text) for text in state["budgets"]]
        if set(stored) != set(self.budgets):
            raise ConfigError(
                f"the state is of a search with the budgets {', '.join(map(str, stored))}; this search has "
                f"{', '.join(map(str, self.budgets))}. Create the searcher with the same budgets"
            )
        if state["steps"] != self._num_steps:
            raise ConfigError(
                f"the state is of a search of {state['steps']:,} steps; this search has {self._num_steps:,}. Create "
                "the searcher with the same number of steps"
            )
        both = (state["tensors"], self.state().tensors)
        shapes, own = ({(name, value.shape) for name, value in tensors.items()} for tensors in both)
        if different := sorted({name.removeprefix("initial/") for name, _ in shapes ^ own}):
            raise ConfigError(f"the state is of a search of another model: {', '.join(different[:3])} differ")
        tickets = [mask_ticket_from_state(ticket) for ticket in state["tickets"]]
        self.restore(Checkpoint(state["tensors"], state["progress"]), tickets)


@register_search("threshold", units=("rows", "bundle"), shared=True)
class ThresholdController(MaskSearchController):
    """PEP's search in Thresher's training loop."""

    stage = "search"
    only_reads_tables = True
    search: Searcher

    def __init__(self, task: SearchTask) -> None:
        tables = [table.holders[0] for table in searched_tables(task.model).values()]
        schedule = task.schedule([table.weight for table in tables], sum(table.num_entries() for table in tables))
        optimizer = build_optimizer(task.model, task.config.optimizer)
        searcher = Searcher(
            task.model,
            task.budgets,
            steps=schedule.num_steps,
            warmup_steps=schedule.warmup_steps,
            every=schedule.every,
            seed=task.seed,
            on_ticket=task.save,
        )
        searcher.plan = replace(searcher.plan, halving_steps=schedule.halving_steps)
        if not searcher.planned:
            if task.config.optimizer.threshold_decay * task.config.optimizer.threshold_learning_rate == 0:
                raise ConfigError(
                    'pressure = "decay" raises thresholds by their weight decay, but search.optimizer.threshold_decay '
                    "(or threshold_learning_rate) is 0: no budget would be reached. The authors' value is 1e-5"
                )
            searcher.end_warmup()
        super().__init__(task, searcher, optimizer, max_epochs=None if searcher.planned else task.config.max_epochs)

    def run(self) -> Sequence[MaskTicket]:
        tickets = super().run()
        if not self.search.finished:
            missing = ", ".join(map(str, self.search.open_budgets()))
            raise BudgetError(
                f"after {self.max_epochs} epochs {self.search.num_kept:,} parameters are kept, and budget {missing} "
                'was not reached: decay stalls as thresholds approach 0. Use pressure = "plan", or a larger budget'
            )
        return tickets
