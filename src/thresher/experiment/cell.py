"""Cell: one model, method, settings and seed. One search for its budgets, then one retraining for each.

A cell's folder holds its tickets and, per budget, a training that can be taken up again or asked for its test metrics
later: settings that are only tried are judged on validation, and the test split is read for the chosen ones alone.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from thresher._internal.files import read_json, write_json
from thresher._internal.settings import config_to_mapping
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.table import EncodedTable
from thresher.embeddings.base import EmbeddingConfig
from thresher.embeddings.method_registry import method_name
from thresher.errors import BudgetError
from thresher.experiment.deadline import Deadline
from thresher.experiment.fresh import new_model
from thresher.experiment.retrain import Trained, retrain_ticket, train_model
from thresher.experiment.runs import RunConfig
from thresher.search.budget import Budget, parse_budgets
from thresher.search.find_tickets import find_tickets
from thresher.search.ticket import SettingsTicket, Ticket
from thresher.search.ticket_files import load_ticket
from thresher.training.checkpoint import read_history
from thresher.training.distillation import SoftLabels
from thresher.training.epochs import CHECKPOINT, HISTORY
from thresher.training.metrics import Metrics
from thresher.training.seeding import derive_seed

TICKETS = "tickets.json"


@dataclass(frozen=True)
class Outcome:
    """A training of a cell: its size, its validation metrics, those of test where they were asked for, and its cost."""

    num_parameters: int
    storage_bytes: int
    validation: Metrics
    test: Metrics | None
    seconds: float
    num_epochs: int


@dataclass(frozen=True)
class Cell:
    """A method's settings under one model and seed, in a folder of its own.

    Attributes:
        soft_labels: a teacher's labels of the training rows; None for their own.
    """

    folder: Path
    run: RunConfig
    table: EncodedTable
    deadline: Deadline
    soft_labels: Path | None = None

    @classmethod
    def of(
        cls, parent: Path, run: RunConfig, table: EncodedTable, deadline: Deadline, *, soft_labels: Path | None = None
    ) -> "Cell":
        folder = parent / f"{settings_slug(run.embedding)}-seed{run.seed}"
        write_json(folder / "settings.json", config_to_mapping(run.embedding))
        return cls(folder, run, table, deadline, soft_labels)

    def find(self, budget: Budget, together: Sequence[Budget]) -> tuple[Ticket | None, str | None]:
        """The ticket of a budget, from one search for all in `together`, or why these settings cannot meet it.

        Budgets may share a ticket, and with it a training: then its own budget is the first of them.

        Args:
            together: the same for every seed (`searched_together`): a search falls to the smallest of its budgets, and
                tickets cut on the way to another one are not of its kind.
        """
        known = self._known()
        if missing := [other for other in together if other not in known.folders and other not in known.unmet]:
            place = f"search-{hashlib.sha256(','.join(map(str, missing)).encode()).hexdigest()[:8]}"
            found, unmet = self._search(missing, self.folder / place)
            known.folders |= {other: f"{place}/{ticket.budget.slug}" for other, ticket in _shared(found).items()}
            known.unmet |= unmet
            known.save(self.folder / TICKETS)
            (self.folder / place / CHECKPOINT).unlink(missing_ok=True)
        if budget in known.unmet:
            return None, known.unmet[budget]
        return load_ticket(self.folder / known.folders[budget]), None

    def _known(self) -> "_Found":
        return _Found.load(self.folder / TICKETS)

    def _search(self, budgets: Sequence[Budget], folder: Path) -> tuple[Sequence[Ticket], dict[Budget, str]]:
        left, unmet = list(budgets), {}
        while left:
            self.deadline.check()
            model = new_model(self.run, self.table, self.run.embedding)
            try:
                tickets = find_tickets(
                    model,
                    self._data(test=False),
                    left,
                    self.run.search,
                    seed=self.run.seed,
                    folder=folder,
                    progress=self.deadline,
                )
            except BudgetError as error:  # told before the search trains anything
                if error.budget is None:
                    raise
                refused = Budget.parse(error.budget)
                left.remove(refused)
                unmet[refused] = str(error)
            else:
                return tickets, unmet
        return [], unmet

    def searched(self, budget: Budget) -> tuple[float, int]:
        """Seconds and epochs of the search that found a budget's ticket."""
        history = (self.folder / self._known().folders[budget]).parent / HISTORY
        records = read_history(history) if history.exists() else []
        return sum(record["seconds"] for record in records), len(records)

    def train(self, ticket: Ticket | None, *, test: bool) -> Outcome:
        """Retrain a ticket, or train the settings as they are; taken up where it was left, and returned if done.

        Args:
            test: whether to read the test split, once, at the end.
        """
        trained = self._trained(ticket, test=test)
        return Outcome(
            num_parameters=trained.num_parameters,
            storage_bytes=trained.storage_bytes,
            validation=trained.fit.validation,
            test=trained.test,
            seconds=trained.fit.seconds,
            num_epochs=trained.fit.num_epochs,
        )

    def teach(self) -> Path:
        """Train the settings as they are and write what they would have others learn; the test split is not read."""
        path = self.folder / "soft_labels.npy"
        if not path.exists():
            teacher, rows = self._trained(None, test=False).model, self._data(test=False).train
            SoftLabels.from_teacher(teacher, rows, self._share, progress=self.deadline).save(path)
        self.forget(None)
        return path

    @property
    def _share(self) -> float:
        return self.run.teacher_share or 0.0

    def _trained(self, ticket: Ticket | None, *, test: bool) -> Trained:
        self.deadline.check()
        folder = self.folder / ("trained" if ticket is None else f"retrained-{ticket.budget.slug}")
        embedding = self.run.embedding if ticket is None else ticket.embedding_config(self.run.embedding)
        model = new_model(self.run, self.table, embedding)
        training, data = self.run.training, self._data(test=test)
        soft_labels = None if self.soft_labels is None else SoftLabels.load(self.soft_labels, self._share)
        if ticket is None:
            return train_model(
                model,
                data,
                training,
                seed=self.run.seed,
                folder=folder,
                stage=method_name(embedding),
                soft_labels=soft_labels,
                progress=self.deadline,
            )
        return retrain_ticket(
            ticket,
            model,
            data,
            training,
            seed=self.run.seed,
            folder=folder,
            soft_labels=soft_labels,
            progress=self.deadline,
        )

    def forget(self, ticket: Ticket | None) -> None:
        """Drop a training's checkpoint: its result is written down."""
        name = "trained" if ticket is None else f"retrained-{ticket.budget.slug}"
        (self.folder / name / CHECKPOINT).unlink(missing_ok=True)

    def _data(self, *, test: bool) -> SplitBatches:
        seed = derive_seed(self.run.seed, "batches")
        data = SplitBatches.of(self.table, self.run.training.batch_size, seed=seed)
        return data if test else replace(data, test=None)


