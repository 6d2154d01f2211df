"""Which budgets of a comparison share a search, and where their tickets are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from thresher._internal.storage.documents import damaged_file
from thresher._internal.storage.files import read_json, write_json
from thresher.embeddings.base import EmbeddingConfig
from thresher.search.budget import Budget, parse_budgets
from thresher.search.ticket import SettingsTicket, Ticket


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
