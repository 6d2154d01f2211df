"""The results of a run: metrics, cost and doubts in `results.json`, figures, and the report page."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from thresher._internal.processes import training_together, writes_files
from thresher._internal.storage.files import read_json
from thresher.data.encode.row_warnings import warn_about_skipped
from thresher.data.table import EncodedTable
from thresher.embeddings.method_registry import method_name
from thresher.experiment.floor import NO_EMBEDDING
from thresher.experiment.pages.run_page import SeedResult, write_run_page
from thresher.experiment.run.cost import DENSE, Cost
from thresher.experiment.run.run_folder import Run
from thresher.models.model_registry import model_name
from thresher.report.frontier import SPLITS, Frontier, FrontierPoint, Split, mean_points
from thresher.report.plots import plot_frontier, plot_kept
from thresher.training.checkpoint import read_history
from thresher.training.metrics import Metrics, auc_standard_error
from thresher.training.run_state import HISTORY


def write_report(
    run: Run,
    table: EncodedTable,
    dense: FrontierPoint,
    points: Sequence[FrontierPoint],
    floor: FrontierPoint | None = None,
) -> Frontier:
    """Write `results.json`, the figures and the report page."""
    improving = [name for name, folder in _trainings(run, points) if _still_improving(run, folder)]
    dense, *points = [
        replace(point, still_improving=(point.budget or DENSE) in improving) for point in (dense, *points)
    ]
    cost = Cost.of(_stage_folders(run))
    metadata: dict[str, object] = {
        "source": run.config.data.source,
        "model": model_name(run.config.model),
        "method": method_name(run.config.embedding),
        "seed": run.config.seed,
        "num_rows": table.num_rows,
        "num_features": table.schema.num_features,
        "seconds": cost.total_seconds,
        "cost": cost.to_json(),
        "still_improving": improving,
        "auc_standard_error": _standard_errors(table, dense),
        "validation_labels": dict(zip(("positive", "negative"), _label_counts(table, "validation"), strict=True)),
        "bad_rows": warn_about_skipped(table),
        "distillation": _distillation(run),
        "effort": run.config.effort,
    }
    frontier = Frontier(points=tuple(points), dense=dense, floor=floor, metadata=metadata)
    frontier = _with_recommendation(frontier, run, table)
    if writes_files():
        frontier.save(run.results)
        plot_frontier(frontier, run.report / "frontier.png")
        _plot_search(run, points)
        with training_together(None):  # this process alone evaluates the models for the page
            write_run_page(table, [SeedResult(run=run, frontier=frontier, trainings=_trainings(run, points))])
    return frontier


def write_mean(runs: Sequence[Run], table: EncodedTable, seeds: Sequence[Frontier]) -> Frontier:
    """Replace results, figure and page of the first seed by means over all seeds; `by_seed` has the single results."""
    run, first = runs[0], seeds[0]
    cost = Cost.of([stage for each in runs for stage in _stage_folders(each)])
    (dense,) = mean_points([seed.dense for seed in seeds if seed.dense is not None])
    floors = mean_points([seed.floor for seed in seeds if seed.floor is not None])
    by_seed = [
        {"seed": seed.metadata["seed"]} | {name: seed.to_json()[name] for name in ("floor", "dense", "points")}
        for seed in seeds
    ]
    metadata = {
        **first.metadata,
        "seeds": [seed.metadata["seed"] for seed in seeds],
        "seconds": cost.total_seconds,
        "cost": cost.to_json(),
        "still_improving": list(dict.fromkeys(name for seed in seeds for name in seed.metadata["still_improving"])),
        "by_seed": by_seed,
    }
    points = mean_points([point for seed in seeds for point in seed.points])
    frontier = Frontier(points=tuple(points), dense=dense, floor=floors[0] if floors else None, metadata=metadata)
    frontier = _with_recommendation(frontier, run, table)
    if writes_files():
        frontier.save(run.results)
        plot_frontier(frontier, run.report / "frontier.png")
        results = [
            SeedResult(run=own, frontier=seed, trainings=_trainings(own, seed.points))
            for own, seed in zip(runs, seeds, strict=True)
        ]
        write_run_page(table, results, mean=frontier)
    return frontier


def _with_recommendation(frontier: Frontier, run: Run, table: EncodedTable) -> Frontier:
    """The frontier with the smallest size within `max_auc_drop`, if that is set, and doubts about it."""
    drop = run.config.max_auc_drop
    if drop is None or frontier.dense is None:
        return frontier
    recommended = frontier.smallest_within(drop)
    doubts = None
    if recommended is not None:
        doubts = drop_doubts(drop, frontier.dense.validation_auc, *_label_counts(table, "validation"))
    found: dict[str, object] = {"recommended": None if recommended is None else recommended.budget}
    if doubts is not None:
        found["doubts"] = doubts
    others = {key: value for key, value in frontier.metadata.items() if key not in ("recommended", "doubts")}
    return replace(frontier, metadata=others | found)


def _standard_errors(table: EncodedTable, dense: FrontierPoint) -> dict[str, float]:
    """Standard error of the dense model's AUC on each split: how much AUC differs between samples of rows."""
    errors: dict[str, float] = {}
    for split in SPLITS:
        auc = dense.auc(split)
        if auc is not None:
            errors[split] = auc_standard_error(auc, *_label_counts(table, split))
    return errors


