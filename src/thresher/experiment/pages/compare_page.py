"""The report page of a comparison: methods by budget, who is ahead, every model."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from thresher import __version__
from thresher.experiment.comparison.compared_points import ComparedPoint, compared_models
from thresher.models.model_registry import FLOOR
from thresher.report.page import PAGE, write_page
from thresher.report.remarks import TEST_TEXT, find_leader

COLUMNS = (
    "model", "method", "budget", "seed", "num_parameters", "storage_bytes", "bundle_bytes",
    "validation_auc", "validation_logloss", "test_auc", "test_logloss", "seconds",
)  # fmt: skip


def write_comparison_page(
    folder: Path,
    points: Sequence[ComparedPoint],
    *,
    settings: str = "",
    unmet: Mapping[tuple[str, str, str], str] | None = None,
    max_epochs: float | None = None,
) -> Path:
    """Write `report/index.html` from the points of a comparison.

    Args:
        unmet: (model, method, budget) → why no settings can meet the budget.
        max_epochs: trainings that ended after this number of epochs are marked.
    """
    models = compared_models(points)
    rows = [{key: value for key, value in asdict(point).items() if key in COLUMNS} for point in points]
    tables = [(model, *_table([p for p in points if p.model == model], max_epochs)) for model in models]
    seeds = sorted({point.seed for point in points})
    methods = {point.method for point in points if point.model != FLOOR}
    content = {
        "version": __version__,
        "title": f"{len(methods)} methods on {points[0].source if points else 'no data'}",
        "subtitle": str(folder),
        "overview": [
            ("methods", str(len(methods))),
            ("models", ", ".join(models)),
            ("seeds", ", ".join(map(str, seeds))),
            ("trained models", f"{len(points):,}"),
        ],
        "warnings": _warnings(points, unmet or {}, max_epochs, len(seeds)),
        "unmet": [(*key, reason) for key, reason in (unmet or {}).items()],
        "test_text": TEST_TEXT,
        "leaders": [(model, _leaders([p for p in points if p.model == model])) for model in models],
        "tables": tables,
        "improving": any("*" in cell["text"] for _, _, rows in tables for row in rows for cell in row["cells"]),
        "points": rows,
        "commands": [
            {
                "title": "Continue or repeat this comparison",
                "text": shlex.join(["thresher", "compare", "--resume", "--out", str(folder)]),
            }
        ],
        "settings": settings,
    }
    report = folder / "report"
    report.mkdir(parents=True, exist_ok=True)
    return write_page(report / PAGE, "compare", content, {"points": rows, "floor": FLOOR})


def _budgets(points: Sequence[ComparedPoint]) -> list[str]:
    """Budgets, the largest first."""
    sizes: dict[str, int] = {}
    for point in points:
        if point.budget is not None:
            sizes[point.budget] = max(sizes.get(point.budget, 0), point.num_parameters)
    return sorted(sizes, key=lambda budget: -sizes[budget])


def _by_seed(points: Sequence[ComparedPoint], budget: str) -> dict[str, dict[int, float]]:
    values: dict[str, dict[int, float]] = {}
    for point in points:
        if point.budget == budget:
            values.setdefault(point.method, {})[point.seed] = point.test_auc
    return values


def _leaders(points: Sequence[ComparedPoint]) -> list[dict[str, Any]]:
    found = []
    for budget in _budgets(points):
        leader = find_leader(_by_seed(points, budget))
        own = {"budget": budget, "leader": leader.method, "mean": f"{leader.mean:.4f}"}
        found.append({**own, "level": leader.level, "behind": leader.behind})
    return found


def _table(points: Sequence[ComparedPoint], max_epochs: float | None) -> tuple[list[str], list[dict[str, Any]]]:
    budgets = _budgets(points)
    values = {budget: _by_seed(points, budget) for budget in budgets}
    best = {budget: max(fmean(seeds.values()) for seeds in values[budget].values()) for budget in budgets}
    improving = {(p.method, p.budget) for p in points if _is_improving(p, max_epochs)}
    rows = []
    for method in dict.fromkeys(point.method for point in points if point.budget is not None):
        cells = []
        for budget in budgets:
            aucs = list(values[budget].get(method, {}).values())
            if not aucs:
                cells.append({"text": "–", "mean": "", "best": False})
                continue
            spread = f" ± {stdev(aucs):.4f}" if len(aucs) > 1 else ""
            mark = " *" if (method, budget) in improving else ""
            mean = fmean(aucs)
            cells.append({"text": f"{mean:.4f}{spread}{mark}", "mean": f"{mean:.6f}", "best": mean == best[budget]})
        rows.append({"method": method, "cells": cells})
    return budgets, sorted(rows, key=_order, reverse=True)


def _order(row: Mapping[str, Any]) -> float:
    """Mean over the budgets that a method meets."""
    return fmean([float(cell["mean"]) for cell in row["cells"] if cell["mean"]] or [0.0])


def _is_improving(point: ComparedPoint, max_epochs: float | None) -> bool:
    if point.still_improving is not None:
        return point.still_improving
    return max_epochs is not None and point.retrain_epochs >= max_epochs


def _warnings(
    points: Sequence[ComparedPoint],
    unmet: Mapping[tuple[str, str, str], str],
    max_epochs: float | None,
    num_seeds: int,
) -> list[str]:
    found = []
    if num_seeds < 2:
        found.append("There is one seed. Differences in AUC below 0.001 may be noise.")
    elif num_seeds < 3:
        found.append("There are two seeds. The test has little power: many differences stay undecided.")
    improving = sorted({point.method for point in points if point.budget and _is_improving(point, max_epochs)})
    if improving:
        found.append(
            f"Trainings that ended at their last epoch: {', '.join(improving)}. More epochs may change the order."
        )
    found += _floor_warnings(points)
    for budget in dict.fromkeys(budget for _, _, budget in unmet):
        methods = dict.fromkeys(method for _, method, other in unmet if other == budget)
        found.append(f"Budget {budget} cannot be met by {', '.join(methods)}. The reasons are below the table.")
    return found


def _floor_warnings(points: Sequence[ComparedPoint]) -> list[str]:
    """A model none of whose embeddings is better than no embedding."""
    floor = [point.test_auc for point in points if point.model == FLOOR]
    found = []
    for model in compared_models(points) if floor else []:
        own = [point for point in points if point.model == model]
        means = [fmean(seeds.values()) for budget in _budgets(own) for seeds in _by_seed(own, budget).values()]
        if means and max(means) <= fmean(floor):
            found.append(
                f"{model}: no method is better than the model without an embedding ({fmean(floor):.4f}). The embedding "
                "adds nothing that can be measured, or the trainings are too short."
            )
    return found
