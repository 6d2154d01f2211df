"""Who is ahead: methods paired over seeds at equal budgets, and against each other at equal bytes, in tables and words.

Pure functions of frontier points. A difference counts where all seeds agree on its sign, and it is at least `LEVEL` or,
with three seeds or more, one that chance would hardly make (Student's t, one in twenty).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from paper.experiments import aucs_of
from paper.page import ABSENT, mean_sd, table
from thresher.report.frontier import FrontierPoint
from thresher.tickets.budget import Budget

LEVEL = 0.001
"""Test AUCs closer than this differ no more than seeds do."""
STUDENT = {3: 4.303, 4: 3.182, 5: 2.776}
"""Seeds → the t that chance exceeds in one of twenty cases, on both sides."""


FILLED = 0.95
"""A method that uses less of its budget is one of another size."""


def paired(points: Iterable[FrontierPoint], others: Iterable[FrontierPoint]) -> list[float]:
    """Test AUC of one method's points minus another's, for each seed both have."""
    own, other = ({str(p.seed): p.test_auc for p in side if p.test_auc is not None} for side in (points, others))
    return by_seed(own, other)


def by_seed(own: Mapping[str, float], other: Mapping[str, float]) -> list[float]:
    """Seed → AUC of one side minus that of another, for each seed both have."""
    return [own[seed] - other[seed] for seed in sorted(own.keys() & other.keys())]


def signed(differences: Sequence[float]) -> str:
    """Mean difference with its sign, ± standard deviation, and over how many seeds."""
    if not differences:
        return ABSENT
    spread = f" ± {stdev(differences):.4f}" if len(differences) > 1 else ""
    return f"{fmean(differences):+.4f}{spread} ({len(differences)})"


def is_ahead(differences: Sequence[float]) -> bool:
    mean = fmean(differences)
    num_seeds = len(differences)
    if min(differences) <= 0:
        return False
    if mean >= LEVEL or num_seeds < min(STUDENT):
        return mean >= LEVEL
    return mean >= STUDENT[min(num_seeds, max(STUDENT))] * stdev(differences) / sqrt(num_seeds)


@dataclass(frozen=True)
class SideBySide:
    """Two ways of one method at the budgets of the first, paired over seeds.

    Attributes:
        rows: of a table: budget, test AUC of both, the first minus the second.
        differences: budget → those of each seed.
    """

    rows: Sequence[Sequence[str]]
    differences: Mapping[str, list[float]]

    @classmethod
    def of(cls, points: Sequence[FrontierPoint], others: Sequence[FrontierPoint]) -> "SideBySide":
        """At every budget that `points` have."""
        rows, differences = [], {}
        for budget in dict.fromkeys(str(point.budget) for point in points):
            sides = [[point for point in side if point.budget == budget] for side in (points, others)]
            differences[budget] = paired(*sides)
            rows.append([budget, *(mean_sd(aucs_of(side)) for side in sides), signed(differences[budget])])
        return cls(rows, differences)

    def in_words(self, subject: str) -> str:
        """At which sizes the first way, called `subject`, is ahead, and at which behind."""
        shared = {budget: each for budget, each in self.differences.items() if each}
        ahead = [budget for budget, each in shared.items() if is_ahead(each)]
        behind = [budget for budget, each in shared.items() if is_ahead([-one for one in each])]
        told = f"{subject} is ahead at {', '.join(ahead) or 'no size'}, behind at {', '.join(behind) or 'none'}."
        return told if shared else "They have no seed in common."


def told_size(points: Sequence[FrontierPoint]) -> str:
    """The size of points that stay well below their budget, as where a method's next larger form did not fit."""
    size = max(point.num_parameters for point in points)
    return "" if _fills(points) else f" @ {size:,}"


def _fills(points: Sequence[FrontierPoint]) -> bool:
    budget = Budget.parse(str(points[0].budget)).max_entries(10**9)
    return max(point.num_parameters for point in points) >= FILLED * budget