def _label_counts(table: EncodedTable, split: Split) -> tuple[int, int]:
    """Positive and negative rows."""
    labels = table.split(split).labels
    num_positive = int((labels != 0).sum())
    return num_positive, len(labels) - num_positive


def drop_doubts(drop: float, dense_auc: float, num_positive: int, num_negative: int) -> str | None:
    """Why a recommendation by `max_auc_drop` may be noise, as a sentence; None if it is not."""
    error = auc_standard_error(dense_auc, num_positive, num_negative)
    if dense_auc < 0.5 + 2 * error:
        return (
            f"Warning: the dense model's validation AUC {dense_auc:.4f} is not clearly above 0.5 (standard error "
            f"{error:.4f}). Any size may seem good enough."
        )
    if drop < error:
        return (
            f"Warning: the recommendation may be noise. A drop of {drop} is below the standard error {error:.4f} of "
            f"the validation AUC ({num_positive:,} positive and {num_negative:,} negative rows)."
        )
    return None


def _distillation(run: Run) -> dict[str, object]:
    """The weight of teacher predictions in the labels and, if validation decided it, the AUC of each plan tried."""
    found: dict[str, object] = {"num_teachers": run.config.num_teachers} if run.config.num_teachers > 1 else {}
    if run.config.teacher_models:
        found["teacher_models"] = [model_name(model) for model in run.config.teacher_models]
    if run.choice.exists():
        return {**read_json(run.choice), **found}
    plan = run.distillation()
    assert plan is not None, "retraining starts once the plan is chosen"
    return {"share": plan.retraining, "search_share": plan.search, **found}


def _trainings(run: Run, points: Sequence[FrontierPoint]) -> list[tuple[str, Path]]:
    """The name and folder of each training: the dense model, the other teachers, the tickets."""
    budgets, plan = [str(point.budget) for point in points], str(run.distillation())
    others = range(2, len(run.config.all_teachers()) + 1) if run.config.largest_share else ()
    teachers = [(f"teacher {number}", run.teacher_labels(number).parent) for number in others]
    return [("dense", run.dense), *teachers, *((budget, run.retrained(budget) / plan) for budget in budgets)]


def _still_improving(run: Run, folder: Path) -> bool:
    """Whether its own limit ended a training with its best epoch; early stopping ends one after later epochs."""
    if not (folder / HISTORY).exists():  # retraining of 0 epochs
        return False
    stopping, records = run.config.training.early_stopping(), read_history(folder / HISTORY)
    for record in records:
        stopping.update(record["epoch"], Metrics.from_json(record["validation"]))
    return stopping.best_epoch == len(records)


def _plot_search(run: Run, points: Sequence[FrontierPoint]) -> None:
    """Draw the kept entries over the steps of the search, if the method searches epoch by epoch."""
    history = run.tickets / HISTORY
    records = [record for record in read_history(history) if "num_kept" in record] if history.exists() else []
    if records:
        plot_kept(
            [record["step"] for record in records],
            [record["num_kept"] for record in records],
            run.report / "kept.png",
            budgets={str(point.budget): point.num_parameters for point in points},
        )


def _stage_folders(run: Run) -> list[tuple[str, Path]]:
    """The name and folder of everything that was trained, also of plans that were tried and not chosen."""
    teachers = [run.teacher_labels(number).parent for number in range(2, len(run.config.all_teachers()) + 1)]
    searches = dict.fromkeys(run.ticket_folder(plan) for plan in run.config.candidate_plans())
    trials = sorted(run.trials.glob("*"))
    retrained = [
        (f"retrain {budget}", folder)
        for budget in run.config.wanted_budgets()
        for folder in sorted(run.retrained(budget).glob("*"))
    ]
    return [
        (NO_EMBEDDING, run.floor),
        (DENSE, run.dense),
        *(("other teachers", folder) for folder in teachers),
        *(("trial of soft labels", folder) for folder in trials),
        *(("search", folder) for folder in searches),
        *retrained,
    ]
