"""AUC against parameters on the small Criteo and Avazu files: the paper's methods, and magnitude pruning, under FM.

All share the data, search and training of `experiments/<file>-small/fm/pep-plan.toml` under `thresher compare`, by
labels alone. The network of a comparison is the recorded one of the whole files, so deep models are not compared here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from paper import method_comparison
from paper.experiments import aucs_of
from paper.markdown import NOT_RUN_YET, Claim, holds, mean_sd, not_in_paper, picture, provenance, table
from paper.method_comparison import compare_method
from paper.parts.data_statistics import auc_error
from paper.parts.frontier import DEPTH, IN_PAPER, MAGNITUDES
from paper.result_files import read_result
from paper.settings import DATASET_NAMES, PaperSettings
from paper.verdicts.equal_budgets import at_equal_budgets, comparisons, method_rows, outcome_counts
from paper.verdicts.groups import group_by_size
from thresher.experiment.compared_points import FLOOR
from thresher.report.comparison import plot_comparison
from thresher.report.frontier import FrontierPoint

PART = "frontier_small"
TITLE = "The same on Criteo and Avazu in small"
PUBLISHED = "Figures 3 and 4, of which these are FM's panels"
METHODS = ("pep", "magnitude", "uniform", "mde", "mgqe", "darts-emb")
BUDGETS: Mapping[str, tuple[str, ...]] = {
    "criteo": ("200k", "100k", "40k", "16k", "4k", "1067"),
    "avazu": ("40k", "16k", "4k", "1479"),
}
"""The last of each is the size of the paper's PEP-0 under FM."""
USUAL_AUC = 0.75


def run(settings: PaperSettings) -> None:
    if "fm" not in settings.models:
        return
    for source, budgets in BUDGETS.items():
        for seeds in range(1, max(settings.seeds) + 2):  # a comparison counts its seeds from 0
            for method in METHODS:
                compare_method(
                    settings, _path(settings, source), f"{source}-small/fm/pep-plan", method, budgets,
                    seeds=seeds, trials=1,
                )  # fmt: skip


def draw(settings: PaperSettings) -> list[Path]:
    written: list[Path] = []
    for source in BUDGETS:
        points, floor = _points(settings, source), _points(settings, source, of=FLOOR)
        if points:
            stem, title = settings.images / f"frontier-{source}-small", f"{DATASET_NAMES[source]}, FM"
            written += plot_comparison(points, stem, floor=floor, title=title, depth=DEPTH)
    return written


def page(settings: PaperSettings) -> str:
    errors = {DATASET_NAMES[source]: auc_error(settings, source, USUAL_AUC) for source in BUDGETS}
    told = ", ".join(f"{error:.3f} on {place}" for place, error in errors.items() if error is not None)
    introduction = """The paper shows these curves for the whole files, where tables are far larger and a dense one
does not overfit within two epochs as it does here: levels do not compare. FM alone, first settings of each grid, by
labels, as above.""" + (
        f" The standard error of an AUC that comes from the test rows is {told}; differences on the same rows err less."
        if told
        else ""
    )
    sections = [_section(settings, source) for source in BUDGETS if _points(settings, source)]
    return "\n\n".join([introduction, *sections]) if sections else NOT_RUN_YET


def claims(settings: PaperSettings) -> list[Claim]:
    """As the frontier's, on the small files."""
    return [
        *_claim(settings, "On Criteo and Avazu it is ahead of uniform tables, MGQE, MDE and DartsEmb", IN_PAPER),
        *_claim(settings, not_in_paper("there it is ahead of magnitude pruning"), MAGNITUDES),
    ]


def _claim(settings: PaperSettings, said: str, methods: Sequence[str]) -> list[Claim]:
    told, found = [], []
    for source, budgets in BUDGETS.items():
        points = [point for point in _points(settings, source) if point.label in ("pep", *methods)]
        if compared_here := comparisons(points, "pep", budgets):
            told.append(f"{DATASET_NAMES[source]}: {outcome_counts(compared_here, name_level=False)}")
            found += [one.is_better for one in compared_here]
    return [Claim(said, holds(found), f"FM, {'; '.join(told)}")] if told else []


def _section(settings: PaperSettings, source: str) -> str:
    points, budgets = _points(settings, source), BUDGETS[source]
    floor = aucs_of(_points(settings, source, of=FLOOR))
    content = read_result(_path(settings, source))
    unmet = ", ".join(sorted(content.get("unmet", {})))
    parts = [
        f"### {DATASET_NAMES[source]}",
        picture(
            settings, f"frontier-{source}-small", f"test AUC against parameters and bytes, {DATASET_NAMES[source]}"
        ),
        table(["test AUC", *budgets], method_rows(points, budgets)),
        f"Logistic regression: {mean_sd(floor)}; dense tables of whole widths are in the figure. The best of "
        f"{_best_dense(points)}.",
        at_equal_budgets(points, "pep", budgets),
        f"Out of reach: {unmet}." if unmet else "",
        method_comparison.stopped_at_last_epoch(content),
        provenance(content),
    ]
    return "\n\n".join(part for part in parts if part)


def _best_dense(points: list[FrontierPoint]) -> str:
    """The whole width that is best on validation."""
    plain = group_by_size(point for point in points if point.label == "uniform" and point.budget is None)
    if not plain:
        return "them was not run"
    best = max(plain, key=lambda width: width.validation_auc)
    return f"them on validation, {best.size_text()} parameters, has {mean_sd(aucs_of(best.points))}"


def _points(settings: PaperSettings, source: str, *, of: str = "fm") -> list[FrontierPoint]:
    stored = method_comparison.points(_path(settings, source))
    return [FrontierPoint.from_json(point) for point in stored if point["model"] == of]


def _path(settings: PaperSettings, source: str) -> Path:
    return settings.results / PART / f"{source}-fm.json"
