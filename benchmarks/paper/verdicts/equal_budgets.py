"""One method beside the others at equal budgets, in tables and words."""

from collections.abc import Sequence
from dataclasses import dataclass

from paper.experiments import aucs_of
from paper.markdown import ABSENT, collapsed, mean_sd, table
from paper.verdicts.differences import MIN_DIFFERENCE, T_QUANTILES, is_better_method, paired_differences, signed
from paper.verdicts.groups import MethodAtSize, group_by_size
from thresher.report.frontier import FrontierPoint


def method_rows(points: Sequence[FrontierPoint], budgets: Sequence[str]) -> list[list[str]]:
    """Of a table: each method's test AUC at each budget, with its size where it stays well below."""
    told = {(one.label, one.budget): one.auc_text() for one in group_by_size(points)}
    labels = dict.fromkeys(point.label for point in points)
    return [[label, *(told.get((label, budget), ABSENT) for budget in budgets)] for label in labels]


@dataclass(frozen=True)
class Comparison:
    """One method minus another, seed by seed.

    Attributes:
        mine: the one.
        other: it uses the same budget, or has a size of its own, with no seed smaller than the one's.
    """

    mine: MethodAtSize
    other: MethodAtSize

    def __str__(self) -> str:
        where = f"at {self.other.budget}" if self.share_budget else f"with {self.other.size_text()}"
        return f"{self.other.label} {where} ({signed(self.differences)})"

    @property
    def share_budget(self) -> bool:
        return self.other.fills_its_budget and self.other.budget == self.mine.budget

    @property
    def differences(self) -> list[float]:
        return paired_differences(self.mine.points, self.other.points)

    @property
    def is_better(self) -> bool:
        return is_better_method(self.mine.points, self.other.points)

    @property
    def is_worse(self) -> bool:
        return is_better_method(self.other.points, self.mine.points)


def comparisons(points: Sequence[FrontierPoint], own: str, budgets: Sequence[str]) -> list[Comparison]:
    """One method against each other at the budgets the other uses.

    A method that cannot use a budget is compared with the largest of the one's sizes that is no larger than it, once
    where several budgets bring it to the same size.
    """
    groups = [group for group in group_by_size(points) if group.budget in budgets]
    mine = {group.budget: group for group in groups if group.label == own}
    found: dict[tuple[str, str, str | None], Comparison] = {}
    for group in (group for group in groups if group.label != own):
        fitting = [one for one in mine.values() if one.largest <= group.smallest]
        one = mine.get(group.budget) if group.fills_its_budget else max(fitting, key=_size, default=None)
        if one is not None and paired_differences(one.points, group.points):
            found[group.label, group.size_text(), one.budget] = Comparison(one, group)
    return list(found.values())


def _size(group: MethodAtSize) -> int:
    return group.largest


def at_equal_budgets(points: Sequence[FrontierPoint], own: str, budgets: Sequence[str]) -> str:
    """One method minus each other, in tables, and where it is level or behind."""
    found, parts = comparisons(points, own, budgets), []
    sharing, others = ([one for one in found if one.share_budget is share] for share in (True, False))
    if sharing:
        cells = {(one.other.label, one.other.budget): signed(one.differences) for one in sharing}
        shown = {one.other.label for one in sharing}
        labels = [label for label in dict.fromkeys(point.label for point in points) if label in shown]
        rows = [[label, *(cells.get((label, budget), ABSENT) for budget in budgets)] for label in labels]
        parts += [
            f"`{own}` minus each other method that uses its budget, paired over the seeds both have:",
            table(["difference of test AUC", *budgets], rows),
            f"`{own}` is {outcome_counts(sharing)}.",
        ]
    if others:
        heads = ["cannot use its budget", "parameters", "test AUC", f"`{own}` at", "difference"]
        rows = [
            [
                one.other.label,
                one.other.size_text(),
                mean_sd(aucs_of(one.other.points)),
                str(one.mine.budget),
                signed(one.differences),
            ]
            for one in others
        ]
        parts += [
            f"Against methods whose settings cannot use a budget the largest table of `{own}` that is no larger is "
            f"{outcome_counts(others)}.",
            collapsed("each of them", table(heads, rows)),
        ]
    return "\n\n".join(parts)


def outcome_counts(compared: Sequence[Comparison], *, name_level: bool = True) -> str:
    """In how many it is ahead, and which those are in which it is not; what rests on few seeds apart."""
    several = [one for one in compared if len(one.differences) >= min(T_QUANTILES)]
    few = [one for one in compared if len(one.differences) < min(T_QUANTILES)]
    told = []
    if several:
        level = [one for one in several if not one.is_better and not one.is_worse]
        behind = [one for one in several if one.is_worse]
        told.append(f"ahead in {sum(one.is_better for one in several)} of {len(several)} comparisons")
        if level:
            told.append(f"level with {', '.join(map(str, level))}" if name_level else f"level in {len(level)}")
        told.append(f"behind {', '.join(map(str, behind))}" if behind else "behind in none")
    if few:
        lower = [one for one in few if not one.is_better]
        told.append(
            f"with one or two seeds higher by {MIN_DIFFERENCE} or more in {len(few) - len(lower)} of {len(few)}"
        )
        told[-1] += f" (not: {', '.join(map(str, lower))})" if lower else ""
    return "; ".join(told)
