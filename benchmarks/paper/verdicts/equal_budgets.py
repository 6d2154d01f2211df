"""One method compared with the others at equal budgets, as tables and text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paper.experiments import aucs_of
from paper.markdown import ABSENT, Claim, collapsed, holds, mean_sd, paragraphs, table
from paper.verdicts.differences import MIN_DIFFERENCE, T_QUANTILES, is_better_method, paired_differences, signed
from paper.verdicts.groups import MethodAtSize, group_by_size
from thresher.report.frontier import FrontierPoint


def method_rows(points: Sequence[FrontierPoint], budgets: Sequence[str]) -> list[list[str]]:
    """Return table rows: the test AUC of each method at each budget, with its size if that is well below the budget."""
    texts = {(group.label, group.budget): group.auc_text() for group in group_by_size(points)}
    labels = dict.fromkeys(point.label for point in points)
    return [[label, *(texts.get((label, budget), ABSENT) for budget in budgets)] for label in labels]


@dataclass(frozen=True)
class Comparison:
    """One method minus another, paired by seed.

    Attributes:
        other: either uses the same budget, or has its own size and is never smaller than `own`.
    """

    own: MethodAtSize
    other: MethodAtSize

    def __str__(self) -> str:
        where = f"at {self.other.budget}" if self.share_budget else f"with {self.other.size_text()}"
        return f"{self.other.label} {where} ({signed(self.differences)})"

    @property
    def share_budget(self) -> bool:
        return self.other.fills_its_budget and self.other.budget == self.own.budget

    @property
    def differences(self) -> list[float]:
        return paired_differences(self.own.points, self.other.points)

    @property
    def is_better(self) -> bool:
        return is_better_method(self.own.points, self.other.points)

    @property
    def is_worse(self) -> bool:
        return is_better_method(self.other.points, self.own.points)


def comparisons(points: Sequence[FrontierPoint], own: str, budgets: Sequence[str]) -> list[Comparison]:
    """Compare the method `own` with every other method at the budgets that the other method uses.

    A method that cannot use a budget is compared with the largest table of `own` that has at most as many parameters,
    once per size.
    """
    groups = [group for group in group_by_size(points) if group.budget in budgets]
    own_groups = {group.budget: group for group in groups if group.label == own}
    found: dict[tuple[str, str, str | None], Comparison] = {}
    for group in (group for group in groups if group.label != own):
        if group.fills_its_budget:
            match = own_groups.get(group.budget)
        else:
            fitting = [one for one in own_groups.values() if one.largest <= group.smallest]
            match = max(fitting, key=lambda one: one.largest, default=None)
        if match is not None and paired_differences(match.points, group.points):
            found[group.label, group.size_text(), match.budget] = Comparison(match, group)
    return list(found.values())


def claim_better(
    statement: str, prefix: str, points: Mapping[str, Sequence[FrontierPoint]], budgets: Mapping[str, Sequence[str]],
    own: str, methods: Sequence[str], names: Mapping[str, str], *, meanings: Mapping[str, str],
) -> list[Claim]:  # fmt: skip
    """Return the claim that `own` is better than `methods`, tested on several models or data sets.

    Args:
        points: model or data set → points of all methods.
        names: model or data set → its name in the evidence.
        meanings: verdict → what it means.
    """
    texts, checks = [], []
    for key, every in points.items():
        chosen = [point for point in every if point.label in (own, *methods)]
        if found := comparisons(chosen, own, budgets[key]):
            labels = ", ".join(dict.fromkeys(one.other.label for one in found))
            texts.append(f"{names[key]} ({labels}): {outcome_counts(found, name_equal=False)}")
            checks += [one.is_better for one in found]
    if not texts:
        return []
    verdict = holds(checks)
    return [Claim(statement, verdict, f"{prefix}, {'; '.join(texts)}", meanings.get(verdict, ""))]


def at_equal_budgets(points: Sequence[FrontierPoint], own: str, budgets: Sequence[str]) -> str:
    """Return tables of `own` minus every other method, and where it is not better."""
    found, parts = comparisons(points, own, budgets), []
    sharing, others = ([one for one in found if one.share_budget is share] for share in (True, False))
    if sharing:
        cells = {(one.other.label, one.other.budget): signed(one.differences) for one in sharing}
        shown = {one.other.label for one in sharing}
        labels = [label for label in dict.fromkeys(point.label for point in points) if label in shown]
        rows = [[label, *(cells.get((label, budget), ABSENT) for budget in budgets)] for label in labels]
        parts += [
            f"`{own}` minus each other method that uses the same budget, paired by seed:",
            table(["difference of test AUC", *budgets], rows),
            f"At equal budgets `{own}` is {outcome_counts(sharing)}.",
        ]
    if others:
        heads = ["method that cannot use its budget", "parameters", "test AUC", f"`{own}` at", "difference"]
        rows = [
            [
                one.other.label,
                one.other.size_text(),
                mean_sd(aucs_of(one.other.points)),
                str(one.own.budget),
                signed(one.differences),
            ]
            for one in others
        ]
        parts += [
            "Some methods cannot use a budget with their settings. Each is compared with the largest table of "
            f"`{own}` that has at most as many parameters: `{own}` is {outcome_counts(others)}.",
            collapsed("all of these comparisons", table(heads, rows)),
        ]
    return paragraphs(*parts)


def outcome_counts(found: Sequence[Comparison], *, name_equal: bool = True) -> str:
    """Count the comparisons that are better, equal and worse; comparisons with few seeds are counted separately."""
    several = [one for one in found if len(one.differences) >= min(T_QUANTILES)]
    few = [one for one in found if len(one.differences) < min(T_QUANTILES)]
    texts = []
    if several:
        equal = [one for one in several if not one.is_better and not one.is_worse]
        worse = [one for one in several if one.is_worse]
        texts.append(f"better in {sum(one.is_better for one in several)} of {len(several)} comparisons")
        if equal:
            names = f" from {', '.join(map(str, equal))}" if name_equal else f" in {len(equal)}"
            texts.append(f"no significant difference{names}")
        texts.append(f"worse than {', '.join(map(str, worse))}" if worse else "worse in none")
    if few:
        lower = [one for one in few if not one.is_better]
        better = f"{len(few) - len(lower)} of {len(few)}"
        texts.append(f"better by at least {MIN_DIFFERENCE} in {better} comparisons with one or two seeds")
        texts[-1] += f" (not better: {', '.join(map(str, lower))})" if lower else ""
    return "; ".join(texts)
