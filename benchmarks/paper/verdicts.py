"""Who is ahead: methods paired over seeds at equal budgets, and against each other at equal bytes, in tables and words.

Pure functions of frontier points. A difference counts as one from `LEVEL` on, or where three seeds or more agree.
"""

from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import fmean, stdev

from paper.page import table
from thresher.report.frontier import FrontierPoint

LEVEL = 0.001
"""Test AUCs closer than this differ no more than seeds do."""
ENOUGH_SEEDS = 3


def paired(points: Sequence[FrontierPoint], one: str, other: str, budget: str) -> list[float]:
    """Test AUC of one method minus another's, of one budget, for each seed both have."""
    aucs = {(point.label, point.seed): point.test_auc for point in points if point.budget == budget}
    seeds = sorted({seed for label, seed in aucs if label == other and (one, seed) in aucs}, key=str)
    return [float(aucs[one, seed] or 0) - float(aucs[other, seed] or 0) for seed in seeds]


def signed(differences: Sequence[float]) -> str:
    """Mean difference with its sign, ± standard deviation, and over how many seeds."""
    if not differences:
        return "–"
    spread = f" ± {stdev(differences):.4f}" if len(differences) > 1 else ""
    return f"{fmean(differences):+.4f}{spread} ({len(differences)})"


def is_ahead(differences: Sequence[float]) -> bool:
    agreed = len(differences) >= ENOUGH_SEEDS and min(differences) > 0
    return agreed or fmean(differences) >= LEVEL


def at_equal_budgets(points: Sequence[FrontierPoint], own: str, budgets: Sequence[str]) -> str:
    """One method minus each other at the same budget, seed by seed, and where it is level or behind."""
    rows, level, behind, num_ahead = [], [], [], 0
    for other in (label for label in dict.fromkeys(point.label for point in points) if label != own):
        cells = [paired(points, own, other, budget) for budget in budgets]
        if any(cells):
            rows.append([other, *map(signed, cells)])
        for budget, cell in zip(budgets, cells, strict=True):
            told = f"{other} at {budget} ({signed(cell)})"
            if cell and is_ahead(cell):
                num_ahead += 1
            elif cell:
                (behind if is_ahead([-difference for difference in cell]) else level).append(told)
    if not rows:
        return ""
    verdict = f"Of {num_ahead + len(level) + len(behind)} comparisons `{own}` is ahead in {num_ahead}"
    verdict += f"; level, within {LEVEL}, with {', '.join(level)}" if level else ""
    verdict += f"; behind {', '.join(behind)}" if behind else "; behind in none"
    return "\n\n".join(
        [
            f"`{own}` minus each other method, paired over the seeds both have:",
            table(["difference of test AUC", *budgets], rows),
            f"{verdict}.",
        ]
    )


def at_equal_bytes(points: Sequence[FrontierPoint], own: str) -> str:
    """Each size of one method beside the best that any other has with no more bytes."""
    mine = _groups(point for point in points if point.label == own and point.budget is not None)
    others = _groups(point for point in points if point.label != own)
    rows = []
    for group in mine:
        rivals = [rival for rival in others if _bytes(rival) <= _bytes(group)]
        if not rivals:
            rows.append([group[0].budget, f"{_bytes(group):,.0f}", f"{_auc(group):.4f}", "–", "–", "–"])
            continue
        best = max(rivals, key=_auc)
        name = f"{best[0].label}, {best[0].num_parameters:,} parameters"
        told = [f"{_bytes(best):,.0f}", f"{_auc(best):.4f} ({_auc(group) - _auc(best):+.4f})"]
        rows.append([group[0].budget, f"{_bytes(group):,.0f}", f"{_auc(group):.4f}", name, *told])
    return table(
        [f"`{own}` at", "bytes", "test AUC", "best of the others with no more bytes", "bytes", "test AUC"], rows
    )


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
    return fmean(point.test_auc or 0.0 for point in group)
