"""What pruned models are compared with: no embedding, the dense table, and the trivial rival at equal bytes.

    python benchmarks/run.py benchmarks/experiments/{movielens-1m,criteo-small,avazu-small}/fm/effort-standard.toml
    python benchmarks/floor_and_rival.py            # trains the rival; writes benchmarks/results/floor_and_rival.json
    python benchmarks/floor_and_rival.py --page     # writes the table in docs/choosing.md from the results

The rival is a narrower table of the most frequent features (`frequent`) with the bytes of the pruned table. Its width
is the best of five on validation, for every seed. It is trained on hard labels.
"""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from generated_sections import fill
from run import EXPERIMENTS, RESULTS, TEMPORARY, raw_data
from thresher._internal.settings import load_toml
from thresher._internal.storage.files import read_json, write_json
from thresher._internal.text import format_bytes
from thresher.cli.console import display
from thresher.embeddings.method_registry import method_grid
from thresher.experiment.compare import compare
from thresher.experiment.comparison.compare_config import RIVAL, CompareConfig
from thresher.experiment.config import RunConfig

EXPERIMENT = "fm/effort-standard"
DATA = {
    "movielens-1m": ("MovieLens-1M", ("20k", "6541")),
    "criteo-small": ("Criteo, 137,139 rows", ("16k", "1067")),
    "avazu-small": ("Avazu, 20,000 rows", ("16k", "1479")),
}
"""Folder of the experiment → name and sizes shown."""
RESULT = RESULTS / "floor_and_rival.json"
PAGE = Path(__file__).parents[1] / "docs" / "choosing.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(DATA)}; by default all")
    parser.add_argument("--page", action="store_true", help="only write the table in docs/choosing.md")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(DATA):
        parser.error(f"unknown data: {', '.join(sorted(unknown))}")
    if not arguments.page:
        for name in arguments.names or DATA:
            for seed in pruned_seeds(name):
                train_rival(name, seed)
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), sections()), encoding="utf-8")


def pruned_seeds(name: str) -> Mapping[str, Any]:
    """Seed → the results of the pruned models; empty before the experiment has run."""
    path = (RESULTS / name / EXPERIMENT).with_suffix(".json")
    return read_json(path)["seeds"] if path.exists() else {}


def train_rival(name: str, seed: str) -> None:
    """Train the rival at the bytes of each pruned table; finished seeds are skipped."""
    stored = read_json(RESULT) if RESULT.exists() else {}
    if seed in stored.get(name, {}):
        return
    experiment = load_toml(RunConfig, (EXPERIMENTS / name / EXPERIMENT).with_suffix(".toml"))
    assert experiment.data.data_dir is not None
    sizes = {budget: _point(name, seed, budget)["storage_bytes"] for budget in DATA[name][1]}
    config = CompareConfig(
        data=replace(experiment.data, data_dir=str(raw_data() / experiment.data.data_dir)),
        methods=(RIVAL,),
        budgets=tuple(f"{size}B" for size in sizes.values()),
        seeds=1,
        first_seed=int(seed),
        trials=len(method_grid(RIVAL)),
        rival=False,
    )
    with display() as progress:
        found = compare(config, out=TEMPORARY / "floor_and_rival" / f"{name}-{seed}", progress=progress)
    by_budget = {point.budget: point for point in found.points if point.budget is not None}
    kept = ("config", "num_parameters", "storage_bytes", "bundle_bytes", "validation_auc", "test_auc", "floor_gain")
    stored = read_json(RESULT) if RESULT.exists() else {}
    stored.setdefault(name, {})[seed] = {
        budget: {key: getattr(by_budget[f"{size}B"], key) for key in kept} for budget, size in sizes.items()
    }
    write_json(RESULT, stored)


def sections() -> dict[str, str]:
    """The tables of docs/choosing.md."""
    return {"floor-and-rival": "\n".join(_rows())}


def _rows() -> Iterable[str]:
    stored = read_json(RESULT) if RESULT.exists() else {}
    yield "| data, seeds | model | parameters | table | bundle | test AUC | validation AUC above the floor |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name, (title, budgets) in DATA.items():
        seeds = {seed: found for seed, found in pruned_seeds(name).items() if seed in stored.get(name, {})}
        if not seeds:
            continue
        label = f"{title}, {len(seeds)}"
        yield _row(label, "no embedding", [seed["floor"] for seed in seeds.values()])
        yield _row("", "dense", [seed["dense"] for seed in seeds.values()])
        for budget in budgets:
            yield _row("", f"PEP, {budget}", [_point(name, seed, budget) for seed in seeds])
            yield _row("", f"rival, bytes of {budget}", [stored[name][seed][budget] for seed in seeds])


def _row(label: str, model: str, points: list[Mapping[str, Any]]) -> str:
    parameters = f"{fmean(point['num_parameters'] for point in points):,.0f}"
    table, bundle = (
        format_bytes(round(fmean(point[key] for point in points))) for key in ("storage_bytes", "bundle_bytes")
    )
    gains = [point["floor_gain"] for point in points if point.get("floor_gain") is not None]
    gain = _spread(gains, sign="+") if gains else "–"
    return f"| {label} | {model} | {parameters} | {table} | {bundle} | {_spread(_aucs(points))} | {gain} |"


def _aucs(points: list[Mapping[str, Any]]) -> list[float]:
    return [point["test_auc"] for point in points]


def _spread(values: list[float], *, sign: str = "") -> str:
    deviation = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
    return f"{fmean(values):{sign}.4f}{deviation}"


def _point(name: str, seed: str, budget: str) -> Mapping[str, Any]:
    (found,) = [point for point in pruned_seeds(name)[seed]["points"] if point["budget"] == budget]
    return found


if __name__ == "__main__":
    main()
