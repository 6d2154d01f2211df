"""Choice: the settings a comparison tries for a method, model and budget, and the best of them on validation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thresher._internal.settings import config_from_mapping, config_to_mapping
from thresher._internal.storage.documents import damaged_file
from thresher._internal.storage.files import read_json, write_json
from thresher.embeddings.base import EmbeddingConfig
from thresher.experiment.comparison.compare_cell import Cell
from thresher.search.ticket import Ticket


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

    def add(self, cell: Cell) -> None:
        """Try the settings of a cell with one budget, or record why they cannot meet it."""
        trial: dict[str, Any] = {"config": config_to_mapping(cell.config.embedding)}
        (budget,) = cell.budgets
        cell.check_budgets()
        tickets = cell.find_tickets(cell.plans[0])
        found = _validation_result(cell, tickets[0]) if tickets else {"unmet": cell.unmet[budget]}
        self.trials.append({**trial, **found})

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
        if not path.exists():
            return cls()
        with damaged_file(str(path), "Delete it."):
            choice = cls(**read_json(path))
            if not isinstance(choice.trials, list) or not all(isinstance(trial, dict) for trial in choice.trials):
                raise ValueError("expected a list of trials")
            choice.best()
            return choice

    def save(self, path: Path) -> None:
        write_json(path, {"trials": self.trials, "exhausted": self.exhausted})


def _validation_result(cell: Cell, ticket: Ticket) -> Mapping[str, Any]:
    """Validation AUC and size of a trial; trained once, then read from its file."""
    path = cell.folder / f"trial-{ticket.budget.slug}.json"
    if not path.exists():
        trained = cell.retrain(ticket, cell.plans[0])
        write_json(path, {"validation_auc": trained.fit.validation.auc, "num_parameters": trained.num_parameters})
    return read_json(path)
