"""Stages: the trainings of a workflow, each with its folder, its settings and its place in the progress display."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from torch import nn

from thresher.data.batches.split_batches import SplitBatches
from thresher.errors import BudgetError
from thresher.experiment.dense_start import DenseStart
from thresher.experiment.effort import StageSettings
from thresher.experiment.floor import NO_EMBEDDING, floor_training
from thresher.experiment.retrain import TrainedModel, retrain_ticket, train_model
from thresher.search.budget import Budget
from thresher.search.find_tickets import find_tickets, unmet_budgets
from thresher.search.ticket import Ticket
from thresher.training.distillation import SoftLabels
from thresher.training.progress import Progress, Renamed, StageKind

TRIAL_BUDGET = "5%"
"""Size at which labels are tried."""


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
        kind: StageKind | None = None,
        soft_labels: SoftLabels | None = None,
        test: bool,
    ) -> TrainedModel:
        """Train a model as it is, in the folder `name`; `stage` and `kind` are for the progress display."""
        return train_model(
            model,
            self._data(test=test),
            self.settings.training,
            seed=self.seed,
            folder=self._folder(name),
            stage=stage,
            soft_labels=soft_labels,
            progress=Renamed(self.progress, kind=kind),
            should_stop=self.should_stop,
        )

    def train_dense(self, *, test: bool = True) -> TrainedModel:
        """Train the unpruned model: the reference, and the first teacher."""
        return self.train(self.models.dense(), "dense", stage="dense", kind="dense", test=test)

    def train_floor(self, model: nn.Module) -> TrainedModel:
        """Train a model without an embedding until it converges."""
        training = floor_training(self.settings.training, len(self.data.train))
        stages = replace(self, settings=replace(self.settings, training=training))
        return stages.train(model, "floor", stage=NO_EMBEDDING, kind="floor", test=True)

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
            progress=Renamed(self.progress, kind="search"),
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
            self.settings.retraining_config(_epochs(start), len(self.data.train), soft_labels=soft_labels is not None),
            rewind=rewind,
            seed=self.seed,
            folder=self._folder(name),
            soft_labels=soft_labels,
            progress=Renamed(self.progress, kind="retraining"),
            should_stop=self.should_stop,
        )

    def try_labels(self, name: str, *, start: DenseStart, soft_labels: SoftLabels | None) -> float:
        """Validation AUC of the dense model pruned at once to `TRIAL_BUDGET` and trained briefly on these labels."""
        search = replace(self.settings.search, start="dense", plan_epochs=1 / len(self.data.train), halving_epochs=None)
        (ticket,) = find_tickets(self._searched(start), self.data, TRIAL_BUDGET, search, seed=self.seed)
        steps = len(self.data.train)
        training = self.settings.retraining_config(None, steps, soft_labels=soft_labels is not None)
        trained = retrain_ticket(
            ticket,
            self.models.for_ticket(ticket),
            self._data(test=False),
            replace(training, max_epochs=self.settings.trial_epochs(start.num_epochs, steps)),
            rewind="final",
            seed=self.seed,
            folder=self._folder(name),
            soft_labels=soft_labels,
            progress=Renamed(self.progress, "try {}", kind="trial"),
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


def _epochs(start: DenseStart | None) -> float | None:
    return None if start is None else start.num_epochs
