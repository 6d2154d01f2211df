"""AUC against parameters and against bytes: every method under every model, and PEP against each at equal budgets.

All share the data, search and training of `experiments/movielens-1m/<model>/pep-plan.toml` under `thresher compare`, by
labels alone: no teacher. PEP's grid, like theirs, begins with a table wider than the 64 of that file. PEP with decay is
its own experiment.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from paper import int8_tickets, method_comparison
from paper.experiments import (
    aucs_of,
    pruned_points,
    read_experiment,
    result_path,
    run_experiment,
)
from paper.markdown import NOT_RUN_YET, Claim, holds, mean_sd, not_in_paper, picture, provenance, table
from paper.method_comparison import compare_method
from paper.parts import ablation
from paper.published import AUTHORS_CODE, PEP_0
from paper.result_files import read_result
from paper.settings import MODEL_NAMES, PaperSettings
from paper.verdicts.equal_budgets import at_equal_budgets, comparisons, method_rows, outcome_counts
from paper.verdicts.equal_bytes import at_equal_bytes
from thresher.experiment.compared_points import FLOOR
from thresher.report.comparison import plot_comparison
from thresher.report.frontier import FrontierPoint

PART = "frontier"
TITLE = "AUC against parameters and bytes"
PUBLISHED = "Figure 2"
PLAN, DECAY, QUANTISED = "pep", "pep-decay", "quantised"
MODELS = ("fm", "deepfm", "autoint")
IN_PAPER = ("uniform", "mgqe", "mde", "darts-emb")
MAGNITUDES = ("magnitude", "gradual-magnitude", "iterative-magnitude")
BY_BYTES_ALONE = (QUANTISED, int8_tickets.LABEL)
"""At equal parameters they are `uniform` and `pep`."""
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
FURTHER = ("l1-projection", "dnis", "nis", "autodim", "hash", "double-hash", "quotient-remainder")
"""Methods with a figure of their own beside PEP: neither in the paper nor pruning by magnitude nor quantised."""
DEPTH = 3.5
"""Figures end so many times PEP's own range below it: tables have the rest."""


def run(settings: PaperSettings) -> None:
    for model in _models(settings):
        for seeds in range(1, max(settings.seeds) + 2):  # a comparison counts its seeds from 0
            for method in _methods(settings, model):
                compare_method(
                    settings, path(settings, model), f"movielens-1m/{model}/pep-plan", method, BUDGETS[model],
                    seeds=seeds, trials=TRIALS,
                )  # fmt: skip
        if model == "fm":
            int8_tickets.run(settings, BUDGETS[model])
    for model in _models(settings):
        run_experiment(settings, f"movielens-1m/{model}/pep-decay", settings.seeds)


def draw(settings: PaperSettings) -> list[Path]:
    written: list[Path] = []
    for model in MODELS:
        points = read_points(settings, model)
        floor = aucs_of(floor_points(settings, model))
        title = f"MovieLens-1M, {MODEL_NAMES[model]}"
        first = [point for point in points if point.label not in FURTHER]
        further = [point for point in points if point.label in (PLAN, *FURTHER)]
        if first:
            written += plot_comparison(
                first, settings.images / f"frontier-{model}", by_bytes_alone=BY_BYTES_ALONE, marks=_published(model),
                title=title + (f" (LR, no embedding: {fmean(floor):.4f})" if floor else ""), depth=DEPTH,
            )  # fmt: skip
        if any(point.label in FURTHER for point in points):
            stem = settings.images / f"frontier-{model}-further"
            written += plot_comparison(further, stem, title=f"{title}: further methods", depth=DEPTH)
    return written


def page(settings: PaperSettings) -> str:
    sections = [
        f"""Methods and their grids: [methods.md](methods.md).

- `pep` is PEP plan; `pep-decay` the published search, an experiment of its own, 64 wide: against it the width counts,
  too.
- All others share data, warm-up, plan, retraining on labels alone, and seeds. Each has the first setting of its grid,
  PEP too: PEP, magnitude pruning, L1 projection and DNIS search tables 128 wide. With one trial each, a method whose
  first setting is small cannot use a large budget: then its size stands beside its AUC, and more trials might do more.
- `quantised` is the table of `uniform`, and `pep, int8` that of `pep`, with values in eight bits: compared in bytes.
- With [the deviation fixed at 0](#the-deviation-fixed-at-0) `pep` is one more schedule of magnitude pruning, with a
  soft threshold.{_learning(settings)}"""
    ]
    for model in MODELS:
        points = read_points(settings, model)
        found = _section(settings, model, points) if points else NOT_RUN_YET
        sections.append(f"### {MODEL_NAMES[model]}\n\n{found}")
    return "\n\n".join(sections)


def claims(settings: PaperSettings) -> list[Claim]:
    """PEP against the methods the paper has in its figures, and against magnitude pruning, under every model."""
    return [
        *_claim(settings, "At equal size it is ahead of uniform tables, MGQE, MDE and DartsEmb", IN_PAPER),
        *_claim(settings, not_in_paper("at equal size it is ahead of magnitude pruning"), MAGNITUDES),
    ]


