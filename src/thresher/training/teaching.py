"""Teaching: whether teachers have a part in a search, and in the retraining after it; validation decides what is open.

Not here: what a teacher says of the training rows (`thresher.training.lesson`), nor the searches and retrainings that
are tried (`thresher.experiment.foreign`, `thresher.experiment.stages`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from thresher.errors import BudgetError, ConfigError, SettingsConflictError
from thresher.training.lesson import check_share

MIN_GAIN = 0.001
"""A further way to teach is taken where it gains so much validation AUC: differences below are noise."""


@dataclass(frozen=True)
class Teaching:
    """A teacher's part in the labels of a search, and of the retraining after it."""

    search: float
    retraining: float

    def __str__(self) -> str:
        if not self.retraining:
            return "by-labels"
        return f"{'searched-' if self.search else ''}taught-{self.retraining:g}"

    @property
    def words(self) -> str:
        if not self.retraining:
            return "by labels"
        return "taught by dense predictions" + (", the search, too" if self.search else "")

    @property
    def tickets(self) -> str:
        """The folder, inside that of a run, of the tickets its search finds."""
        return f"tickets/taught-{self.search:g}" if self.search else "tickets"


BY_LABELS = Teaching(search=0.0, retraining=0.0)


def teachings(teacher_share: float | None, teach_search: bool | None) -> list[Teaching]:
    """The ways to teach that are left open by what was told, each a step further than the one before.

    >>> [str(teaching) for teaching in teachings(None, None)]
    ['by-labels', 'taught-1', 'searched-taught-1']
    >>> [str(teaching) for teaching in teachings(0.5, False)]
    ['taught-0.5']
    """
    shares = (0.0, 1.0) if teacher_share is None else (teacher_share,)
    searches = (False, True) if teach_search is None else (teach_search,)
    ways = [Teaching(share if taught else 0.0, share) for share in shares for taught in searches]
    return list(dict.fromkeys(ways))  # without a teacher there is nothing to teach the search


@dataclass(frozen=True)
class TeachingTrial:
    """Which of several ways to teach was the best.

    Attributes:
        validation_aucs: of the smallest ticket, for each way that was tried.
        failed: why a further way could not be tried; None if none failed.
    """

    best: Teaching
    validation_aucs: Mapping[str, float]
    failed: str | None = None


def try_teachings(ways: Sequence[Teaching], validation_auc: Callable[[Teaching], float]) -> TeachingTrial:
    """Go from way to way while validation AUC rises by `MIN_GAIN`; a search that cannot be taught costs but its try."""
    best, aucs = ways[0], {str(ways[0]): validation_auc(ways[0])}
    for way in ways[1:]:
        try:
            aucs[str(way)] = validation_auc(way)
        except BudgetError as error:
            return TeachingTrial(best, aucs, f"{way}: {error}")
        if aucs[str(way)] < aucs[str(best)] + MIN_GAIN:
            break
        best = way
    return TeachingTrial(best, aucs)


def check_teaching(teacher_share: float | None, teach_search: bool | None) -> None:
    """Raise unless the share can be one, and a search is taught by somebody."""
    check_share(0.0 if teacher_share is None else teacher_share)
    if teach_search and teacher_share == 0:
        raise ConfigError("teach_search is true, but teacher_share is 0: nobody teaches; leave one of them out")


def check_teachers(teacher_share: float | None, num_teachers: int, *, others: int) -> None:
    """Raise unless there can be so many, and no more is told of teachers where there is none.

    Args:
        others: how many models of other kinds teach.
    """
    if num_teachers < 1:
        raise ConfigError(f"num_teachers is {num_teachers}; it must be at least 1; for none: teacher_share = 0")
    if num_teachers > 1 and teacher_share == 0:
        raise SettingsConflictError(f"num_teachers is {num_teachers}, but teacher_share is 0. Leave one of them out.")
    if others and teacher_share == 0:
        raise SettingsConflictError("teacher_models are given, but teacher_share is 0. Leave one of them out.")
