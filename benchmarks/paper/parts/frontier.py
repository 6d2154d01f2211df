"""AUC against parameters and against bytes: every method under every model, and PEP against each at equal budgets.

All share the data, search and training of `experiments/movielens-1m/<model>/pep-plan.toml` under `thresher compare`, by
labels alone: no teacher. PEP's grid, like theirs, begins with a table wider than the 64 of that file. PEP with decay is
its own experiment.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from paper import compared
from paper.compared import compare_method
from paper.experiments import (
    aucs_of,
    pruned_points,
    read_experiment,
    result_path,
    run_experiment,
)
from paper.page import ABSENT, command, made_from, mean_sd, not_run_yet, picture, table
from paper.settings import PaperSettings
from paper.stored import read_result
from paper.verdicts import at_equal_budgets, at_equal_bytes, told_size
from thresher.compare.sweep import FLOOR
from thresher.files import read_json
from thresher.report.comparison import plot_comparison
from thresher.report.frontier import FrontierPoint

PART = "frontier"
TITLE = "AUC against parameters and bytes"
PLAN, DECAY, QUANTISED = "pep", "pep-decay", "quantised"
MODELS = ("fm", "deepfm", "autoint")
_FEW = ("pep", "uniform", "magnitude", "mde")
METHODS: Mapping[str, tuple[str, ...]] = {
    "fm": (
        "pep",
        "magnitude",
        "gradual-magnitude",
        "iterative-magnitude",
        "mde",
        "uniform",
        "l1-projection",
        "quantised",
        "darts-emb",
        "mgqe",
        "dnis",
        "autodim",
        "quotient-remainder",
        "double-hash",
        "hash",
        "nis",
    ),
    "deepfm": _FEW,
    "autoint": _FEW,
}
BUDGETS: Mapping[str, tuple[str, ...]] = {
    "fm": ("50k", "30k", "20k", "12k", "6541"),
    "deepfm": ("30k", "20k", "8604"),
    "autoint": ("30k", "20k", "9000"),
}
"""Those of the experiments, and for deep models one that PEP decay comes to; the last of each is the size of the
paper's PEP-0, for AutoInt (9,281) a little below."""
TRIALS = 1


def run(settings: PaperSettings) -> None:
    for model in _models(settings):
        for seeds in range(1, max(settings.seeds) + 2):  # a comparison counts its seeds from 0
            for method in _methods(settings, model):
                compare_method(settings, PART, model, method, BUDGETS[model], seeds=seeds, trials=TRIALS)
    for model in _models(settings):
        run_experiment(settings, f"movielens-1m/{model}/pep-decay", settings.seeds)


def draw(settings: PaperSettings) -> list[Path]:
    written: list[Path] = []
    for model in MODELS:
        points = read_points(settings, model)
        if points:
            floor = aucs_of(floor_points(settings, model))
            title = f"MovieLens-1M, {model}" + (f" (lr, no embedding: {fmean(floor):.4f})" if floor else "")
            written += plot_comparison(points, settings.images / f"frontier-{model}", title=title)
    return written


def page(settings: PaperSettings) -> str:
    sections = [
        f"Command: {command('frontier')}. Methods and their grids: [methods.md](methods.md). `pep` is PEP plan, "
        "`pep-decay` the published search. Each method has the first setting of its grid, PEP too; all share "
        "warm-up, plan, retraining on labels alone, and seeds. PEP, magnitude pruning, L1 projection and DNIS search "
        "tables 128 wide; `pep-decay`, an experiment of its own, one of 64. With one trial each, a method whose first "
        "setting is small cannot use a large budget: then its size stands beside its AUC. At equal parameters "
        "`quantised` is the table of `uniform`, and is compared in bytes alone."
    ]
    for model in MODELS:
        points = read_points(settings, model)
        sections.append(f"### {model}\n\n" + (_section(settings, model, points) if points else not_run_yet("frontier")))
    return "\n\n".join(sections)