@dataclass
class _Found:
    """What the searches of a cell came to: where each budget's ticket is, or why there is none."""

    folders: dict[Budget, str]
    unmet: dict[Budget, str]

    @classmethod
    def load(cls, path: Path) -> "_Found":
        known = read_json(path) if path.exists() else {"folders": {}, "unmet": {}}
        return cls(_by_budget(known["folders"]), _by_budget(known["unmet"]))

    def save(self, path: Path) -> None:
        write_json(path, {"folders": _by_text(self.folders), "unmet": _by_text(self.unmet)})


def _by_budget(told: Mapping[str, str]) -> dict[Budget, str]:
    return {Budget.parse(text): value for text, value in told.items()}


def _by_text(told: Mapping[Budget, str]) -> dict[str, str]:
    return {str(budget): value for budget, value in told.items()}


def searched_together(budgets: Iterable[Budget], path: Path) -> dict[Budget, tuple[Budget, ...]]:
    """Each budget with all that one search serves, for every method and seed: those a comparison got in the same call.

    Budgets of a later call have a search of their own, also in seeds that are new by then: what was found before stays,
    and so all seeds of a budget have fallen over the same range.

    Args:
        path: where that is written down; made, or added to, if a budget is new.
    """
    searches = [parse_budgets(texts) for texts in read_json(path)["searches"]] if path.exists() else []
    known = {budget for together in searches for budget in together}
    if new := tuple(budget for budget in budgets if budget not in known):
        searches.append(new)
        write_json(path, {"searches": [[str(budget) for budget in together] for together in searches]})
    return {budget: together for together in searches for budget in together}


def _shared(tickets: Sequence[Ticket]) -> dict[Budget, Ticket]:
    """Budget → ticket; a method that cannot use a larger budget, and has the same settings for both, has one."""
    first: dict[EmbeddingConfig, Ticket] = {}
    return {t.budget: first.setdefault(t.embedding, t) if isinstance(t, SettingsTicket) else t for t in tickets}


def settings_slug(config: EmbeddingConfig) -> str:
    """Settings as a short name: the same settings give the same one."""
    mapping = config_to_mapping(config)
    digest = hashlib.sha256(json.dumps(mapping, sort_keys=True, default=str).encode()).hexdigest()
    return f"d{config.embedding_dim}-{digest[:8]}"
