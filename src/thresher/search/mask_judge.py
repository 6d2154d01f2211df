"""MaskJudge: what the judges of all mask searches share: where they stand, what they cut, what a checkpoint holds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding
from thresher.search.cutting import Cutter
from thresher.search.plan import Schedule
from thresher.search.task import SearchTask
from thresher.search.ticket import MaskTicket, Scores
from thresher.training.checkpoint import Checkpoint
from thresher.training.early_stopping import EarlyStopping
from thresher.training.epochs import run_epochs
from thresher.training.metrics import Metrics


def cutter_for(task: SearchTask, tables: Mapping[str, FieldEmbedding], *, method: str) -> Cutter:
    """A cutter for a task whose tickets go into its folder.

    Args:
        tables: name → embedding with a `weight` `[N, D]`.
    """
    weights = {name: table.get_parameter("weight") for name, table in tables.items()}
    num_entries = sum(weight.numel() for weight in weights.values())
    return Cutter(
        task.model,
        weights,
        task.budgets,
        num_entries=num_entries,
        method=method,
        seed=task.seed,
        on_ticket=task.save,
    )


class MaskJudge:
    """Follows a training and ends it when every budget has its ticket. Subclasses say when to cut, and by which scores.

    Attributes:
        num_kept: entries the tables hold now.
        max_epochs: the most epochs it can take; set by the subclass.
        stopping: watches validation; what for is the subclass's business.
    """

    max_epochs: int

    def __init__(self, task: SearchTask, tables: Mapping[str, FieldEmbedding], *, method: str) -> None:
        self.task, self.config = task, task.config
        self.cutter = cutter_for(task, tables, method=method)
        self.step = self.epoch = 0
        self.num_kept = self.cutter.num_entries
        self.stopping = self.new_stopping()

    def new_stopping(self) -> EarlyStopping:
        """What watches a warm-up or a round of training."""
        return self.config.warmup_stopping()

    @property
    def finished(self) -> bool:
        return self.cutter.finished

    def after_step(self) -> None:
        self.step += 1

    def after_epoch(self, epoch: int, metrics: Metrics) -> Mapping[str, Any]:
        self.epoch = epoch
        self.judge_epoch(metrics)
        return {
            "step": self.step,
            "num_kept": self.num_kept,
            "tickets": [str(ticket.budget) for ticket in self.cutter.tickets],
        }

    def judge_epoch(self, metrics: Metrics) -> None:
        """What the subclass does between epochs."""

    def cut_due(self, scores: Scores, *, at_least: int) -> None:
        """Cut what is due now, as `Cutter.cut_due` does."""
        self.cutter.cut_due(scores, at_least=at_least, step=self.step, epoch=self.epoch)

    def progress(self) -> Mapping[str, Any]:
        budgets = self.cutter.open_budgets()
        return {"kept_parameters": self.num_kept, "next_budget": str(budgets[0]) if budgets else None}

    def facts(self) -> dict[str, Any]:
        position = {"step": self.step, "epoch": self.epoch, "num_kept": self.num_kept}
        tickets = [ticket.budget.slug for ticket in self.cutter.tickets]
        return {"position": position, "cutter": {"tickets": tickets}, "stopping": self.stopping.facts()}

    def tensors(self) -> dict[str, Tensor]:
        initial = {f"initial/{name}": value for name, value in self.cutter.initial_state.items()}
        return initial | {f"best/{name}": value for name, value in self.stopping.tensors().items()}

    def load(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        position, held = facts["position"], Checkpoint(tensors=dict(tensors))
        self.step, self.epoch, self.num_kept = position["step"], position["epoch"], position["num_kept"]
        self.cutter.restore(held.under("initial"), self.task.load_mask_tickets(facts["cutter"]["tickets"]))
        self.stopping.load(facts["stopping"], held.under("best"))


class PressingJudge(MaskJudge):
    """A warm-up, ended by validation or by count, then pressure at regular steps until the plan is through.

    Args:
        every: steps between two pressures, where not as the settings of the search say.
    """

    def __init__(
        self, task: SearchTask, tables: Mapping[str, FieldEmbedding], *, method: str, every: int | None = None
    ) -> None:
        super().__init__(task, tables, method=method)
        self.schedule = Schedule.of(task.config, len(task.data.train))
        self.every = every or self.schedule.every
        self.max_epochs = self.schedule.max_epochs
        self.pressing_since = None if self.schedule.warmup_steps else 0

    @property
    def at_end(self) -> bool:
        """The plan is through: whatever is still open must be cut."""
        return self.pressing_since is not None and self.step - self.pressing_since >= self.schedule.plan_steps

    def press(self, pressed_steps: int) -> None:
        """Prune as the plan says after so many steps of pressing, and cut what is due."""
        raise NotImplementedError

    def after_step(self) -> None:
        super().after_step()
        if self.pressing_since is None and self.step >= self.schedule.warmup_steps:
            self.pressing_since = self.step
        if self.pressing_since is None or self.finished:
            return
        pressed = self.step - self.pressing_since
        if pressed % self.every == 0 or pressed == self.schedule.plan_steps:
            self.press(pressed)

    def judge_epoch(self, metrics: Metrics) -> None:
        if self.pressing_since is None and self.config.warmup_epochs is None:
            self.stopping.update(self.epoch, metrics)
            if self.stopping.should_stop:
                self.pressing_since = self.step

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "pressing_since": self.pressing_since}

    def load(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        super().load(facts, tensors)
        self.pressing_since = facts["pressing_since"]


def run_mask_search(
    task: SearchTask,
    optimizer: torch.optim.Optimizer,
    judge: MaskJudge,
    *,
    stage: str,
    table_config: EmbeddingConfig,
) -> Sequence[MaskTicket]:
    """Train until the judge has cut every budget; what it cut, largest first."""
    budgets = [str(budget) for budget in task.budgets]
    run_epochs(
        task.model,
        optimizer,
        judge,
        task.data,
        stage=stage,
        settings={**asdict(task.config), "budgets": budgets, "table": asdict(table_config)},
        seed=task.seed,
        max_epochs=judge.max_epochs,
        folder=task.folder,
        progress=task.progress,
        should_stop=task.should_stop,
    )
    return judge.cutter.tickets
