"""Cell: one model, method, settings and seed of a comparison: one search for its budgets, then a retraining for each.

A cell's folder holds its tickets and, per budget, a training that can be resumed or tested later: settings that are
only tried are judged on validation, and the test split is read for the chosen ones alone.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thresher._internal.files import read_json, write_json
from thresher._internal.settings import config_from_mapping, config_to_mapping
from thresher.data.table import EncodedTable
from thresher.embeddings.base import EmbeddingConfig
from thresher.embeddings.method_registry import method_name
from thresher.errors import TimeLimitReached
from thresher.experiment.config import RunConfig
from thresher.experiment.retrain import TrainedModel
from thresher.experiment.run_models import ConfiguredModels, shuffled_batches
from thresher.experiment.workflow import Stages
from thresher.search.budget import Budget, parse_budgets
from thresher.search.ticket import SettingsTicket, Ticket
from thresher.search.ticket_files import load_ticket
from thresher.training.checkpoint import read_history
from thresher.training.distillation import SoftLabels
from thresher.training.epochs import CHECKPOINT, HISTORY
from thresher.training.progress import Progress

TICKETS = "tickets.json"


@dataclass(frozen=True)
class Cell:
    """A method's settings under one model and seed, in its own folder.

    Attributes:
        soft_labels: file with a teacher's soft labels of the training rows; None for hard labels.
    """

    folder: Path
    run: RunConfig
    stages: Stages
    soft_labels: Path | None = None

    @classmethod
    def of(
        cls,
        parent: Path,
        run: RunConfig,
        table: EncodedTable,
        *,
        soft_labels: Path | None = None,
        progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "Cell":
        folder = parent / f"{settings_slug(run.embedding)}-seed{run.seed}"
        write_json(folder / "settings.json", config_to_mapping(run.embedding))
        stages = Stages(
            models=ConfiguredModels(run, table),
            data=shuffled_batches(run, table),
            search=run.search,
            training=run.training,
            seed=run.seed,
            folder=folder,
            progress=progress,
            should_stop=should_stop,
        )
        return cls(folder, run, stages, soft_labels)

    def find(self, budget: Budget, together: Sequence[Budget]) -> tuple[Ticket | None, str | None]:
        """The ticket of a budget, from one search for all budgets in `together`, or why it cannot be met.

        Several budgets may get the same ticket, which is then trained once; `ticket.budget` is the first of them.

        Args:
            together: the same for every seed (`searched_together`): a search prunes down to its smallest budget, so
                tickets of searches with other smallest budgets differ.
        """
        found = _FoundTickets.load(self.folder / TICKETS)
        if missing := [other for other in together if other not in found.folders and other not in found.unmet]:
            self._check_time()
            place = f"search-{hashlib.sha256(','.join(map(str, missing)).encode()).hexdigest()[:8]}"
            unmet = self.stages.unmet_budgets(missing)
            reachable = [other for other in missing if other not in unmet]
            tickets = self.stages.find_tickets(reachable, place) if reachable else []
            found.folders |= {other: f"{place}/{ticket.budget.slug}" for other, ticket in _shared(tickets).items()}
            found.unmet |= {other: str(error) for other, error in unmet.items()}
            found.save(self.folder / TICKETS)
            (self.folder / place / CHECKPOINT).unlink(missing_ok=True)
        if budget in found.unmet:
            return None, found.unmet[budget]
        return load_ticket(self.folder / found.folders[budget]), None

    def search_cost(self, budget: Budget) -> tuple[float, int]:
        """Seconds and epochs of the search that found a budget's ticket."""
        history = (self.folder / _FoundTickets.load(self.folder / TICKETS).folders[budget]).parent / HISTORY
        records = read_history(history) if history.exists() else []
        return sum(record["seconds"] for record in records), len(records)

    def train(self, ticket: Ticket | None, *, test: bool) -> TrainedModel:
        """Retrain a ticket, or train the settings as they are; `test` reads the test split at the end."""
        self._check_time()
        labels = None if self.soft_labels is None else SoftLabels.load(self.soft_labels, self._teacher_share)
        if ticket is None:
            stage = method_name(self.run.embedding)
            model = self.stages.models.searched()
            return self.stages.train(model, _training_folder(None), stage=stage, soft_labels=labels, test=test)
        return self.stages.retrain(ticket, _training_folder(ticket), soft_labels=labels, test=test)

    def make_soft_labels(self) -> Path:
        """Train the settings as they are and write their predictions of the training rows; nothing is tested."""
        path = self.folder / "soft_labels.npy"
        if not path.exists():
            teacher, rows = self.train(None, test=False).model, self.stages.data.train
            SoftLabels.from_teacher(teacher, rows, self._teacher_share, progress=self.stages.progress).save(path)
        self.delete_checkpoint(None)
        return path

    def delete_checkpoint(self, ticket: Ticket | None) -> None:
        """Delete a training's checkpoint once its result is written."""
        (self.folder / _training_folder(ticket) / CHECKPOINT).unlink(missing_ok=True)

    @property
    def _teacher_share(self) -> float:
        return self.run.teacher_share or 0.0

    def _check_time(self) -> None:
        if self.stages.should_stop is not None and self.stages.should_stop():
            raise TimeLimitReached("the time limit was reached between two trainings")


