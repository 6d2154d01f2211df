"""AUC against parameters on the small Criteo and Avazu files: the paper's methods and magnitude pruning, under FM.

All methods share the data, search and training of `experiments/<file>-small/fm/pep-plan.toml` under `thresher compare`,
with hard labels. A comparison uses the network recorded for the full files, so deep models are not compared here.
"""

from collections.abc import Mapping
from pathlib import Path

from paper import method_comparison
from paper.experiments import aucs_of
from paper.figures.methods import plot_methods
from paper.markdown import NOT_RUN_YET, Claim, mean_sd, not_in_paper, paragraphs, picture, provenance, table
from paper.method_comparison import compare_method
from paper.parts.data_statistics import auc_error
from paper.parts.frontier import DEPTH, IN_PAPER, MAGNITUDES, unmet_budgets
from paper.result_files import read_result
from paper.settings import DATASET_NAMES, PaperSettings
from paper.verdicts.equal_budgets import at_equal_budgets, claim_better, method_rows
from paper.verdicts.groups import group_by_size
from thresher.models.model_registry import FLOOR
from thresher.report.frontier import FrontierPoint

PART = "frontier_small"
TITLE = "AUC against parameters on small Criteo and Avazu files"
PUBLISHED = "Figures 3 and 4, the panels of FM"
MEASURED = """The same comparison on the small Criteo and Avazu files, for FM only, with the first setting of each grid
and
hard labels. AUC levels cannot be compared with the paper: its tables are far larger, and its dense tables do not
overfit within two epochs as they do here."""
METHODS = ("pep", "magnitude", "uniform", "mde", "mgqe", "darts-emb")
BUDGETS: Mapping[str, tuple[str, ...]] = {
    "criteo": ("200k", "100k", "40k", "16k", "4k", "1067"),
    "avazu": ("40k", "16k", "4k", "1479"),
}
"""The last one is the size of the paper's PEP-0 under FM."""
USUAL_AUC = 0.75


def run(settings: PaperSettings) -> None:
    if "fm" not in settings.models:
        return
    for source, budgets in BUDGETS.items():
        for seeds in range(1, max(settings.seeds) + 2):  # a comparison starts at seed 0
            for method in METHODS:
                compare_method(
                    settings, settings.result_path(PART, f"{source}-fm"), f"{source}-small/fm/pep-plan", method,
                    budgets, seeds=seeds, trials=1,
                )  # fmt: skip


def draw(settings: PaperSettings) -> list[Path]:
    written: list[Path] = []
    for source in BUDGETS:
        points, floor = _points(settings, source), _points(settings, source, model=FLOOR)
        if points:
            stem, title = settings.images / f"frontier-{source}-small", f"{DATASET_NAMES[source]}, FM"
            written += plot_methods(points, stem, floor=floor, title=title, depth=DEPTH)
    return written


def page(settings: PaperSettings) -> str:
    sections = [_section(settings, source) for source in BUDGETS if _points(settings, source)]
    if not sections:
        return NOT_RUN_YET
    errors = {source: auc_error(settings, source, USUAL_AUC) for source in BUDGETS}
    texts = [f"{error:.3f} on {DATASET_NAMES[source]}" for source, error in errors.items() if error is not None]
    precision = (
        f"The standard error of an AUC due to the test rows is {', '.join(texts)}. Differences on the same rows have a "
        "smaller error."
    )
    return paragraphs(precision if texts else "", *sections)


def claims(settings: PaperSettings) -> list[Claim]:
    """Test the claims of the frontier on the small files."""
    points = {source: _points(settings, source) for source in BUDGETS}
    own = "on Criteo and Avazu PEP is better than magnitude pruning"
    meaning = "On these small files no advantage over one-shot magnitude pruning was found."
    return [
        *claim_better(
            "On Criteo and Avazu PEP is better than uniform tables, MGQE, MDE and DartsEmb",
            "FM", points, BUDGETS, "pep", IN_PAPER, DATASET_NAMES, meanings={},
        ),
        *claim_better(
            not_in_paper(own), "FM", points, BUDGETS, "pep", MAGNITUDES, DATASET_NAMES, meanings={"no": meaning}
        ),
    ]  # fmt: skip


def _section(settings: PaperSettings, source: str) -> str:
    points, budgets, name = _points(settings, source), BUDGETS[source], DATASET_NAMES[source]
    content = read_result(settings.result_path(PART, f"{source}-fm"))
    return paragraphs(
        f"### {name}",
        picture(settings, f"frontier-{source}-small", f"test AUC against parameters and bytes, {name}"),
        table(["test AUC", *budgets], method_rows(points, budgets)),
        f"Logistic regression: {mean_sd(aucs_of(_points(settings, source, model=FLOOR)))}. {_best_dense(points)}",
        at_equal_budgets(points, "pep", budgets),
        unmet_budgets(content),
        method_comparison.stopped_at_last_epoch(content),
        provenance(content),
    )


def _best_dense(points: list[FrontierPoint]) -> str:
    """Describe the dense table whose embedding dimension is best on validation."""
    dense = group_by_size(point for point in points if point.label == "uniform" and point.budget is None)
    if not dense:
        return "No dense table was trained."
    best = max(dense, key=lambda group: group.validation_auc)
    return (
        f"The dense table that is best on validation has {best.size_text()} parameters and test AUC "
        f"{mean_sd(aucs_of(best.points))}; the figure shows all of them."
    )


def _points(settings: PaperSettings, source: str, *, model: str = "fm") -> list[FrontierPoint]:
    stored = method_comparison.points(settings.result_path(PART, f"{source}-fm"))
    return [FrontierPoint.from_json(point) for point in stored if point["model"] == model]
