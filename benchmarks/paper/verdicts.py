"""Who is ahead: methods paired over seeds at equal budgets, and against each other at equal bytes, in tables and words.

Pure functions of frontier points. A difference counts where all seeds agree on its sign, and chance would hardly make
it (Student's t, one case in twenty); with fewer seeds than `min(STUDENT)` where it is at least `LEVEL`, told apart.
Between methods validation has to agree, too: seeds share one test split, so they do not show what it owes to its rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from paper.experiments import aucs_of
from paper.page import ABSENT, folded, mean_sd, table
from thresher.embeddings.registry import registered_embeddings
from thresher.report.frontier import FrontierPoint
from thresher.tickets.budget import Budget

LEVEL = 0.001
"""Test AUCs closer than this differ no more than seeds do."""
STUDENT = {3: 4.303, 4: 3.182, 5: 2.776}
"""Seeds → the t that chance exceeds in one of twenty cases, on both sides."""
RULE = f"""Methods are compared seed by seed. One is *ahead* where it is so with every seed, on average by more than
chance would make of seeds that vary as these do (Student's t, one case in twenty), and on average on the validation
split, too, which has other rows (not asked where one of the two learned its sizes on those rows: DartsEmb, AutoDim,
DNIS, NIS; nor of two ways of one method). *Level* are all others: the seeds do not tell them apart, and with three of
them a difference of 0.002 may go untold. Of many comparisons one in forty would be *ahead* by chance. What rests on one
seed or two has no such test: it is told apart, and counts where every seed says so and the mean is at least
{LEVEL}."""

FILLED = 0.95
"""A method that uses less of its budget is one of another size."""


def paired(points: Iterable[FrontierPoint], others: Iterable[FrontierPoint]) -> list[float]:
    """Test AUC of one method's points minus another's, for each seed both have."""
    own, other = ({str(p.seed): p.test_auc for p in side if p.test_auc is not None} for side in (points, others))
    return by_seed(own, other)


def on_validation(points: Sequence[FrontierPoint], others: Sequence[FrontierPoint]) -> float:
    """Mean validation AUC of one method's points minus another's, over the seeds both have."""
    own, other = ({str(point.seed): point.validation_auc for point in side} for side in (points, others))
    return fmean(by_seed(own, other))


def is_above(points: Sequence[FrontierPoint], others: Sequence[FrontierPoint]) -> bool:
    """Whether one method is ahead of another on test, and validation, unless one learned from it, says so, too."""
    learned = any(_learns_on_validation(side[0].label) for side in (points, others))
    return is_ahead(paired(points, others)) and (learned or on_validation(points, others) > 0)


def _learns_on_validation(label: str) -> bool:
    """Whether a method's search trains on the validation rows."""
    method = registered_embeddings().get(label)
    return method is not None and method.embedding.search_algorithm in ("bilevel", "controller")


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
    mean, num_seeds = fmean(differences), len(differences)
    if min(differences) <= 0:
        return False
    if num_seeds < min(STUDENT):
        return mean >= LEVEL
    return mean >= STUDENT[min(num_seeds, max(STUDENT))] * stdev(differences) / sqrt(num_seeds)


def is_behind(differences: Sequence[float]) -> bool:
    return is_ahead([-difference for difference in differences])


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
        behind = [budget for budget, each in shared.items() if is_behind(each)]
        told = f"{subject} is ahead at {', '.join(ahead) or 'no size'}, behind at {', '.join(behind) or 'none'}."
        return told if shared else "They have no seed in common."


def method_rows(points: Sequence[FrontierPoint], budgets: Sequence[str]) -> list[list[str]]:
    """Of a table: each method's test AUC at each budget, with its size where it stays well below."""
    rows = []
    for label in dict.fromkeys(point.label for point in points):
        own = [[p for p in points if (p.label, p.budget) == (label, budget)] for budget in budgets]
        rows.append([label, *(mean_sd(aucs_of(at)) + told_size(at) if at else ABSENT for at in own)])
    return rows


def told_size(points: Sequence[FrontierPoint]) -> str:
    """The size of points that stay well below their budget, as where a method's next larger form did not fit."""
    return "" if _fills(points) else f" @ {_size(points):,}"


def _fills(points: Sequence[FrontierPoint]) -> bool:
    budget = Budget.parse(str(points[0].budget)).max_entries(10**9)
    return _size(points) >= FILLED * budget


@dataclass(frozen=True)
class Compared:
    """One method minus another at one size, seed by seed.

    Attributes:
        budget: of the one.
        other: the other method, and `size`, its parameters.
        filled: the other uses the same budget; if not, it has a size of its own, no smaller than the one's.
        mine: points of the one.
        points: those of the other.
    """

    budget: str
    other: str
    size: int
    filled: bool
    mine: Sequence[FrontierPoint]
    points: Sequence[FrontierPoint]

    def __str__(self) -> str:
        where = f"at {self.budget}" if self.filled else f"with {self.size:,}"
        return f"{self.other} {where} ({signed(self.differences)})"

    @property
    def differences(self) -> list[float]:
        return paired(self.mine, self.points)

    @property
    def is_ahead(self) -> bool:
        return is_above(self.mine, self.points)

    @property
    def is_behind(self) -> bool:
        return is_above(self.points, self.mine)


def comparisons(points: Sequence[FrontierPoint], own: str, budgets: Sequence[str]) -> list[Compared]:
    """One method against each other at the budgets the other uses.

    A method that cannot use a budget is compared with the largest of the one's sizes that is no larger than it.
    """
    mine = {budget: [p for p in points if (p.label, p.budget) == (own, budget)] for budget in budgets}
    found: dict[tuple[str, int, str], Compared] = {}
    for group in _groups(point for point in points if point.label != own and point.budget in mine):
        label, size, filled = group[0].label, _size(group), _fills(group)
        fitting = [budget for budget, sized in mine.items() if sized and _size(sized) <= size]
        budget = str(group[0].budget) if filled else max(fitting, key=lambda at: _size(mine[at]), default=None)
        if budget is not None and paired(mine[budget], group):
            found[label, size, budget] = Compared(budget, label, size, filled, mine[budget], group)
    return list(found.values())


def at_equal_budgets(points: Sequence[FrontierPoint], own: str, budgets: Sequence[str]) -> str:
    """One method minus each other, in tables, and where it is level or behind."""
    found, parts = comparisons(points, own, budgets), []
    filled, others = ([one for one in found if one.filled is filled] for filled in (True, False))
    if filled:
        cells = {(one.other, one.budget): signed(one.differences) for one in filled}
        labels = [label for label in dict.fromkeys(p.label for p in points) if label in {one.other for one in filled}]
        rows = [[label, *(cells.get((label, budget), ABSENT) for budget in budgets)] for label in labels]
        parts += [
            f"`{own}` minus each other method that uses its budget, paired over the seeds both have:",
            table(["difference of test AUC", *budgets], rows),
            f"`{own}` is {counted(filled)}.",
        ]
    if others:
        heads = ["cannot use its budget", "parameters", "test AUC", f"`{own}` at", "difference"]
        rows = [
            [one.other, f"{one.size:,}", mean_sd(aucs_of(one.points)), one.budget, signed(one.differences)]
            for one in others
        ]
        parts += [
            f"Against methods whose settings cannot use a budget the largest table of `{own}` that is no larger is "
            f"{counted(others)}.",
            folded("each of them", table(heads, rows)),
        ]
    return "\n\n".join(parts)


def counted(compared: Sequence[Compared], *, name_level: bool = True) -> str:
    """In how many it is ahead, and which those are in which it is not; what rests on few seeds apart."""
    several = [one for one in compared if len(one.differences) >= min(STUDENT)]
    few = [one for one in compared if len(one.differences) < min(STUDENT)]
    told = []
    if several:
        level = [one for one in several if not one.is_ahead and not one.is_behind]
        behind = [one for one in several if one.is_behind]
        told.append(f"ahead in {sum(one.is_ahead for one in several)} of {len(several)} comparisons")
        if level:
            told.append(f"level with {', '.join(map(str, level))}" if name_level else f"level in {len(level)}")
        told.append(f"behind {', '.join(map(str, behind))}" if behind else "behind in none")
    if few:
        lower = [one for one in few if not one.is_ahead]
        told.append(f"with one or two seeds higher by {LEVEL} or more in {len(few) - len(lower)} of {len(few)}")
        told[-1] += f" (not: {', '.join(map(str, lower))})" if lower else ""
    return "; ".join(told)


def at_equal_bytes(points: Sequence[FrontierPoint], own: Sequence[str], *, turned: Sequence[str] = ()) -> str:
    """Each size of one method, in one or several ways of storing, beside the best of the others with no more bytes.

    The best is the best on validation.

    Args:
        turned: others that no equal number of parameters compares with: each of their sizes, too, beside the best of
            the one method with no more bytes, so that not only its own sizes are asked for.
    """
    mine = _groups(point for point in points if point.label in own and point.budget is not None)
    others = _groups(point for point in points if point.label not in own)
    rows = []
    for group in mine:
        rivals = [rival for rival in others if _bytes(rival) <= _bytes(group)]
        told = [f"{group[0].label} at {group[0].budget}", f"{_bytes(group):,.0f}", f"{_auc(group):.4f}"]
        if rivals:
            best = max(rivals, key=_validation)
            told += [f"{best[0].label}, {best[0].num_parameters:,} parameters", f"{_bytes(best):,.0f}"]
            rows.append([*told, f"{_auc(best):.4f} ({signed(paired(group, best))})"])
        else:
            rows.append([*told, ABSENT, ABSENT, ABSENT])
    if not rows:
        return ""
    heads = [
        "in bytes",
        "bytes",
        "test AUC",
        "best of the others on validation with no more bytes",
        "bytes",
        "test AUC (difference)",
    ]
    found = [one for rival in others if rival[0].label in turned and (one := _within(rival, mine))]
    names = " and ".join(f"`{label}`" for label in turned)
    words = f"Asked from the other side, for each size of {names}: the best of `{own[0]}` with no more bytes is"
    return table(heads, rows) + (f"\n\n{words} {counted(found)}." if found else "")


def _within(rival: Sequence[FrontierPoint], mine: Sequence[Sequence[FrontierPoint]]) -> Compared | None:
    """The best of some groups that has no more bytes than another, against it."""
    fitting = [group for group in mine if _bytes(group) <= _bytes(rival)]
    best = max(fitting, key=_validation, default=None)
    if best is None or not paired(best, rival):
        return None
    return Compared(str(best[0].budget), rival[0].label, _size(rival), False, best, rival)


def _groups(points: Iterable[FrontierPoint]) -> list[list[FrontierPoint]]:
    """Points of one method and size, over seeds; the largest first."""
    groups: dict[tuple[str, str | None, int | None], list[FrontierPoint]] = {}
    for point in points:
        size = point.num_parameters if point.budget is None else None
        groups.setdefault((point.label, point.budget, size), []).append(point)
    return sorted(groups.values(), key=_bytes, reverse=True)


def _size(group: Sequence[FrontierPoint]) -> int:
    return max(point.num_parameters for point in group)


def _bytes(group: Sequence[FrontierPoint]) -> float:
    return fmean(point.storage_bytes for point in group)


def _validation(group: Sequence[FrontierPoint]) -> float:
    """What the best of several is chosen by, as in all choices."""
    return fmean(point.validation_auc for point in group)


def _auc(group: Sequence[FrontierPoint]) -> float:
    return fmean(point.test_auc for point in group if point.test_auc is not None)
