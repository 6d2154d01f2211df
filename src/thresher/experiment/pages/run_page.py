"""The report page of a run: its results, fields, training histories, warnings and commands."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thresher import __version__
from thresher._internal.storage.files import read_json, write_json
from thresher._internal.text import format_bytes, format_share
from thresher.data.table import EncodedTable
from thresher.experiment.pages.field_contents import MAX_ROWS, NUM_SHUFFLES, field_contents
from thresher.experiment.pages.warnings import run_warnings
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.run_parts import SETTINGS
from thresher.report.frontier import Frontier, FrontierPoint
from thresher.report.page import PAGE, write_page
from thresher.serving.bundle import open_bundle
from thresher.serving.model_card import loaded_bytes
from thresher.training.checkpoint import read_history
from thresher.training.loop import HISTORY

FIELDS = "fields.json"


def write_run_page(run: Run, table: EncodedTable, frontier: Frontier, trainings: Sequence[tuple[str, Path]]) -> Path:
    """Write `report/index.html` and `report/fields.json`.

    Args:
        trainings: name and folder of each training, with its history.
    """
    fields = {
        str(point.budget): field_contents(open_bundle(run.bundle(str(point.budget)), verify=False), table)
        for point in frontier.points
    }
    run.report.mkdir(parents=True, exist_ok=True)
    write_json(run.report / FIELDS, {"fields": fields})
    points = [_point(run, frontier, point) for point in sorted(frontier.points, key=lambda p: -p.num_parameters)]
    dense = None if frontier.dense is None else _reference(frontier, frontier.dense, "dense")
    below = None if frontier.floor is None else _reference(frontier, frontier.floor, "no embedding")
    curves = [curve for name, folder in trainings if (curve := _curve(name, folder)) is not None]
    metadata = frontier.metadata
    content = {
        "version": __version__,
        "title": f"{metadata['model']} with {metadata['method']} on {data_name(run)}",
        "subtitle": str(run.folder),
        "overview": _overview(metadata, table),
        "summary": _summary(frontier),
        "warnings": run_warnings(frontier),
        "points": [point for point in (dense, *points, below) if point is not None],
        "improving": bool(metadata.get("still_improving")),
        "fields": bool(fields),
        "importance_rows": min(table.split("validation").num_rows, MAX_ROWS),
        "num_shuffles": NUM_SHUFFLES,
        "curves": curves,
        "cost": metadata["cost"],
        "commands": _commands(run, points),
        "settings": (run.folder / SETTINGS).read_text(encoding="utf-8"),
    }
    history = run.tickets / HISTORY
    data = {
        "points": points,
        "dense": dense,
        "floor": below,
        "auc_standard_error": metadata.get("auc_standard_error", {}),
        "max_auc_drop": run.config.max_auc_drop,
        "fields": fields,
        "curves": curves,
        "kept": [r for r in (read_history(history) if history.exists() else []) if "num_kept" in r],
        "tickets": _tickets(run),
    }
    return write_page(run.report / PAGE, "run", content, data)


def data_name(run: Run) -> str:
    paths = run.config.data.paths
    return ", ".join(Path(path).name for path in paths[:3]) if paths else run.config.data.source


def _point(run: Run, frontier: Frontier, point: FrontierPoint) -> dict[str, Any]:
    folder = run.bundle(str(point.budget))
    out = f"{run.folder.name}-{folder.name}"
    command = ["thresher", "export", str(run.folder), "--budget", str(point.budget), "--out", out, *_imports(run)]
    return {
        "bundle_bytes": loaded_bytes(folder),
        **point.to_json(),
        "name": str(point.budget),
        "share": frontier.share_of_dense(point),
        "recommended": point.budget == frontier.metadata.get("recommended"),
        "command": shlex.join(command),
    }


def _reference(frontier: Frontier, point: FrontierPoint, name: str) -> dict[str, Any]:
    own = point.to_json()
    return {"bundle_bytes": None, **own, "name": name, "share": frontier.share_of_dense(point), "reference": True}


def _overview(metadata: Any, table: EncodedTable) -> list[tuple[str, str]]:
    minutes, seconds = divmod(round(float(metadata["seconds"])), 60)
    return [
        ("rows", f"{metadata['num_rows']:,}"),
        ("fields", f"{len(table.schema.fields):,}"),
        ("features", f"{table.schema.num_features:,}"),
        ("seed", str(metadata["seed"])),
        ("effort", str(metadata.get("effort", "–"))),
        ("training", f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"),
    ]


def _summary(frontier: Frontier) -> str:
    """One or two sentences on the sizes and their loss."""
    dense, points = frontier.dense, frontier.points
    if dense is None or not points:
        return ""
    text = (
        f"The dense model has {dense.num_parameters:,} embedding parameters ({format_bytes(dense.storage_bytes)}) "
        f"and a validation AUC of {dense.validation_auc:.4f}."
    )
    within = frontier.smallest_within(0.001)
    if within is None:
        best = frontier.best()[-1]
        loss = dense.validation_auc - best.validation_auc
        return f"{text} Every pruned model loses more than 0.001; the best is {best.budget} with a loss of {loss:.4f}."
    share = frontier.share_of_dense(within)
    kept = "" if share is None else f" ({format_share(share)} of the parameters)"
    return f"{text} The smallest model within 0.001 of it keeps {within.budget}{kept}: {within.validation_auc:.4f}."


def _curve(name: str, folder: Path) -> dict[str, Any] | None:
    history = folder / HISTORY
    records = read_history(history) if history.exists() else []
    flat = [
        {
            "epoch": record["epoch"],
            "train_loss": record.get("train_loss"),
            "auc": (record.get("validation") or {}).get("auc"),
            "logloss": (record.get("validation") or {}).get("logloss"),
        }
        for record in records
    ]
    measured = [record for record in flat if record["auc"] is not None]
    if not measured:
        return None
    return {"stage": name, "records": flat, "best": max(measured, key=lambda record: record["auc"])}


def _tickets(run: Run) -> list[dict[str, Any]]:
    """Budget, step and size of each ticket of the search that was used."""
    found = []
    for path in sorted(run.tickets.glob("*/ticket.json")):
        ticket = read_json(path)
        step = (ticket.get("provenance") or {}).get("step")
        found.append({"budget": ticket["budget"], "step": step, "num_kept": ticket["num_parameters"]})
    return found


def _commands(run: Run, points: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    folder, more = str(run.folder), _imports(run)
    repeat = ["thresher", "prune", "--config", f"{folder}/{SETTINGS}", "--out", f"{folder}-again", *more]
    commands = [{"title": "Repeat this run", "text": shlex.join(repeat)}]
    if points:
        bundle = str(run.bundle(points[-1]["name"]))
        commands += [
            {"title": "Predict", "text": shlex.join(["thresher", "predict", bundle, "ROWS.csv", *more])},
            {"title": "Export all sizes", "text": "\n".join(point["command"] for point in points)},
        ]
    return commands


def _imports(run: Run) -> list[str]:
    return [word for module in run.config.imports for word in ("--import", module)]