def at_equal_budgets(points: Sequence[FrontierPoint], own: str, budgets: Sequence[str]) -> str:
    """One method minus each other at the same budget, seed by seed, and where it is level or behind."""
    rows: list[list[str]] = []
    compared: list[_Compared] = []
    for other in (label for label in dict.fromkeys(point.label for point in points) if label != own):
        cells = []
        for budget in budgets:
            mine, others = ([p for p in points if (p.label, p.budget) == (name, budget)] for name in (own, other))
            differences = paired(mine, others)
            cells.append(signed(differences) + (told_size(others) if differences else ""))
            if differences:
                compared.append(_Compared(f"{other} at {budget}", differences, _fills(others)))
        rows += [[other, *cells]] if any(cell != ABSENT for cell in cells) else []
    if not rows:
        return ""
    filled, short = ([one for one in compared if one.filled is filled] for filled in (True, False))
    return "\n\n".join(
        [
            f"`{own}` minus each other method, paired over the seeds both have:",
            table(["difference of test AUC", *budgets], rows),
            _verdict(own, filled, "Where the other uses its budget,"),
            _verdict(own, short, "Where it cannot, and its size is told,"),
        ]
    ).strip()


@dataclass(frozen=True)
class _Compared:
    """One method against another at one budget."""

    name: str
    differences: Sequence[float]
    filled: bool

    def __str__(self) -> str:
        return f"{self.name} ({signed(self.differences)})"


def _verdict(own: str, compared: Sequence[_Compared], where: str) -> str:
    if not compared:
        return ""
    ahead = [one for one in compared if is_ahead(one.differences)]
    behind = [one for one in compared if is_ahead([-difference for difference in one.differences])]
    level = [one for one in compared if one not in ahead and one not in behind]
    single = sum(len(one.differences) == 1 for one in compared)
    told = f"{where} `{own}` is ahead in {len(ahead)} of {len(compared)} comparisons"
    told += f" ({single} of the {len(compared)} have one seed)" if single else ""
    told += f"; level, below {LEVEL}, with {', '.join(map(str, level))}" if level else ""
    return told + (f"; behind {', '.join(map(str, behind))}" if behind else "; behind in none") + "."


def at_equal_bytes(points: Sequence[FrontierPoint], own: str) -> str:
    """Each size of one method beside the best that any other has with no more bytes."""
    mine = _groups(point for point in points if point.label == own and point.budget is not None)
    others = _groups(point for point in points if point.label != own)
    rows = []
    for group in mine:
        rivals = [rival for rival in others if _bytes(rival) <= _bytes(group)]
        if not rivals:
            rows.append([group[0].budget, f"{_bytes(group):,.0f}", f"{_auc(group):.4f}", ABSENT, ABSENT, ABSENT])
            continue
        best = max(rivals, key=_auc)
        name = f"{best[0].label}, {best[0].num_parameters:,} parameters"
        told = [f"{_bytes(best):,.0f}", f"{_auc(best):.4f} ({signed(paired(group, best))})"]
        rows.append([group[0].budget, f"{_bytes(group):,.0f}", f"{_auc(group):.4f}", name, *told])
    if not rows:
        return ""
    heads = [f"`{own}` at", "bytes", "test AUC", "best of the others with no more bytes", "bytes", "test AUC"]
    return f"In bytes, all values of `{own}` in float32:\n\n{table(heads, rows)}"


def auc_standard_error(auc: float, num_positive: int, num_negative: int) -> float:
    """How much an AUC varies with the rows it is measured on (Hanley and McNeil, 1982).

    >>> round(auc_standard_error(0.71, 329, 1631), 4)
    0.0165
    """
    both_positive, both_negative = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = (
        auc * (1 - auc) + (num_positive - 1) * (both_positive - auc**2) + (num_negative - 1) * (both_negative - auc**2)
    )
    return sqrt(variance / (num_positive * num_negative))


def _groups(points: Iterable[FrontierPoint]) -> list[list[FrontierPoint]]:
    """Points of one method and size, over seeds; the largest first."""
    groups: dict[tuple[str, str | None, int | None], list[FrontierPoint]] = {}
    for point in points:
        size = point.num_parameters if point.budget is None else None
        groups.setdefault((point.label, point.budget, size), []).append(point)
    return sorted(groups.values(), key=_bytes, reverse=True)


def _bytes(group: Sequence[FrontierPoint]) -> float:
    return fmean(point.storage_bytes for point in group)


def _auc(group: Sequence[FrontierPoint]) -> float:
    return fmean(point.test_auc for point in group if point.test_auc is not None)
