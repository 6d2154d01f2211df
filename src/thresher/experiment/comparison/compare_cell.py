"""Cell: the workflow of one model, method, settings and seed of a comparison.

A cell's folder holds its tickets and, per budget, a training that can be resumed or tested later: settings that are
only tried are judged on validation, and the test split is read for the chosen ones alone.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from thresher._internal.settings import config_to_mapping
from thresher._internal.storage.documents import damaged_file
from thresher._internal.storage.files import read_json, write_json
from thresher.data.table import EncodedTable
from thresher.embeddings.base import EmbeddingConfig
from thresher.embeddings.method_registry import method_name
from thresher.errors import TimeLimitReached
from thresher.experiment.config import RunConfig
from thresher.experiment.dense_start import DenseStart
from thresher.experiment.floor import Floor
from thresher.experiment.retrain import TrainedModel
from thresher.experiment.run.run_models import ConfiguredModels, shuffled_batches
from thresher.experiment.stages import Stages
from thresher.experiment.workflow import Workflow
from thresher.search.budget import Budget, parse_budgets
from thresher.search.ticket import SettingsTicket, Ticket
from thresher.search.ticket_files import load_ticket
from thresher.training.checkpoint import read_history
from thresher.training.distillation import DistillationPlan, SoftLabels
from thresher.training.progress import Progress
from thresher.training.run_state import CHECKPOINT, HISTORY

TICKETS = "tickets.json"
Write = Callable[["Cell", Ticket | None, TrainedModel], None]
"""Writes the result of a tested model; the ticket is None for settings that are trained as they are."""


@dataclass
class FoundTickets:
    """The folder of each budget's ticket, or why there is none."""

    folders: dict[Budget, str]
    unmet: dict[Budget, str]

    @classmethod
    def load(cls, path: Path) -> "FoundTickets":
        if not path.exists():
            return cls({}, {})
        stored = read_json(path)
        with damaged_file(str(path), "Delete it."):
            by_budget = [
                {Budget.parse(text): str(value) for text, value in stored[key].items()} for key in ("folders", "unmet")
            ]
        return cls(*by_budget)

    def save(self, path: Path) -> None:
        by_text = {key: {str(budget): value for budget, value in values.items()} for key, values in vars(self).items()}
        write_json(path, by_text)


def searched_together(budgets: Iterable[Budget], path: Path) -> dict[Budget, tuple[Budget, ...]]:
    """Each budget with all budgets of its search, for every method and seed: those given in the same call.

    Budgets of a later call have their own search, also for new seeds, so that all seeds of a budget are pruned over the
    same range. New budgets are added to `path`.
    """
    with damaged_file(str(path), "Delete it."):
        searches = [parse_budgets(texts) for texts in read_json(path)["searches"]] if path.exists() else []
    known = {budget for together in searches for budget in together}
    if new := tuple(budget for budget in budgets if budget not in known):
        searches.append(new)
        write_json(path, {"searches": [[str(budget) for budget in together] for together in searches]})
    return {budget: together for together in searches for budget in together}


def tickets_by_budget(tickets: Sequence[Ticket]) -> dict[Budget, Ticket]:
    """Budget → ticket; a method that cannot use a larger budget, and has equal settings for both, has one ticket."""
    first: dict[EmbeddingConfig, Ticket] = {}
    return {t.budget: first.setdefault(t.embedding, t) if isinstance(t, SettingsTicket) else t for t in tickets}


