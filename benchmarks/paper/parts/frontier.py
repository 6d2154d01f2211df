"""AUC against parameters and against bytes: every method under every model, and PEP against each at equal budgets.

All methods share the data, search and training of `experiments/movielens-1m/<model>/pep-plan.toml` under `thresher
compare`, with hard labels. PEP's grid, like the other grids, begins with a wider table than the D = 64 of that file.
PEP decay is a separate experiment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from paper import int8_tickets, method_comparison
from paper.experiments import (
    aucs_of,
    pruned_points,
    read_experiment,
    result_path,
    run_experiment,
)
from paper.figures.methods import plot_methods
from paper.markdown import NOT_RUN_YET, Claim, mean_sd, not_in_paper, paragraphs, picture, provenance, table
from paper.method_comparison import compare_method
from paper.parts import ablation
from paper.published import AUTHORS_CODE, PEP_0
from paper.result_files import read_result
from paper.settings import MODEL_NAMES, PaperSettings
from paper.verdicts.equal_budgets import at_equal_budgets, claim_better, method_rows
from paper.verdicts.equal_bytes import at_equal_bytes
from thresher.models.model_registry import FLOOR
from thresher.report.frontier import FrontierPoint

PART = "frontier"
TITLE = "AUC against parameters and bytes"
PUBLISHED = "Figure 2"
MEASURED = """Test AUC of PEP and of the other pruning, compression and size-search methods on MovieLens-1M, at equal
numbers of parameters and at equal bytes, all trained with hard labels. [methods.md](methods.md) describes the methods
and their grids."""
PLAN, DECAY, QUANTISED = "pep", "pep-decay", "quantized"
MODELS = ("fm", "deepfm", "autoint")
IN_PAPER = ("uniform", "mgqe", "mde", "darts-emb")
MAGNITUDES = ("magnitude", "gradual-magnitude", "iterative-magnitude")
ONLY_IN_BYTES = (QUANTISED, int8_tickets.LABEL)
"""Methods that are compared in bytes only: with equal parameters they are `uniform` and `pep`."""
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
        "quantized",
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
"""Budgets of the experiments; 30k for deep models is one that PEP decay reaches. The last one is the size of the
paper's PEP-0; for AutoInt (9,281) it is slightly smaller."""
TRIALS = 1
FURTHER = ("l1-projection", "dnis", "nis", "autodim", "hash", "double-hash", "quotient-remainder")
"""Methods in a second figure: not in the paper, not magnitude pruning, not quantized."""
DEPTH = 3.5
"""Figures end this many times PEP's AUC range below PEP; the tables contain the rest."""


def run(settings: PaperSettings) -> None:
    for model in _models(settings):
        for seeds in range(1, max(settings.seeds) + 2):  # a comparison starts at seed 0
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
            written += plot_methods(
                first, settings.images / f"frontier-{model}", by_bytes_alone=ONLY_IN_BYTES, marks=_published(model),
                title=title + (f" (LR, no embedding: {fmean(floor):.4f})" if floor else ""), depth=DEPTH,
            )  # fmt: skip
        if any(point.label in FURTHER for point in points):
            stem = settings.images / f"frontier-{model}-further"
            written += plot_methods(further, stem, title=f"{title}: further methods", depth=DEPTH)
    return written


def page(settings: PaperSettings) -> str:
    sections = [
        f"""Methods in the tables:

- `pep` is PEP plan. `pep-decay` is the published search, a separate experiment with D = 64; the comparison
  with it also contains the effect of the embedding dimension.
- All other methods share data, warm-up, plan, retraining and seeds. Each method, PEP included, uses the first setting
  of its grid. PEP, magnitude pruning, L1 projection and DNIS search tables with D = 128. A method whose first setting
  is small cannot use a large budget: its size is then given after its AUC (`@`), and more trials might improve it.
- `quantized` is the table of `uniform` and `pep, int8` is the table of `pep` with int8 values. They are compared in
  bytes.
- With [the deviation fixed at 0](#deviation-fixed-at-0) `pep` is a schedule of magnitude pruning with a soft
  threshold.{_learned_thresholds(settings)}"""
    ]
    for model in MODELS:
        points = read_points(settings, model)
        text = _section(settings, model, points) if points else NOT_RUN_YET
        sections.append(f"### {MODEL_NAMES[model]}\n\n{text}")
    return paragraphs(*sections)


