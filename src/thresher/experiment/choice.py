"""Choice: which settings of a method's grid were tried for one budget, how they did on validation, and the best."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thresher._internal.files import read_json, write_json
from thresher._internal.settings import config_from_mapping, config_to_mapping
from thresher.embeddings.base import EmbeddingConfig
from thresher.experiment.cell import Cell
from thresher.search.ticket import Ticket


@dataclass
class Choice:
    """Trials of one method, model and budget, all on the first seed.

    Attributes:
        trials: settings with their validation AUC and size, or with why they cannot meet the budget.
        exhausted: the whole grid was gone through.
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
        """Try a cell's settings, or note why they cannot meet the budget."""
        settings = {"config": config_to_mapping(cell.run.embedding)}
        if ticket is None:
            self.trials.append({**settings, "unmet": unmet})
        else:
            self.trials.append({**settings, **_on_validation(cell, ticket)})

    def best(self) -> EmbeddingConfig | None:
        """The settings of highest validation AUC; None if no settings tried meet the budget."""
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


def _on_validation(cell: Cell, ticket: Ticket) -> Mapping[str, Any]:
    """How a trial did; trained once, then read. The test split is not touched."""
    path = cell.folder / f"trial-{ticket.budget.slug}.json"
    if not path.exists():
        outcome = cell.train(ticket, test=False)
        write_json(path, {"validation_auc": outcome.validation.auc, "num_parameters": outcome.num_parameters})
    return read_json(path)