@dataclass(kw_only=True)
class Cell(Workflow[TrainedModel]):
    """A method's settings under one model and seed, in its own folder. It has no dense model and one plan.

    Attributes:
        together: all budgets of its search, the same for every seed (`searched_together`): a search prunes down to its
            smallest budget, so tickets of searches with other smallest budgets differ.
        encoder_bytes: bytes of schema and vocabularies, a part of every bundle.
        labels: file with a teacher's soft labels of the training rows; None for hard labels.
        floor_predictions: file with the floor's predictions of the validation rows.
        unmet: why a budget cannot be met; known after `check_budgets`.
    """

    folder: Path
    config: RunConfig
    write: Write
    encoder_bytes: int
    together: Sequence[Budget] = ()
    labels: Path | None = None
    floor_predictions: Path | None = None
    unmet: dict[Budget, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        parent: Path,
        config: RunConfig,
        table: EncodedTable,
        write: Write,
        *,
        budgets: Sequence[Budget] = (),
        together: Sequence[Budget] = (),
        labels: Path | None = None,
        floor_predictions: Path | None = None,
        progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "Cell":
        folder = parent / f"{settings_slug(config.embedding)}-seed{config.seed}"
        write_json(folder / "settings.json", config_to_mapping(config.embedding))
        stages = Stages(
            models=ConfiguredModels(config, table),
            data=shuffled_batches(config, table),
            settings=config.stage_settings(),
            seed=config.seed,
            folder=folder,
            progress=progress,
            should_stop=should_stop,
        )
        share = 0.0 if labels is None else config.teacher_share or 0.0
        return cls(
            stages=stages,
            budgets=budgets,
            plans=[DistillationPlan(search=0.0, retraining=share)],
            folder=folder,
            config=config,
            write=write,
            encoder_bytes=table.encoder_bytes,
            together=together,
            labels=labels,
            floor_predictions=floor_predictions,
        )

    def check_budgets(self) -> None:
        """Leave out the budgets that cannot be met."""
        found = self._found()
        missing = [budget for budget in self.together if budget not in found.folders and budget not in found.unmet]
        unmet = {budget: str(error) for budget, error in self.stages.unmet_budgets(missing).items()} if missing else {}
        self.unmet = found.unmet | unmet
        self.budgets = [budget for budget in self.budgets if budget not in self.unmet]

    def train_floor(self) -> None:
        """The floor is a cell of its own, common to all methods."""

    def floor(self) -> Floor | None:
        return Floor.load(self.floor_predictions) if self.floor_predictions is not None else None

    def train_dense(self) -> None:
        """A dense table is a method of its own in a comparison."""

    def make_soft_labels(self, dense: TrainedModel | None) -> None:
        """Nothing to do: all methods share the soft labels of one teacher (`predict_labels`)."""

    def dense_start(self) -> DenseStart | None:
        """The trained dense model, for methods that prune one; others start from the same initial weights."""
        if not self.config.embedding.needs_trained_model:
            return None
        path = self.folder / "dense.safetensors"
        if not path.exists():
            self._check_time()
            trained = self.stages.train_dense(test=False)
            DenseStart.of(trained.model, trained.fit.num_epochs).save(path)
            (self.folder / "dense" / CHECKPOINT).unlink(missing_ok=True)
        return DenseStart.load(path)

    def soft_labels(self, share: float) -> SoftLabels | None:
        return SoftLabels.load(self.labels, share) if self.labels is not None and share else None

    def find_tickets(self, plan: DistillationPlan) -> Sequence[Ticket]:
        """One search for all budgets in `together`; returns the tickets of the cell's own budgets, each once."""
        found = self._found()
        if missing := [budget for budget in self.together if budget not in found.folders and budget not in found.unmet]:
            self._check_time()
            place = f"search-{hashlib.sha256(','.join(map(str, missing)).encode()).hexdigest()[:8]}"
            reachable = [budget for budget in missing if budget not in self.unmet]
            tickets = self.stages.find_tickets(reachable, place, start=self.dense_start()) if reachable else []
            found.folders |= {
                budget: f"{place}/{ticket.budget.slug}" for budget, ticket in tickets_by_budget(tickets).items()
            }
            found.unmet |= {budget: self.unmet[budget] for budget in missing if budget in self.unmet}
            found.save(self.folder / TICKETS)
            (self.folder / place / CHECKPOINT).unlink(missing_ok=True)
        return [load_ticket(self.folder / place) for place in dict.fromkeys(found.folders[b] for b in self.budgets)]

    def retrain(self, ticket: Ticket, plan: DistillationPlan) -> TrainedModel:
        self._check_time()
        labels = self.soft_labels(plan.retraining)
        return self.stages.retrain(ticket, _training_folder(ticket), start=self.dense_start(), soft_labels=labels)

    def keep(self, ticket: Ticket, trained: TrainedModel) -> TrainedModel:
        self._finish(ticket, trained)
        return trained

    def served(self, ticket: Ticket) -> list[Budget]:
        """The cell's budgets that share a ticket; `ticket.budget` is the first of them."""
        folders = self._found().folders
        return [budget for budget in self.budgets if folders[budget] == folders[ticket.budget]]

    def search_cost(self, budget: Budget) -> tuple[float, int]:
        """Seconds and epochs of the search that found a budget's ticket."""
        stages = (self.folder / self._found().folders[budget]).parent, self.folder / "dense"
        records = [
            record for folder in stages if (folder / HISTORY).exists() for record in read_history(folder / HISTORY)
        ]
        return sum(record["seconds"] for record in records), len(records)

    def train(self) -> None:
        """Train the settings as they are, test them and write the result."""
        self._finish(None, self.over_floor(self._train(test=True)))

    def train_as_floor(self, predictions: Path) -> None:
        """Train the settings until they converge, test them, and write the result and their predictions."""
        self._check_time()
        trained = self.stages.train_floor(self.stages.models.searched())
        Floor.of(trained.model, self.stages.data.validation).save(predictions)
        self.write(self, None, trained)
        (self.folder / "floor" / CHECKPOINT).unlink(missing_ok=True)

    def predict_labels(self) -> Path:
        """Train the settings as they are and write their predictions of the training rows; nothing is tested."""
        path = self.folder / "soft_labels.npy"
        if not path.exists():
            teacher, rows, share = self._train(test=False).model, self.stages.data.train, self.config.teacher_share
            SoftLabels.from_teacher(teacher, rows, share or 0.0, progress=self.stages.progress).save(path)
        self._delete_checkpoint(None)
        return path

    def _train(self, *, test: bool) -> TrainedModel:
        self._check_time()
        model, stage = self.stages.models.searched(), method_name(self.config.embedding)
        labels = self.soft_labels(self.plans[0].retraining)
        return self.stages.train(model, _training_folder(None), stage=stage, soft_labels=labels, test=test)

    def _finish(self, ticket: Ticket | None, trained: TrainedModel) -> None:
        self.write(self, ticket, trained)
        self._delete_checkpoint(ticket)

    def _delete_checkpoint(self, ticket: Ticket | None) -> None:
        (self.folder / _training_folder(ticket) / CHECKPOINT).unlink(missing_ok=True)

    def _found(self) -> "FoundTickets":
        return FoundTickets.load(self.folder / TICKETS)

    def _check_time(self) -> None:
        if self.stages.should_stop is not None and self.stages.should_stop():
            raise TimeLimitReached("the time limit was reached between two trainings")


def _training_folder(ticket: Ticket | None) -> str:
    return "trained" if ticket is None else f"retrained-{ticket.budget.slug}"


def settings_slug(config: EmbeddingConfig) -> str:
    """A short name of settings; equal settings have equal names."""
    mapping = config_to_mapping(config)
    digest = hashlib.sha256(json.dumps(mapping, sort_keys=True, default=str).encode()).hexdigest()
    return f"d{config.embedding_dim}-{digest[:8]}"
