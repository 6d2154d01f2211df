"""The curve that decides: AUC over total cost, in units of the dense training, for every effort and post-training.

    python benchmarks/cost_curve.py        # reads benchmarks/results/, writes docs/images/cost.svg, prints tables

Cost is CPU time of all training, the dense training included, ÷ that of the dense training of the same run.
Post-training points cost the dense training and one pass.
"""

from pathlib import Path
from statistics import mean
from typing import Any

from run import RESULTS, result_effort
from thresher._internal.storage.files import read_json
from thresher.errors import ConfigError

MODELS = {"fm": ("FM", ("20k", "6541")), "deepfm": ("DeepFM", ("8604",)), "autoint": ("AutoInt", ("9000",))}
EFFORTS = {"fast": "#E69F00", "standard": "#0072B2", "best": "#009E73"}
IMAGE = Path(__file__).parents[1] / "docs" / "images" / "cost"


def effort_points(model: str, effort: str) -> list[dict[str, Any]]:
    """Mean cost and AUC of each size under an effort; empty without results."""
    path = RESULTS / "movielens-1m" / model / f"effort-{effort}.json"
    if not path.exists():
        return []
    result = read_json(path)
    if (found := result_effort(result)) != effort:
        raise ConfigError(f"{path} holds results of effort {found}. Make it again.")
    seeds = list(result["seeds"].values())
    cost = mean(seed["cost"]["total_cpu_over_dense"] for seed in seeds)
    points = zip(*(seed["points"] for seed in seeds), strict=True)
    return [
        {
            "budget": same[0]["budget"],
            "cost": cost,
            "validation": mean(point["validation_auc"] for point in same),
            "test": mean(point["test_auc"] for point in same),
            "seeds": len(seeds),
        }
        for same in points
    ]


def post_training_points(model: str, placeholder: str = "zeros") -> list[dict[str, Any]]:
    """Mean cost and AUC of the best score of post-training at each size, chosen on validation."""
    path = RESULTS / "movielens-1m" / model / "post-training.json"
    rows = read_json(path)["summary"] if path.exists() else []
    found = []
    for fine_tuned in (False, True):
        kept = [row for row in rows if ("fine-tuned" in row["score"]) == fine_tuned]
        for budget in dict.fromkeys(row["budget"] for row in kept):
            own = [row for row in kept if row["budget"] == budget and (fine_tuned or row["placeholder"] == placeholder)]
            best = max(own, key=lambda row: row["validation_auc"]["mean"])
            found.append(
                {
                    "budget": budget,
                    "score": best["score"],
                    "cost": 1 + best["over_dense"]["mean"],
                    "validation": best["validation_auc"]["mean"],
                    "test": best["test_auc"]["mean"],
                    "seeds": best["test_auc"]["seeds"],
                }
            )
    return found


def main() -> None:
    for model, (name, _) in MODELS.items():
        print(
            f"\n{name}\n| way | size | cost | validation AUC | test AUC | seeds |\n"
            "| --- | --- | --- | --- | --- | --- |"
        )
        for effort in EFFORTS:
            for point in effort_points(model, effort):
                _print_row(effort, point)
        for point in post_training_points(model):
            _print_row(f"post-training ({point['score']})", point)
    _draw()


def _print_row(way: str, point: dict[str, Any]) -> None:
    numbers = f"{point['cost']:.2f} | {point['validation']:.4f} | {point['test']:.4f} | {point['seeds']}"
    print(f"| {way} | {point['budget']} | {numbers} |")


def _draw() -> None:
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    panels = [(model, name, size) for model, (name, sizes) in MODELS.items() for size in sizes]
    panels = [panel for panel in panels if any(effort_points(panel[0], effort) for effort in EFFORTS)]
    figure, axes = pyplot.subplots(1, len(panels), figsize=(4 * len(panels), 3.2), squeeze=False)
    for axis, (model, name, size) in zip(axes[0], panels, strict=True):
        for effort, colour in EFFORTS.items():
            for point in effort_points(model, effort):
                if point["budget"] == size:
                    axis.scatter(point["cost"], point["test"], color=colour, label=effort, zorder=3)
        for point in post_training_points(model):
            if point["budget"] == size:
                label = "post-training, fine-tuned" if "fine-tuned" in point["score"] else "post-training"
                marker = "^" if "fine-tuned" in point["score"] else "v"
                axis.scatter(point["cost"], point["test"], color="#CC79A7", marker=marker, label=label)
        axis.set(title=f"{name}, {size} parameters", xlabel="cost ÷ dense training (CPU time)", ylabel="test AUC")
        axis.legend(fontsize=7)
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(IMAGE.with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