def _claim(settings: PaperSettings, said: str, methods: Sequence[str]) -> list[Claim]:
    told, found = [], []
    for model in MODELS:
        points = [point for point in read_points(settings, model) if point.label in (PLAN, *methods)]
        compared_here = comparisons(points, PLAN, BUDGETS[model])
        if compared_here:
            others = ", ".join(dict.fromkeys(one.other.label for one in compared_here))
            told.append(f"{MODEL_NAMES[model]} ({others}): {outcome_counts(compared_here, name_level=False)}")
            found += [one.is_better for one in compared_here]
    here = f"MovieLens-1M, each method with the first setting of its grid, {'; '.join(told)}"
    return [Claim(said, holds(found), here)] if told else []


def _learning(settings: PaperSettings) -> str:
    """Nothing here may be credited to learned thresholds unless the ablation shows that they matter."""
    claim = ablation.learning_claim(settings)
    if claim is not None and claim.holds == "no":
        return " It is no worse then: what `pep` is ahead by is owed to that schedule, not to learned thresholds."
    return ""


def _section(settings: PaperSettings, model: str, points: Sequence[FrontierPoint]) -> str:
    content = read_result(path(settings, model))
    budgets = BUDGETS[model]
    parts = [
        picture(settings, f"frontier-{model}", f"test AUC against parameters and bytes, {MODEL_NAMES[model]}"),
        picture(settings, f"frontier-{model}-further", f"the same of further methods, {MODEL_NAMES[model]}"),
        table(["test AUC", *budgets], method_rows(points, budgets)),
        *(_widths(points, label) for label in ("uniform", QUANTISED)),
        f"Logistic regression: {mean_sd(aucs_of(floor_points(settings, model)))}.",
        at_equal_budgets([point for point in points if point.label not in BY_BYTES_ALONE], PLAN, budgets),
        at_equal_bytes(points, (PLAN, int8_tickets.LABEL), turned=[QUANTISED]),
        method_comparison.stopped_at_last_epoch(content),
        _unmet(content.get("unmet", {})),
        _missing(model, content.get("done", {}), has_decay=any(point.label == DECAY for point in points)),
        provenance(
            content,
            read_result(result_path(settings, f"movielens-1m/{model}/pep-decay")),
            read_result(int8_tickets.path(settings)) if model == "fm" else {},
        ),
    ]
    return "\n\n".join(part for part in parts if part)


def _widths(points: Sequence[FrontierPoint], label: str) -> str:
    """A plain table of whole widths, outside the budgets."""
    own = [point for point in points if point.label == label and point.budget is None]
    sizes = sorted({point.num_parameters for point in own}, reverse=True)
    told = [f"{size:,}: {mean_sd(aucs_of([p for p in own if p.num_parameters == size]))}" for size in sizes]
    return f"`{label}` at whole widths from 64 down, by parameters: {'; '.join(told)}." if own else ""


def read_points(settings: PaperSettings, model: str) -> list[FrontierPoint]:
    """The points of all methods under a model that were compared, and those of PEP decay; the floor left out."""
    decay = read_experiment(settings, f"movielens-1m/{model}/pep-decay")
    points = [
        *pruned_points(decay.values(), DECAY),
        *(
            FrontierPoint.from_json(point)
            for point in method_comparison.points(path(settings, model))
            if point["model"] == model
        ),
        *(int8_tickets.points(settings) if model == "fm" else []),
    ]
    order = (PLAN, int8_tickets.LABEL, DECAY, *METHODS["fm"])  # not the one they were run in
    return sorted(points, key=lambda point: order.index(point.label))


def path(settings: PaperSettings, model: str) -> Path:
    return settings.results / PART / f"{model}.json"


def _published(model: str) -> list[FrontierPoint]:
    """The paper's point, and that of the authors' code in an independent run."""
    told = {"paper": PEP_0["movielens-1m"][model], "authors' code": AUTHORS_CODE[model]}
    return [
        FrontierPoint(
            label=name, budget=None, num_parameters=size, storage_bytes=0, test_auc=auc,
            validation_auc=auc, validation_logloss=0.0,
        )
        for name, (auc, size) in told.items()
    ]  # fmt: skip


def floor_points(settings: PaperSettings, model: str = "fm") -> list[FrontierPoint]:
    return [
        FrontierPoint.from_json(point)
        for point in method_comparison.points(path(settings, model))
        if point["model"] == FLOOR
    ]


def _models(settings: PaperSettings) -> list[str]:
    return [model for model in MODELS if model in settings.models]


def _methods(settings: PaperSettings, model: str) -> tuple[str, ...]:
    """In quick no more than one under DeepFM and none under AutoInt, whose network a comparison cannot make small."""
    quick = {"fm": METHODS["fm"], "deepfm": ("magnitude",), "autoint": ()}
    return quick[model] if settings.quick else METHODS[model]


def _missing(model: str, done: Mapping[str, object], *, has_decay: bool) -> str:
    missing = [f"`{method}`" for method in METHODS[model] if method not in done]
    missing += [] if has_decay else [f"`{DECAY}`"]
    return f"Not run yet under {model}: {', '.join(missing)}." if missing else ""


def _unmet(unmet: Mapping[str, str]) -> str:
    return "Out of reach: " + "; ".join(sorted(unmet)) + "." if unmet else ""
