"""AUC against parameters and against bytes: every method under every model, and PEP against each at equal budgets.

PEP plan against what was published has the settings of `experiments/movielens-1m/<model>/pep-plan.toml`. The other
methods share its data, search and training under `thresher compare`, by labels alone: no teacher; there so does PEP,
whose grid, like theirs, begins with a table wider than the 64 of that file. PEP with decay is its own experiment.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from paper import compared
from paper.compared import compare_method
from paper.experiments import (
    aucs_of,
    dense_points,
    pruned_points,
    read_experiment,
    run_experiment,
)
from paper.page import command, made_from, mean_sd, not_run_yet, picture, table
from paper.settings import PaperSettings
from thresher.compare.sweep import FLOOR
from thresher.files import read_json
from thresher.report.comparison import plot_comparison
from thresher.report.frontier import Frontier, FrontierPoint

PART = "frontier"
TITLE = "AUC against parameters and bytes"
PLAN, DECAY = "pep", "pep-decay"
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
    "autoint": ("9000",),
}
"""Those of the experiments, and for DeepFM one that PEP decay comes to; the last of each is the size of the paper's
PEP-0, for AutoInt (9,281) a little below."""
TRIALS = 1
PUBLISHED: tuple[tuple[str, str, float | None, float | None], ...] = (
    ("fm", "6541", 0.8368, None),
    ("fm", "20k", None, 0.8479),
    ("fm", "dense", None, 0.8387),
    ("deepfm", "8604", 0.8491, None),
    ("deepfm", "20k", None, 0.8464),
    ("deepfm", "dense", None, None),
    ("autoint", "9000", 0.8530, None),
    ("autoint", "dense", None, None),
)
"""Model, size, the paper's AUC, and that of the authors' code in an independent run; both picked on the test split."""


def run(settings: PaperSettings) -> None:
    for model in _models(settings):
        for seeds in range(1, len(settings.seeds) + 1):
            for method in _methods(settings, model):
                compare_method(settings, PART, model, method, BUDGETS[model], seeds=seeds, trials=TRIALS)
    run_plans(settings)
    for model in _models(settings):
        run_experiment(settings, f"movielens-1m/{model}/pep-decay", settings.seeds)


def run_plans(settings: PaperSettings) -> None:
    """PEP plan under every model, at the frontier's budgets."""
    for model in _models(settings):
        run_experiment(settings, f"movielens-1m/{model}/pep-plan", settings.plan_seeds)


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
        "warm-up, plan, retraining on labels alone, and seeds; PEP and the three kinds of magnitude pruning search "
        "tables 128 wide. Beside what was published stands PEP with the settings of `benchmarks/experiments/"
        "movielens-1m/<model>/pep-plan.toml`: 64 wide, tickets that learn from the dense model; the defaults "
        "for FM, and what validation preferred for DeepFM and AutoInt. The paper's AutoInt has 9,281 parameters."
    ]
    sections += [_headline(settings)] if any(plan_points(settings, model) for model in MODELS) else []
    for model in MODELS:
        points = read_points(settings, model)
        sections.append(f"### {model}\n\n" + (_section(settings, model, points) if points else not_run_yet("frontier")))
    return "\n\n".join(sections)


def _headline(settings: PaperSettings) -> str:
    """What was published beside what PEP plan, and the dense model beside it, come to."""
    rows = []
    for model, size, paper, rerun in PUBLISHED:
        plan = plan_points(settings, model)
        ours = aucs_of(dense_points(_plan(settings, model).values())) if size == "dense" else aucs_of(plan, size)
        told = ["–" if auc is None else f"{auc:.4f}" for auc in (paper, rerun)]
        rows.append([f"{model}, {size if size == 'dense' else 'PEP at ' + size}", *told, mean_sd(ours)])
    return table(["test AUC", "paper", "authors' code, re-run", "ours (seeds)"], rows)


