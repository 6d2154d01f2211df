"""The report page of a run: its results, fields, training histories, warnings and commands."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thresher import __version__
from thresher._internal.storage.files import read_json, write_json
from thresher._internal.text import format_bytes
from thresher.data.table import EncodedTable
from thresher.experiment.pages.field_contents import MAX_ROWS, NUM_SHUFFLES, field_contents
from thresher.experiment.pages.training_curves import seed_trainings
from thresher.experiment.pages.warnings import run_warnings
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.run_parts import SEEDS, SETTINGS
from thresher.report.frontier import Frontier, FrontierPoint
from thresher.report.page import PAGE, write_page
from thresher.serving.bundle import open_bundle
from thresher.serving.model_card import loaded_bytes

FIELDS = "fields.json"


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """The run of one seed, its results, and name and folder of each of its trainings."""

    run: Run
    frontier: Frontier
    trainings: Sequence[tuple[str, Path]]


def write_run_page(table: EncodedTable, seeds: Sequence[SeedResult], mean: Frontier | None = None) -> Path:
    """Write `report/index.html` of the first seed's run, and `report/fields.json` if it has none yet.

    Args:
        mean: what the page shows if there are several seeds; fields and bundles are those of the first.
    """
    run = seeds[0].run
    frontier = seeds[0].frontier if mean is None else mean
    run.report.mkdir(parents=True, exist_ok=True)
    fields = _fields(run, table, frontier) if mean is None else read_json(run.report / FIELDS)["fields"]
    points = [_point(run, frontier, point) for point in sorted(frontier.points, key=lambda p: -p.num_parameters)]
    dense = None if frontier.dense is None else _reference(frontier, frontier.dense, "dense")
    below = None if frontier.floor is None else _reference(frontier, frontier.floor, "no embedding")
    trainings = [seed_trainings(seed.run, seed.trainings) for seed in seeds]
    metadata = frontier.metadata
    content = {
        "version": __version__,
        "title": f"{metadata['model']} with {metadata['method']} on {data_name(run)}",
        "subtitle": str(run.folder),
        "overview": _overview(metadata, table),
        "summary": _summary(frontier),
        "warnings": run_warnings(frontier),
        "points": [point for point in (dense, *points, below) if point is not None],
        "seeds": [_seed_rows(seed) for seed in seeds] if len(seeds) > 1 else [],
        "improving": bool(metadata.get("still_improving")),
        "fields": bool(fields),
        "importance_rows": min(table.split("validation").num_rows, MAX_ROWS),
        "num_shuffles": NUM_SHUFFLES,
        "trainings": trainings,
        "cost": metadata["cost"],
        "commands": _commands(run, points),
        "settings": (run.folder / SETTINGS).read_text(encoding="utf-8"),
    }
    data = {
        "points": points,
        "dense": dense,
        "floor": below,
        "by_seed": [
            {**point.to_json(), "name": str(point.budget or point.label), "seed": seed.run.config.seed}
            for seed in (seeds if len(seeds) > 1 else ())
            for point in (*seed.frontier.points, *filter(None, [seed.frontier.dense]))
        ],
        "auc_standard_error": metadata.get("auc_standard_error", {}),
        "max_auc_drop": run.config.max_auc_drop,
        "fields": fields,
        "trainings": trainings,
    }
    return write_page(run.report / PAGE, "run", content, data)


def _fields(run: Run, table: EncodedTable, frontier: Frontier) -> dict[str, Any]:
    """Budget → its fields; also written as `fields.json`."""
    fields = {
        str(point.budget): field_contents(open_bundle(run.bundle(str(point.budget)), verify=False), table)
        for point in frontier.points
    }
    write_json(run.report / FIELDS, {"fields": fields})
    return fields


def _seed_rows(seed: SeedResult) -> dict[str, Any]:
    """The results of one seed of several, and the link to its page if it has one of its own."""
    frontier = seed.frontier
    named = [("no embedding", frontier.floor), ("dense", frontier.dense), *((p.budget, p) for p in frontier.points)]
    number = seed.run.config.seed
    own = seed.run.folder.parent.name == SEEDS
    return {
        "seed": number,
        "page": f"../{SEEDS}/{number}/report/{PAGE}" if own else None,
        "points": [(name, point) for name, point in named if point is not None],
    }


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
    seeds = metadata.get("seeds", [metadata["seed"]])
    return [
        ("rows", f"{metadata['num_rows']:,}"),
        ("fields", f"{len(table.schema.fields):,}"),
        ("features", f"{table.schema.num_features:,}"),
        ("seed" if len(seeds) == 1 else "seeds", ", ".join(map(str, seeds))),
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
    return (
        f"{text} The smallest model within 0.001 of it has budget {within.budget}, {within.num_parameters:,} "
        f"parameters and a validation AUC of {within.validation_auc:.4f}."
    )


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
