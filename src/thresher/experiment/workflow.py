"""Workflow: dense training → distillation? → search → retraining, written once and run in this order.

    check budgets → floor → dense model → soft labels → distillation plan → tickets → pruned models

The floor is the linear term alone: it shows how much embeddings gain.

By default the search starts from the trained dense model, and a ticket is trained on from the search's values (`effort`
in `experiment/effort.py`).

`prune` (files of a run) and `prune_model` (models in memory) run it once, `compare` runs it for every cell of its grid.
To choose a distillation plan, a ticket of a fixed size is trained briefly under each (`try_plans`); a search from the
initial weights is compared by its smallest ticket, retrained in full (`compare_plans`).
Validation decides everything; the test split of a model is read once, after all decisions about it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from torch import nn

from thresher.data.batches.split_batches import SplitBatches
from thresher.errors import BudgetError
from thresher.experiment.dense_start import DenseStart
from thresher.experiment.effort import StageSettings
from thresher.experiment.floor import NO_EMBEDDING, Floor, floor_training
from thresher.experiment.retrain import TrainedModel, retrain_ticket, train_model, with_test_metrics
from thresher.search.budget import Budget
from thresher.search.find_tickets import find_tickets, unmet_budgets
from thresher.search.ticket import Ticket
from thresher.training.distillation import DistillationPlan, PlanChoice, SoftLabels, choose_plan
from thresher.training.progress import Progress, Renamed

ResultT = TypeVar("ResultT")
TRIAL_BUDGET = "5%"
"""Size at which labels are tried."""
TRIAL_EPOCHS = 2
"""Length of the training on which labels are tried."""


class ModelBuilder(Protocol):
    """Builds the models of a workflow; each call gives a fresh model with the same initial weights."""

    def dense(self) -> nn.Module:
        """The unpruned model."""

    def searched(self) -> nn.Module:
        """The model with tables that a search prunes."""

    def for_ticket(self, ticket: Ticket) -> nn.Module:
        """The model that a ticket is applied to."""


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The stages that train. Each resumes unfinished work in its folder under `folder`; None keeps all in memory."""

    models: ModelBuilder
    data: SplitBatches
    settings: StageSettings
    seed: int = 0
    folder: Path | None = None
    progress: Progress | None = None
    should_stop: Callable[[], bool] | None = None

    def unmet_budgets(self, budgets: Sequence[Budget]) -> dict[Budget, BudgetError]:
        """The budgets that no ticket can meet, with the reason; nothing is trained."""
        return unmet_budgets(self.models.searched(), self.data, budgets, self.settings.search)

    def train(
        self,
        model: nn.Module,
        name: str,
        *,
        stage: str,
        soft_labels: SoftLabels | None = None,
        test: bool,
    ) -> TrainedModel:
        """Train a model as it is, in the folder `name`; `stage` is its name in the progress display."""
        return train_model(
            model,
            self._data(test=test),
            self.settings.training,
            seed=self.seed,
            folder=self._folder(name),
            stage=stage,
            soft_labels=soft_labels,
            progress=self.progress,
            should_stop=self.should_stop,
        )

    def train_dense(self, *, test: bool = True) -> TrainedModel:
        """Train the unpruned model: the reference, and the first teacher."""
        return self.train(self.models.dense(), "dense", stage="dense", test=test)

    def train_floor(self, model: nn.Module) -> TrainedModel:
        """Train a model without an embedding until it converges."""
        stages = replace(self, settings=replace(self.settings, training=floor_training(self.settings.training)))
        return stages.train(model, "floor", stage=NO_EMBEDDING, test=True)

    def find_tickets(
        self,
        budgets: Sequence[Budget],
        name: str,
        *,
        start: DenseStart | None = None,
        soft_labels: SoftLabels | None = None,
    ) -> Sequence[Ticket]:
        """One search; a ticket for each budget, largest first. `start` is needed if the settings start there."""
        return find_tickets(
            self._searched(start),
            self.data,
            budgets,
            self.settings.search_config(_epochs(start), soft_labels=soft_labels is not None),
            seed=self.seed,
            folder=self._folder(name),
            soft_labels=soft_labels,
            progress=self.progress,
            should_stop=self.should_stop,
        )

    def retrain(
        self,
        ticket: Ticket,
        name: str,
        *,
        start: DenseStart | None = None,
        soft_labels: SoftLabels | None = None,
        test: bool = False,
    ) -> TrainedModel:
        """Train what a ticket keeps, from the search's values or from a model rewound to its initial weights."""
        rewind = self.settings.resolved_rewind
        if rewind == "initial" and self.settings.start == "dense":
            rewind = "random"  # a fresh model has the initial weights; the ticket has those of the dense model
        return retrain_ticket(
            ticket,
            self.models.for_ticket(ticket),
            self._data(test=test),
            self.settings.retraining_config(_epochs(start), soft_labels=soft_labels is not None),
            rewind=rewind,
            seed=self.seed,
            folder=self._folder(name),
            soft_labels=soft_labels,
            progress=self.progress,
            should_stop=self.should_stop,
        )

    def try_labels(self, name: str, *, start: DenseStart, soft_labels: SoftLabels | None) -> float:
        """Validation AUC of the dense model pruned at once to `TRIAL_BUDGET` and trained briefly on these labels."""
        search = replace(self.settings.search, start="dense", plan_epochs=1 / len(self.data.train), halving_epochs=None)
        (ticket,) = find_tickets(self._searched(start), self.data, TRIAL_BUDGET, search, seed=self.seed)
        training = self.settings.retraining_config(None, soft_labels=soft_labels is not None)
        trained = retrain_ticket(
            ticket,
            self.models.for_ticket(ticket),
            self._data(test=False),
            replace(training, max_epochs=TRIAL_EPOCHS),
            rewind="final",
            seed=self.seed,
            folder=self._folder(name),
            soft_labels=soft_labels,
            progress=Renamed(self.progress, "try {}"),
            should_stop=self.should_stop,
        )
        return trained.fit.validation.auc

    def _searched(self, start: DenseStart | None) -> nn.Module:
        model = self.models.searched()
        if self.settings.start == "dense":
            assert start is not None, "the dense model is trained before the search"
            start.load_into_(model, self.data.feature_counts)
        return model

    def _data(self, *, test: bool) -> SplitBatches:
        return self.data if test else replace(self.data, test=None)

    def _folder(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / name


@dataclass(frozen=True)
class WorkflowResult(Generic[ResultT]):
    """The results of a workflow: floor, dense model, distillation plan, and one pruned model per budget."""

    floor: ResultT | None
    dense: ResultT | None
    plan: DistillationPlan
    pruned: Mapping[Budget, ResultT]


@dataclass(kw_only=True)
class Workflow(ABC, Generic[ResultT]):
    """Runs the stages in order and decides about distillation on validation.

    `RunWorkflow` (`prune`) keeps files and skips finished stages; `_ModelWorkflow` (`prune_model`) keeps models; `Cell`
    (`compare`) keeps points.

    Attributes:
        plans: distillation plans to choose from; with a single plan nothing is tried.
    """

    stages: Stages
    budgets: Sequence[Budget]
    plans: Sequence[DistillationPlan]
    _tried: dict[tuple[DistillationPlan, Budget], TrainedModel] = field(default_factory=dict)

    def run(self) -> WorkflowResult[ResultT]:
        """The whole workflow."""
        self.check_budgets()
        floor = self.train_floor()
        dense = self.train_dense()
        self.make_soft_labels(dense)
        plan = self.choose_distillation()
        tickets = self.find_tickets(plan)
        pruned = {ticket.budget: self.prune_to(ticket, plan) for ticket in tickets}
        return WorkflowResult(floor, dense, plan, pruned)

    def check_budgets(self) -> None:
        """Raise, before anything is trained, if a budget cannot be met."""
        for error in self.stages.unmet_budgets(self.budgets).values():
            raise error

    @abstractmethod
    def train_floor(self) -> ResultT | None:
        """The trained and tested model without an embedding; None if there is none to compare with."""

    @abstractmethod
    def floor(self) -> Floor | None:
        """The predictions of the floor, once it is trained."""

    def over_floor(self, trained: TrainedModel) -> TrainedModel:
        """The same model with its gain over the floor."""
        floor = self.floor()
        return trained if floor is None else floor.compare(trained, self.stages.data.validation)

    @abstractmethod
    def train_dense(self) -> ResultT | None:
        """The trained and tested dense model; None if it is not wanted."""

    @abstractmethod
    def make_soft_labels(self, dense: ResultT | None) -> None:
        """Predict the training rows with every teacher, if a plan needs it."""

    def choose_distillation(self) -> DistillationPlan:
        """The only plan, or the last one that raises the validation AUC of the smallest ticket by `MIN_GAIN`."""
        if len(self.plans) == 1:
            return self.plans[0]
        return (self.try_plans() if self.stages.settings.start == "dense" else self.compare_plans()).best

    def try_plans(self) -> PlanChoice:
        """Train the dense model, pruned to a fixed size, under each plan. The choice depends on no budget."""

        def validation_auc(plan: DistillationPlan) -> float:
            start = self.dense_start()
            assert start is not None
            labels = self.soft_labels(plan.retraining)
            return self.stages.try_labels(f"dense/trials/{plan}", start=start, soft_labels=labels)

        return choose_plan(self.plans, validation_auc)

    def compare_plans(self) -> PlanChoice:
        """Search and retrain the smallest ticket under plan after plan, while validation AUC rises by `MIN_GAIN`."""

        def validation_auc(plan: DistillationPlan) -> float:
            smallest = min(self.find_tickets(plan), key=lambda ticket: ticket.num_parameters)
            trained = self.retrain(smallest, plan)
            self._tried = {**dict(list(self._tried.items())[-1:]), (plan, smallest.budget): trained}
            return trained.fit.validation.auc

        choice = choose_plan(self.plans, validation_auc)
        self._tried = {key: trained for key, trained in self._tried.items() if key[0] == choice.best}
        return choice

    @abstractmethod
    def dense_start(self) -> DenseStart | None:
        """The trained dense model, if the search starts from it."""

    @abstractmethod
    def soft_labels(self, share: float) -> SoftLabels | None:
        """The soft labels of all teachers; None if their share is 0."""

    @abstractmethod
    def find_tickets(self, plan: DistillationPlan) -> Sequence[Ticket]:
        """The tickets of the search under a plan; a second call does not search again."""

    @abstractmethod
    def retrain(self, ticket: Ticket, plan: DistillationPlan) -> TrainedModel:
        """A ticket's model, trained but not tested."""

    def prune_to(self, ticket: Ticket, plan: DistillationPlan) -> ResultT:
        """Retrain a ticket, unless the choice of a plan has done so, test it once, and keep the result."""
        trained = self._tried.pop((plan, ticket.budget), None) or self.retrain(ticket, plan)
        return self.keep(ticket, self.over_floor(with_test_metrics(trained, self.stages.data)))

    @abstractmethod
    def keep(self, ticket: Ticket, trained: TrainedModel) -> ResultT:
        """Keep a retrained and tested model."""


def _epochs(start: DenseStart | None) -> int | None:
    return None if start is None else start.num_epochs