def claims(settings: PaperSettings) -> list[Claim]:
    """Compare PEP with the methods in the paper's figures and with magnitude pruning, under every model."""
    points = {model: read_points(settings, model) for model in MODELS}
    prefix = "MovieLens-1M, each method with the first setting of its grid"
    own = "at equal size PEP is better than magnitude pruning"
    gain = "Magnitude pruning comes closest to PEP, most of all with an iterative schedule and under AutoInt."
    return [
        *claim_better(
            "At equal size PEP is better than uniform tables, MGQE, MDE and DartsEmb",
            prefix, points, BUDGETS, PLAN, IN_PAPER, MODEL_NAMES, meanings={},
        ),
        *claim_better(
            not_in_paper(own), prefix, points, BUDGETS, PLAN, MAGNITUDES, MODEL_NAMES, meanings={"in part": gain}
        ),
    ]  # fmt: skip


def _learned_thresholds(settings: PaperSettings) -> str:
    """Credit the result to learned thresholds only if the ablation shows that they matter."""
    claim = ablation.learning_claim(settings)
    if claim is not None and claim.holds == "no":
        return " It is not worse then, so the advantage of `pep` comes from this schedule, not from learned thresholds."
    return ""


def _section(settings: PaperSettings, model: str, points: Sequence[FrontierPoint]) -> str:
    content = read_result(path(settings, model))
    budgets = BUDGETS[model]
    return paragraphs(
        picture(settings, f"frontier-{model}", f"test AUC against parameters and bytes, {MODEL_NAMES[model]}"),
        picture(settings, f"frontier-{model}-further", f"the same for further methods, {MODEL_NAMES[model]}"),
        table(["test AUC", *budgets], method_rows(points, budgets)),
        *(_unbudgeted(points, label) for label in ("uniform", QUANTISED)),
        f"Logistic regression: {mean_sd(aucs_of(floor_points(settings, model)))}.",
        at_equal_budgets([point for point in points if point.label not in ONLY_IN_BYTES], PLAN, budgets),
        at_equal_bytes(points, (PLAN, int8_tickets.LABEL), reverse=[QUANTISED]),
        method_comparison.stopped_at_last_epoch(content),
        unmet_budgets(content),
        _missing(model, content.get("done", {}), has_decay=any(point.label == DECAY for point in points)),
        provenance(
            content,
            read_result(result_path(settings, f"movielens-1m/{model}/pep-decay")),
            read_result(int8_tickets.path(settings)) if model == "fm" else {},
        ),
    )


def _unbudgeted(points: Sequence[FrontierPoint], label: str) -> str:
    """List a method's tables of fixed embedding dimension, which have no budget."""
    own = [point for point in points if point.label == label and point.budget is None]
    sizes = sorted({point.num_parameters for point in own}, reverse=True)
    texts = [f"{size:,}: {mean_sd(aucs_of([p for p in own if p.num_parameters == size]))}" for size in sizes]
    return f"`{label}` with D = 64 and smaller, by number of parameters: {'; '.join(texts)}." if own else ""


def unmet_budgets(content: Mapping[str, Any]) -> str:
    """List the budgets that a method cannot reach."""
    unmet = content.get("unmet", {})
    return f"Budgets that are out of reach: {', '.join(sorted(unmet))}." if unmet else ""


def read_points(settings: PaperSettings, model: str) -> list[FrontierPoint]:
    """Return the points of all methods under a model, PEP decay included, logistic regression excluded."""
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
    order = (PLAN, int8_tickets.LABEL, DECAY, *METHODS["fm"])  # not the order of the runs
    return sorted(points, key=lambda point: order.index(point.label))


def path(settings: PaperSettings, model: str) -> Path:
    return settings.results / PART / f"{model}.json"


def _published(model: str) -> list[FrontierPoint]:
    """Return the points of the paper and of the authors' code."""
    published = {"paper": PEP_0["movielens-1m"][model], "authors' code": AUTHORS_CODE[model]}
    return [
        FrontierPoint(
            label=name, budget=None, num_parameters=size, storage_bytes=0, test_auc=auc,
            validation_auc=auc, validation_logloss=0.0,
        )
        for name, (auc, size) in published.items()
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
    """Return the methods to run; quick mode has few for deep models, whose network a comparison cannot shrink."""
    quick = {"fm": METHODS["fm"], "deepfm": ("magnitude",), "autoint": ()}
    return quick[model] if settings.quick else METHODS[model]


def _missing(model: str, done: Mapping[str, object], *, has_decay: bool) -> str:
    missing = [f"`{method}`" for method in METHODS[model] if method not in done]
    missing += [] if has_decay else [f"`{DECAY}`"]
    return f"Not run yet under {model}: {', '.join(missing)}." if missing else ""