def _section(settings: PaperSettings, model: str, points: Sequence[FrontierPoint]) -> str:
    content = read_result(compared.result_path(settings, PART, model))
    budgets = BUDGETS[model]
    labels = list(dict.fromkeys(point.label for point in points))
    rows = [
        [label, *(_cell([p for p in points if p.label == label and p.budget == budget]) for budget in budgets)]
        for label in labels
    ]
    parts = [
        picture(settings, f"frontier-{model}", f"test AUC against parameters and bytes, {model}"),
        table(["test AUC", *budgets], rows),
        *(_widths(points, label) for label in ("uniform", QUANTISED)),
        f"Logistic regression: {mean_sd(aucs_of(floor_points(settings, model)))}.",
        at_equal_budgets([point for point in points if point.label != QUANTISED], PLAN, budgets),
        at_equal_bytes(points, PLAN),
        _eight_bits(settings) if model == "fm" else "",
        _unmet(content.get("unmet", {})),
        _missing(model, content.get("done", {})),
        made_from(content, read_result(result_path(settings, f"movielens-1m/{model}/pep-decay"))),
    ]
    return "\n\n".join(part for part in parts if part)


def _cell(points: Sequence[FrontierPoint]) -> str:
    """Test AUC, and the size where it stays well below the budget."""
    return mean_sd(aucs_of(points)) + told_size(points) if points else ABSENT


def _widths(points: Sequence[FrontierPoint], label: str) -> str:
    """A plain table of whole widths, outside the budgets."""
    own = [point for point in points if point.label == label and point.budget is None]
    sizes = sorted({point.num_parameters for point in own}, reverse=True)
    told = [f"{size:,}: {mean_sd(aucs_of([p for p in own if p.num_parameters == size]))}" for size in sizes]
    return f"`{label}` at whole widths from 64 down, by parameters: {'; '.join(told)}." if own else ""


def _eight_bits(settings: PaperSettings) -> str:
    """Tickets stored in int8, from the benchmark of the value types."""
    path = settings.experiment_results / "quantised.json"
    sides = read_json(path)["sides"] if path.exists() else {}
    told = [
        f"{name.removesuffix(', int8')} {side['storage_bytes']:,} bytes, {side['test_auc']:.4f}"
        for name, side in sides.items()
        if name.endswith(", int8")
    ]
    return (
        f"With values in int8, too, tables of PEP 64 wide come to (one seed, `{path.name}`): {'; '.join(told)}."
        if told
        else ""
    )


def read_points(settings: PaperSettings, model: str) -> list[FrontierPoint]:
    """The points of all methods under a model that were compared, and those of PEP decay; the floor left out."""
    decay = read_experiment(settings, f"movielens-1m/{model}/pep-decay")
    stored = compared.points(settings, PART, model)
    return [
        *pruned_points(decay.values(), DECAY),
        *(FrontierPoint.from_json(point) for point in stored if point["model"] == model),
    ]


def floor_points(settings: PaperSettings, model: str = "fm") -> list[FrontierPoint]:
    return [
        FrontierPoint.from_json(point) for point in compared.points(settings, PART, model) if point["model"] == FLOOR
    ]


def _models(settings: PaperSettings) -> list[str]:
    return [model for model in MODELS if model in settings.models]


def _methods(settings: PaperSettings, model: str) -> tuple[str, ...]:
    """In quick no more than one under DeepFM and none under AutoInt, whose network a comparison cannot make small."""
    quick = {"fm": METHODS["fm"], "deepfm": ("magnitude",), "autoint": ()}
    return quick[model] if settings.quick else METHODS[model]


def _missing(model: str, done: Mapping[str, object]) -> str:
    missing = [f"`{method}`" for method in METHODS[model] if method not in done]
    return f"Not run yet under {model}: {', '.join(missing)}." if missing else ""


def _unmet(unmet: Mapping[str, str]) -> str:
    return "Out of reach: " + "; ".join(sorted(unmet)) + "." if unmet else ""
