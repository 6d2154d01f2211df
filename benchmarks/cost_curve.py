"""The curve that decides: AUC over total cost, in units of the dense training, for efforts and other ways to prune.

    python benchmarks/run.py benchmarks/experiments/{movielens-1m/*,criteo-small/fm}/{effort,cost}-*.toml
    python benchmarks/post_training.py --fine-tune benchmarks/temporary/movielens-1m/fm/effort-standard/*
    python benchmarks/cost_curve.py   # from the results: docs/images/cost.svg and the tables in docs/search_results.md

Cost is CPU time of all training, the dense training and the model without an embedding included, ÷ that of the dense
training of the same run, of all its sizes together. Post-training costs the dense training and one pass.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from generated_sections import fill
from run import RESULTS, result_effort
from thresher._internal.storage.files import read_json
from thresher.errors import ConfigError
from thresher.search.budget import Budget

MODELS = {
    "movielens-1m/fm": ("FM", ("20k", "6541")),
    "movielens-1m/deepfm": ("DeepFM", ("8604",)),
    "movielens-1m/autoint": ("AutoInt", ("9000",)),
    "criteo-small/fm": ("FM, Criteo", ("16k", "1067")),
}
"""Folder → name and the sizes that the figure shows."""
EFFORTS = ("fast", "standard", "best", "paper")
WAYS = {
    **{f"effort-{effort}": (f"`{effort}`", colour) for effort, colour in
       zip(EFFORTS, ("#E69F00", "#0072B2", "#009E73", "#000000"), strict=True)},
    "cost-paper": ("`paper`", "#000000"),
    "cost-iterative-magnitude": ("iterative magnitude", "#D55E00"),
}  # fmt: skip
"""Result file → name and colour."""
POST_TRAINING, POST_TRAINING_COLOUR = "post-training", "#CC79A7"
TUNED = ", fine-tuned"
DOCS = Path(__file__).parents[1] / "docs"
IMAGE, PAGE = DOCS / "images" / "cost", DOCS / "search_results.md"


@dataclass(frozen=True, kw_only=True)
class CostPoint:
    """One size of one way to prune: means over seeds."""

    way: str
    colour: str
    budget: str
    cost: float
    validation: float
    test: float
    test_sd: float | None
    seeds: int
    marker: str = "o"


def run_points(model: str, name: str) -> list[CostPoint]:
    """The sizes in a result file of `benchmarks/run.py`; empty without it. Raises if its effort is another one."""
    path = RESULTS / model / f"{name}.json"
    if not path.exists():
        return []
    result = read_json(path)
    expected = name.removeprefix("effort-") if name.startswith("effort-") else "paper"
    if (found := result_effort(result)) != expected:
        raise ConfigError(f"{path} holds results of effort {found}. Make it again.")
    seeds = list(result["seeds"].values())
    cost = fmean(seed["cost"]["total_cpu_over_dense"] for seed in seeds)
    way, colour = WAYS[name]
    by_size = zip(*(seed["points"] for seed in seeds), strict=True)
    return [
        CostPoint(
            way=way,
            colour=colour,
            budget=same[0]["budget"],
            cost=cost,
            validation=fmean(point["validation_auc"] for point in same),
            test=fmean(point["test_auc"] for point in same),
            test_sd=stdev(point["test_auc"] for point in same) if len(same) > 1 else None,
            seeds=len(same),
        )
        for same in by_size
    ]


def post_training_points(model: str) -> list[CostPoint]:
    """Post-training at each size, the best score on validation of every seed: without training, and fine-tuned."""
    path = RESULTS / "post_training" / f"{model.replace('/', '-')}.json"
    seeds = list(read_json(path)["seeds"].values()) if path.exists() else []
    untrained = [_best_scores(seed["points"]) for seed in seeds]
    tuned = [{point["budget"]: point for point in seed["points"] if point["score"].endswith(TUNED)} for seed in seeds]
    points = _post_training(POST_TRAINING, untrained, [1 + _pass_cost(best) for best in untrained], "v")
    if all(tuned):
        costs = [1 + _tuned_cost(seed["points"], chosen) for seed, chosen in zip(seeds, tuned, strict=True)]
        points += _post_training(f"{POST_TRAINING}{TUNED}", tuned, costs, "^")
    return points


def _best_scores(points: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Budget → the point with the highest validation AUC, of those that were not fine-tuned, with zeros for pruned."""
    found: dict[str, dict[str, Any]] = {}
    for point in points:
        if point["placeholder"] == "zeros" and not point["score"].endswith(TUNED):
            best = found.setdefault(point["budget"], point)
            found[point["budget"]] = max(best, point, key=lambda each: float(each["validation_auc"]))
    return found


