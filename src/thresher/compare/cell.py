"""Cell: one model, method, settings and seed. One search for its budgets, then one retraining for each.

A cell's folder holds its tickets and, per budget, a training that can be taken up again or asked for its test metrics
later: settings that are only tried are judged on validation, and the test split is read for the chosen ones alone.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from thresher.compare.deadline import Deadline
from thresher.config import config_to_mapping
from thresher.data.encoded_table import EncodedTable
from thresher.data.split_batches import SplitBatches
from thresher.embeddings.base import EmbeddingConfig
from thresher.embeddings.registry import method_name
from thresher.errors import BudgetError
from thresher.files import read_json, write_json
from thresher.retrain import Trained, retrain_ticket, train_model
from thresher.runs import RunConfig
from thresher.search.find_tickets import find_tickets
from thresher.stages import new_model
from thresher.tickets.budget import Budget
from thresher.tickets.settings import SettingsTicket
from thresher.tickets.store import load_ticket
from thresher.tickets.ticket import Ticket
from thresher.training.epochs import CHECKPOINT, HISTORY
from thresher.training.history import read_history
from thresher.training.metrics import Metrics
from thresher.training.seeding import derive_seed
from thresher.training.teaching import Lesson


@dataclass(frozen=True)
class Outcome:
    """A training of a cell: its size, its validation metrics, and those of test where they were asked for."""

    num_parameters: int
    storage_bytes: int
    validation: Metrics
    test: Metrics | None
    seconds: float


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

    def find(self, budgets: Sequence[Budget]) -> tuple[dict[Budget, Ticket], dict[Budget, str]]:
        """Tickets for the budgets these settings can meet, from one search, and why the others cannot be met.

        Budgets may share a ticket, and with it a training: then its own budget is the first of them.
        """
        done = self.folder / "tickets.json"
        known: dict[str, Any] = read_json(done) if done.exists() else {"folders": {}, "unmet": {}}
        missing = [b for b in budgets if str(b) not in known["folders"] and str(b) not in known["unmet"]]
        if missing:
            place = f"search-{hashlib.sha256(','.join(map(str, missing)).encode()).hexdigest()[:8]}"
            found, unmet = self._search(missing, self.folder / place)
            known["folders"] |= {budget: f"{place}/{ticket.budget.slug}" for budget, ticket in _shared(found).items()}
            known["unmet"] |= {str(budget): reason for budget, reason in unmet.items()}
            write_json(done, known)
            (self.folder / place / CHECKPOINT).unlink(missing_ok=True)
        folders: Mapping[str, str] = known["folders"]
        tickets = {b: load_ticket(self.folder / folders[str(b)]) for b in budgets if str(b) in folders}
        return tickets, {b: known["unmet"][str(b)] for b in budgets if str(b) in known["unmet"]}

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
        known = read_json(self.folder / "tickets.json")
        history = (self.folder / known["folders"][str(budget)]).parent / HISTORY
        records = read_history(history) if history.exists() else []
        return sum(record["seconds"] for record in records), len(records)

    def train(self, ticket: Ticket | None, *, test: bool) -> Outcome:
        """Retrain a ticket, or train the settings as they are; taken up where it was left, and returned if done.

        Args:
            test: whether to read the test split, once, at the end.
        """
        trained = self._trained(ticket, test=test)
        return Outcome(
            trained.num_parameters, trained.storage_bytes, trained.fit.validation, trained.test, trained.fit.seconds
        )

    def teach(self) -> Path:
        """Train the settings as they are and write what they would have others learn; the test split is not read."""
        path = self.folder / "soft_labels.npy"
        if not path.exists():
            teacher, rows = self._trained(None, test=False).model, self._data(test=False).train
            Lesson.by(teacher, rows, self._share, progress=self.deadline).save(path)
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
        lesson = None if self.soft_labels is None else Lesson.load(self.soft_labels, self._share)
        if ticket is None:
            return train_model(
                model,
                data,
                training,
                seed=self.run.seed,
                folder=folder,
                stage=method_name(embedding),
                lesson=lesson,
                progress=self.deadline,
            )
        return retrain_ticket(
            ticket, model, data, training, seed=self.run.seed, folder=folder, lesson=lesson, progress=self.deadline
        )

    def forget(self, ticket: Ticket | None) -> None:
        """Drop a training's checkpoint: its result is written down."""
        name = "trained" if ticket is None else f"retrained-{ticket.budget.slug}"
        (self.folder / name / CHECKPOINT).unlink(missing_ok=True)

    def _data(self, *, test: bool) -> SplitBatches:
        seed = derive_seed(self.run.seed, "batches")
        data = SplitBatches.of(self.table, self.run.training.batch_size, seed=seed)
        return data if test else replace(data, test=None)


def _shared(tickets: Sequence[Ticket]) -> dict[str, Ticket]:
    """Budget → ticket; a method that cannot use a larger budget, and has the same settings for both, has one."""
    first: dict[EmbeddingConfig, Ticket] = {}
    return {str(t.budget): first.setdefault(t.embedding, t) if isinstance(t, SettingsTicket) else t for t in tickets}


def settings_slug(config: EmbeddingConfig) -> str:
    """Settings as a short name: the same settings give the same one."""
    mapping = config_to_mapping(config)
    digest = hashlib.sha256(json.dumps(mapping, sort_keys=True, default=str).encode()).hexdigest()
    return f"d{config.embedding_dim}-{digest[:8]}"