def _training_folder(ticket: Ticket | None) -> str:
    return "trained" if ticket is None else f"retrained-{ticket.budget.slug}"


@dataclass
class Choice:
    """Trials of one method, model and budget on the first seed.

    Attributes:
        trials: settings with their validation AUC and size, or with the reason why they cannot meet the budget.
        exhausted: whether the whole grid was tried.
    """

    trials: list[Mapping[str, Any]] = field(default_factory=list)
    exhausted: bool = False

    @property
    def num_tried(self) -> int:
        return sum("unmet" not in trial for trial in self.trials)

    def covers(self, trials: int) -> bool:
        """Whether as many settings were tried as are allowed, or as there are."""
        return self.exhausted or self.num_tried >= trials

    def add(self, cell: Cell, ticket: Ticket | None, unmet: str | None) -> None:
        """Try a cell's settings, or record why they cannot meet the budget."""
        trial: dict[str, Any] = {"config": config_to_mapping(cell.run.embedding)}
        self.trials.append({**trial, **({"unmet": unmet} if ticket is None else _validation_result(cell, ticket))})

    def best(self) -> EmbeddingConfig | None:
        """The settings of highest validation AUC; None if none of those tried meets the budget."""
        met = [trial for trial in self.trials if "unmet" not in trial]
        best = max(met, key=lambda trial: float(trial["validation_auc"]), default=None)
        return None if best is None else config_from_mapping(EmbeddingConfig, best["config"], where="chosen settings")

    @property
    def why_unmet(self) -> str:
        return str(self.trials[-1]["unmet"]) if self.trials else "its grid is empty"

    @classmethod
    def load(cls, path: Path) -> "Choice":
        return cls(**read_json(path)) if path.exists() else cls()

    def save(self, path: Path) -> None:
        write_json(path, {"trials": self.trials, "exhausted": self.exhausted})


def _validation_result(cell: Cell, ticket: Ticket) -> Mapping[str, Any]:
    """Validation AUC and size of a trial; trained once, then read from its file."""
    path = cell.folder / f"trial-{ticket.budget.slug}.json"
    if not path.exists():
        trained = cell.train(ticket, test=False)
        write_json(path, {"validation_auc": trained.fit.validation.auc, "num_parameters": trained.num_parameters})
    return read_json(path)


@dataclass
class _FoundTickets:
    """The folder of each budget's ticket, or why there is none."""

    folders: dict[Budget, str]
    unmet: dict[Budget, str]

    @classmethod
    def load(cls, path: Path) -> "_FoundTickets":
        stored = read_json(path) if path.exists() else {"folders": {}, "unmet": {}}
        by_budget = [{Budget.parse(text): value for text, value in stored[key].items()} for key in ("folders", "unmet")]
        return cls(*by_budget)

    def save(self, path: Path) -> None:
        by_text = {key: {str(budget): value for budget, value in values.items()} for key, values in vars(self).items()}
        write_json(path, by_text)


def searched_together(budgets: Iterable[Budget], path: Path) -> dict[Budget, tuple[Budget, ...]]:
    """Each budget with all budgets of its search, for every method and seed: those given in the same call.

    Budgets of a later call have their own search, also for new seeds, so that all seeds of a budget are pruned over the
    same range. New budgets are added to `path`.
    """
    searches = [parse_budgets(texts) for texts in read_json(path)["searches"]] if path.exists() else []
    known = {budget for together in searches for budget in together}
    if new := tuple(budget for budget in budgets if budget not in known):
        searches.append(new)
        write_json(path, {"searches": [[str(budget) for budget in together] for together in searches]})
    return {budget: together for together in searches for budget in together}


def _shared(tickets: Sequence[Ticket]) -> dict[Budget, Ticket]:
    """Budget → ticket; a method that cannot use a larger budget, and has equal settings for both, has one ticket."""
    first: dict[EmbeddingConfig, Ticket] = {}
    return {t.budget: first.setdefault(t.embedding, t) if isinstance(t, SettingsTicket) else t for t in tickets}


def settings_slug(config: EmbeddingConfig) -> str:
    """A short name of settings; equal settings have equal names."""
    mapping = config_to_mapping(config)
    digest = hashlib.sha256(json.dumps(mapping, sort_keys=True, default=str).encode()).hexdigest()
    return f"d{config.embedding_dim}-{digest[:8]}"