def _pass_cost(points: dict[str, dict[str, Any]]) -> float:
    """One pass scores all sizes."""
    return max(float(point["over_dense"]) for point in points.values())


def _tuned_cost(points: list[dict[str, Any]], tuned: dict[str, dict[str, Any]]) -> float:
    """The pass, and the training of every size."""
    passes = {(p["score"], p["placeholder"], p["budget"]): p["over_dense"] for p in points}
    own = [passes[p["score"].removesuffix(TUNED), p["placeholder"], p["budget"]] for p in tuned.values()]
    return max(own) + sum(p["over_dense"] - cost for p, cost in zip(tuned.values(), own, strict=True))


def _post_training(
    way: str, seeds: list[dict[str, dict[str, Any]]], costs: list[float], marker: str
) -> list[CostPoint]:
    return [
        CostPoint(
            way=way,
            colour=POST_TRAINING_COLOUR,
            budget=budget,
            cost=fmean(costs),
            validation=fmean(seed[budget]["validation_auc"] for seed in seeds),
            test=fmean(seed[budget]["test_auc"] for seed in seeds),
            test_sd=stdev(seed[budget]["test_auc"] for seed in seeds) if len(seeds) > 1 else None,
            seeds=len(seeds),
            marker=marker,
        )
        for budget in (seeds[0] if seeds else ())
    ]


def all_points(model: str) -> list[CostPoint]:
    return [point for name in WAYS for point in run_points(model, name)] + post_training_points(model)


def dense_auc(model: str) -> float:
    """Mean test AUC of the dense models of effort `standard`."""
    seeds = read_json(RESULTS / model / "effort-standard.json")["seeds"].values()
    return fmean(seed["dense"]["test_auc"] for seed in seeds)


def sections() -> dict[str, str]:
    """The tables of docs/search_results.md."""
    return {f"cost-{model}": "\n".join(_table(name, all_points(model))) for model, (name, _) in MODELS.items()}


def _table(name: str, points: list[CostPoint]) -> Iterable[str]:
    budgets = list(dict.fromkeys(point.budget for point in points if point.colour != POST_TRAINING_COLOUR))
    yield f"| {name}, test AUC | cost | {' | '.join(budgets)} | seeds |"
    yield "| --- " * (len(budgets) + 3) + "|"
    for way in dict.fromkeys(point.way for point in points):
        own = [point for point in points if point.way == way]
        aucs = {point.budget: _auc(point) for point in own}
        cells = [way, f"{own[0].cost:.2f}", *(aucs.get(budget, "–") for budget in budgets), str(own[0].seeds)]
        yield f"| {' | '.join(cells)} |"


def _auc(point: CostPoint) -> str:
    return f"{point.test:.4f}" + ("" if point.test_sd is None else f" ± {point.test_sd:.4f}")


def main() -> None:
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), sections()), encoding="utf-8")
    print("\n\n".join(sections().values()))
    draw()


def draw() -> None:
    """A panel for each data set, model and size: test AUC over cost. Untuned post-training is far below."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    panels = [
        (f"{name}, {int(Budget.parse(size).amount):,} parameters", dense_auc(model), points)
        for model, (name, sizes) in MODELS.items()
        for size in sizes
        if (points := [point for point in all_points(model) if point.budget == size and point.marker != "v"])
    ]
    figure, axes = pyplot.subplots(2, (len(panels) + 1) // 2, figsize=(9.6, 6.2), squeeze=False)
    labels: dict[str, Any] = {}
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    for axis, (title, dense, points) in zip(axes.flat, panels, strict=False):
        labels["dense model"] = axis.axhline(dense, color="#666666", linestyle="--", linewidth=1)
        for point in points:
            way = point.way.strip("`")
            labels[way] = axis.errorbar(
                point.cost, point.test, yerr=point.test_sd, color=point.colour, marker=point.marker,
                markersize=7, linestyle="", capsize=2, label=way,
            )  # fmt: skip
        shown = [dense, *(point.test for point in points)]
        axis.set_ylim(min(shown) - 0.002, max(shown) + 0.001)
        axis.set_xscale("log")
        axis.set_xlim(0.9, 1.4 * max(point.cost for point in points))
        axis.set_xticks(ticks := [tick for tick in (1, 2, 4, 8, 16, 32) if tick < axis.get_xlim()[1]])
        axis.set_xticklabels([f"{tick}×" for tick in ticks])
        axis.minorticks_off()
        axis.set(title=title, xlabel="cost ÷ dense training")
        axis.grid(alpha=0.3)
    for axis in axes[:, 0]:
        axis.set_ylabel("test AUC")
    figure.legend(labels.values(), labels.keys(), loc="lower center", ncols=len(labels), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(IMAGE.with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
