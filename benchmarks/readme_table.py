"""The numbers of the README: `python benchmarks/readme_table.py` writes them from `benchmarks/results`.

They stand between the comments `<!-- NAME -->` and `<!-- /NAME -->`; a test compares them with the result files.
"""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from generated_sections import fill
from thresher._internal.storage.files import read_json
from thresher._internal.text import format_share

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
ROWS = (
    ("movielens-1m/fm/effort-standard", "FM on MovieLens-1M", "12k", ""),
    ("movielens-1m/deepfm/effort-standard", "DeepFM on MovieLens-1M", "8604", ""),
    ("movielens-1m/autoint/effort-standard", "AutoInt on MovieLens-1M", "9000", ""),
    ("criteo-small/fm/effort-standard", "FM on 137,139 rows of Criteo", "4k", "the dense table overfits these rows"),
)
"""Experiment, model and data, budget, and what the row means."""


def sections() -> dict[str, str]:
    """Name → text of each generated section."""
    return {"headline": _headline(), "results": _table()}


def _means(experiment: str, budget: str) -> Mapping[str, Any]:
    seeds = list(read_json((RESULTS / experiment).with_suffix(".json"))["seeds"].values())
    points = [point for seed in seeds for point in seed["points"] if point["budget"] == budget]
    assert len(points) == len(seeds)
    return {
        "seeds": len(seeds),
        "dense": fmean(seed["dense"]["test_auc"] for seed in seeds),
        "pruned": fmean(point["test_auc"] for point in points),
        "share": points[0]["num_parameters"] / seeds[0]["dense"]["num_parameters"],
        "sizes": len(seeds[0]["points"]),
        "cost": fmean(seed["cost"]["total_cpu_over_dense"] for seed in seeds),
        "bytes_share": fmean(point["storage_bytes"] for point in points) / seeds[0]["dense"]["storage_bytes"],
    }


def _headline() -> str:
    fm, deep = (_means(ROWS[at][0], ROWS[at][2]) for at in (0, 1))
    return (
        "Thresher prunes the embedding tables of recommender models. On MovieLens-1M a factorization machine (FM) with "
        f"{format_share(fm['share'])} of\nits embedding parameters has a test AUC of {fm['pruned']:.4f} instead of "
        f"{fm['dense']:.4f}, and a DeepFM with {format_share(deep['share'])} has {deep['pruned']:.4f} instead of "
        f"{deep['dense']:.4f}."
    )


def _table() -> str:
    heads = ["model and data", "kept", "bytes", "test AUC", "dense", "difference", "cost", "seeds"]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for experiment, title, budget, note in ROWS:
        own = _means(experiment, budget)
        cells = [title, format_share(own["share"]), format_share(own["bytes_share"]), f"**{own['pruned']:.4f}**"]
        difference = f"{own['pruned'] - own['dense']:+.4f}" + (f" ({note})" if note else "")
        cost = f"{own['cost']:.1f}×" + (f" for {own['sizes']} sizes" if own["sizes"] > 1 else "")
        lines.append("| " + " | ".join([*cells, f"{own['dense']:.4f}", difference, cost, str(own["seeds"])]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    README.write_text(fill(README.read_text(encoding="utf-8"), sections()), encoding="utf-8")
