"""write_report(): the last stage of a run. Points → results.json, pictures of the frontier and of the falling count."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from thresher._internal.files import read_json
from thresher.data.table import EncodedTable
from thresher.embeddings.method_registry import method_name
from thresher.experiment.auc_doubts import drop_doubts
from thresher.experiment.run import Run
from thresher.models.model_registry import model_name
from thresher.report.frontier import Frontier, FrontierPoint
from thresher.report.plots import plot_frontier, plot_kept
from thresher.training.checkpoint import read_history
from thresher.training.epochs import HISTORY


@dataclass(frozen=True)
class PruneResult:
    """What a run came to: sizes and metrics, and where its files are.

    Attributes:
        frontier: the dense model's point and one per budget.
        recommended: the smallest within `max_auc_drop`, where that was asked for and one was found.
    """

    run: Run
    frontier: Frontier
    recommended: FrontierPoint | None


def write_report(run: Run, table: EncodedTable, dense: FrontierPoint, points: Sequence[FrontierPoint]) -> PruneResult:
    """Points → results.json, and the frontier as a picture."""
    facts = {
        "source": run.config.data.source,
        "model": model_name(run.config.model),
        "method": method_name(run.config.embedding),
        "seed": run.config.seed,
        "num_rows": table.num_rows,
        "num_features": table.schema.num_features,
        "seconds": _seconds(run),
        "still_improving": [name for name, folder in _trainings(run, points) if _still_improving(run, folder)],
        "teacher": _teacher(run),
    }
    frontier = Frontier(points=tuple(points), dense=dense, metadata=facts)
    drop = run.config.max_auc_drop
    recommended = None if drop is None else frontier.smallest_within(drop)
    if drop is not None:
        labels = table.split("validation").labels
        num_positive = int((labels != 0).sum())
        doubts = drop_doubts(drop, dense.validation_auc, num_positive, len(labels) - num_positive)
        wanted = None if recommended is None else recommended.budget
        told = {"recommended": wanted} | ({} if doubts is None else {"doubts": doubts})
        frontier = replace(frontier, metadata={**facts, **told})
    frontier.save(run.results)
    plot_frontier(frontier, run.report / "frontier.png")
    _plot_search(run, points)
    return PruneResult(run, frontier, recommended)


def _teacher(run: Run) -> dict[str, object]:
    """The teachers' part in the labels, and, where it was to be chosen, what decided it."""
    told: dict[str, object] = {"num_teachers": run.config.num_teachers} if run.config.num_teachers > 1 else {}
    if run.config.teacher_models:
        told["teacher_models"] = [model_name(model) for model in run.config.teacher_models]
    if run.teacher.exists():
        return {"search_share": 0.0, **read_json(run.teacher), **told}
    teaching = run.teaching()
    assert teaching is not None, "retraining begins once it is decided"
    return {"share": teaching.retraining, "search_share": teaching.search, **told}


def _trainings(run: Run, points: Sequence[FrontierPoint]) -> list[tuple[str, Path]]:
    """The dense model, the other teachers and the tickets by name, with the folders their histories are in."""
    budgets, way = [str(point.budget) for point in points], str(run.teaching())
    others = range(2, len(run.config.all_teachers()) + 1) if run.config.largest_share else ()
    teachers = [(f"teacher {number}", run.teacher_labels(number).parent) for number in others]
    return [("dense", run.dense), *teachers, *((budget, run.retrained(budget) / way) for budget in budgets)]


def _still_improving(run: Run, folder: Path) -> bool:
    """Whether a training ended at `max_epochs` with its best epoch."""
    training = run.config.training
    values = [record["validation"][training.early_stopping_metric] for record in read_history(folder / HISTORY)]
    best = max(values) if training.early_stopping_metric == "auc" else min(values)
    return len(values) == training.max_epochs and values[-1] == best


def _plot_search(run: Run, points: Sequence[FrontierPoint]) -> None:
    """How the count fell; a method that is not searched epoch by epoch has no such picture."""
    history = run.tickets / HISTORY
    records = [record for record in read_history(history) if "num_kept" in record] if history.exists() else []
    if records:
        plot_kept(
            [record["step"] for record in records],
            [record["num_kept"] for record in records],
            run.report / "kept.png",
            budgets={str(point.budget): point.num_parameters for point in points},
        )


def _seconds(run: Run) -> float:
    """What searches and all trainings took, interruptions not counted; the same however often a run was resumed."""
    histories = [read_history(path) for path in sorted(run.folder.rglob(HISTORY))]
    return float(sum(record["seconds"] for records in histories for record in records))
