"""Workflow: dense training → distillation? → search → retraining, written once and run in this order.

    check budgets → floor → dense model → soft labels → distillation plan → tickets → pruned models

The floor is the linear term alone: it shows how much embeddings gain.

By default the search starts from the trained dense model, and a ticket is trained on from the search's values (`effort`
in `experiment/effort.py`).

`prune` (files of a run) and `prune_model` (models in memory) run it once, `compare` runs it for every cell of its grid.
To choose a distillation plan, a ticket of a fixed size is trained briefly under each (`try_plans`), so that the choice
depends on no budget. A search from the initial weights has no trained start for such a trial: its smallest ticket is
retrained in full under each plan and decides for all sizes (`compare_plans`). Results name that size.
Validation decides everything; the test split of a model is read once, after all decisions about it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from thresher.experiment.dense_start import DenseStart
from thresher.experiment.floor import Floor
from thresher.experiment.retrain import TrainedModel, with_test_metrics
from thresher.experiment.stages import Stages
from thresher.search.budget import Budget
from thresher.search.ticket import Ticket
from thresher.training.distillation import DistillationPlan, PlanChoice, SoftLabels, choose_plan

ResultT = TypeVar("ResultT")


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

    `RunWorkflow` (`prune`) keeps files and skips finished stages; `ModelWorkflow` (`prune_model`) keeps models; `Cell`
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
        ((_, size),) = self._tried
        return replace(choice, size=str(size))

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
        trained = self.as_stored(ticket, trained)
        return self.keep(ticket, self.over_floor(with_test_metrics(trained, self.stages.data)))

    def as_stored(self, ticket: Ticket, trained: TrainedModel) -> TrainedModel:
        """The model as it will be stored, with its metrics on validation; by default, as it was trained."""
        return trained

    @abstractmethod
    def keep(self, ticket: Ticket, trained: TrainedModel) -> ResultT:
        """Keep a retrained and tested model."""