def _section(settings: PaperSettings, model: str, points: Sequence[FrontierPoint]) -> str:
    path = compared.result_path(settings, PART, model)
    content = read_json(path) if path.exists() else {}
    budgets = BUDGETS[model]
    labels = list(dict.fromkeys(point.label for point in points))
    rows = [
        [label, *(mean_sd(aucs_of([p for p in points if p.label == label], budget)) for budget in budgets)]
        for label in labels
    ]
    own = [point for point in points if point.label == "uniform" and point.budget is None]
    widths = "; ".join(
        f"{size:,}: {mean_sd(aucs_of([p for p in own if p.num_parameters == size]))}"
        for size in sorted({p.num_parameters for p in own}, reverse=True)
    )
    parts = [
        picture(settings, f"frontier-{model}", f"test AUC against parameters and bytes, {model}"),
        table(["test AUC", *budgets], rows),
        f"Uniform tables of 64, 32, … 4 wide, by parameters: {widths}." if own else "",
        f"Logistic regression: {mean_sd(aucs_of(floor_points(settings, model)))}.",
        _differences(points, budgets),
        _unmet(content.get("unmet", {})),
        made_from(content),
    ]
    return "\n\n".join(part for part in parts if part)


def _differences(points: Sequence[FrontierPoint], budgets: Sequence[str]) -> str:
    """PEP plan minus each other at the same budget, seed by seed, and where it is not above."""
    others = [label for label in dict.fromkeys(point.label for point in points) if label != PLAN]
    rows, behind = [], []
    for other in others:
        cells = [paired(points, other, budget) for budget in budgets]
        if any(cells):
            rows.append([other, *(_signed(cell) for cell in cells)])
        behind += [(other, at, cell) for at, cell in zip(budgets, cells, strict=True) if cell and fmean(cell) <= 0]
    if not rows:
        return ""
    told = "; ".join(f"{other} at {at}, by {-fmean(cell):.4f} ({_signed(cell)})" for other, at, cell in behind)
    return "\n\n".join(
        [
            "PEP plan minus each other method, paired over the seeds both have:",
            table(["difference of test AUC", *budgets], rows),
            f"PEP plan is not above: {told}." if told else "PEP plan is above every other at every budget both have.",
        ]
    )


def paired(points: Sequence[FrontierPoint], other: str, budget: str) -> list[float]:
    """Test AUC of PEP plan minus another's, of one budget, for each seed both have."""
    aucs = {(point.label, point.seed): point.test_auc for point in points if point.budget == budget}
    seeds = sorted({seed for label, seed in aucs if label == other and (PLAN, seed) in aucs}, key=str)
    return [float(aucs[PLAN, seed] or 0) - float(aucs[other, seed] or 0) for seed in seeds]


def read_points(settings: PaperSettings, model: str) -> list[FrontierPoint]:
    """The points of all methods under a model that were compared, and those of PEP decay; the floor left out."""
    decay = read_experiment(settings, f"movielens-1m/{model}/pep-decay")
    stored = compared.points(settings, PART, model)
    return [
        *pruned_points(decay.values(), DECAY),
        *(FrontierPoint.from_json(point) for point in stored if point["model"] == model),
    ]


def plan_points(settings: PaperSettings, model: str) -> list[FrontierPoint]:
    """The points of PEP plan with its default settings, a teacher where validation chose one."""
    return pruned_points(_plan(settings, model).values(), PLAN)


def _plan(settings: PaperSettings, model: str) -> dict[int, Frontier]:
    return read_experiment(settings, f"movielens-1m/{model}/pep-plan")


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


def _signed(differences: Sequence[float]) -> str:
    if not differences:
        return "–"
    spread = f" ± {stdev(differences):.4f}" if len(differences) > 1 else ""
    return f"{fmean(differences):+.4f}{spread} ({len(differences)})"


def _unmet(unmet: Mapping[str, str]) -> str:
    return "Out of reach: " + "; ".join(sorted(unmet)) + "." if unmet else ""
