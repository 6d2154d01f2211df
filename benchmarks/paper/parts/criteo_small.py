"""The small Criteo file: is a pruned FM or DeepFM better than logistic regression and than every dense table?

With 137,139 rows a dense table overfits within two epochs, so pruning can improve AUC.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from paper.experiments import (
    aucs_of,
    baseline_points,
    load_experiment,
    lr_path,
    pruned_points,
    read_experiment,
    result_path,
    run_experiment,
    train_baseline,
)
from paper.markdown import (
    ABSENT,
    NOT_RUN_YET,
    Claim,
    holds,
    mean_sd,
    not_in_paper,
    paragraphs,
    picture,
    provenance,
    table,
)
from paper.parts.data_statistics import auc_error
from paper.result_files import read_result
from paper.settings import DATASET_NAMES, MODEL_NAMES, PaperSettings
from paper.verdicts.differences import is_better_method, paired_differences, signed, validation_difference
from paper.verdicts.groups import MethodAtSize, group_by_size
from thresher.models.model_registry import model_config
from thresher.report.frontier import FrontierPoint
from thresher.report.plots import plot_comparison

TITLE = "Small Criteo file: pruned tables against dense tables"
PUBLISHED = "Figure 3, the uniform tables"
MEASURED = """Test AUC of FM and DeepFM on the small Criteo file: dense tables of five embedding dimensions and tickets
of
PEP plan (D = 64, settings of `benchmarks/experiments/criteo-small/`, distilled where validation chose it). On the full
file, the paper's uniform tables get worse beyond D = 16; here all dense tables overfit within two epochs."""
SOURCE = "criteo"
MODELS = ("fm", "deepfm")
WIDTHS = (4, 8, 16, 32, 64)


def run(settings: PaperSettings) -> None:
    train_baseline(settings, lr_path(settings, SOURCE), SOURCE, model_config("lr"), 1, settings.plan_seeds)
    for model in (model for model in MODELS if model in settings.models):
        run_experiment(settings, f"criteo-small/{model}/pep-plan", settings.plan_seeds)
        plan = load_experiment(settings, f"criteo-small/{model}/pep-plan")
        for width in _widths(settings):
            path = _dense_path(settings, model, width)
            train_baseline(settings, path, SOURCE, plan.model, width, settings.plan_seeds, training=plan.training)


def draw(settings: PaperSettings) -> list[Path]:
    written: list[Path] = []
    for model in MODELS:
        points = _labelled(settings, model)
        if points:
            floor = baseline_points(lr_path(settings, SOURCE))
            title = f"{DATASET_NAMES[SOURCE]}, {MODEL_NAMES[model]}"
            written += plot_comparison(points, settings.images / f"criteo-small-{model}", floor=floor, title=title)
    return written


def page(settings: PaperSettings) -> str:
    floor = baseline_points(lr_path(settings, SOURCE))
    if not floor:
        return NOT_RUN_YET
    error = auc_error(settings, SOURCE, fmean(aucs_of(floor)))
    precision = f" The standard error of an AUC due to the test rows is {error:.3f}." if error else ""
    return paragraphs(
        f"Logistic regression: {mean_sd(aucs_of(floor))}.{precision}",
        *(_section(settings, model, floor) for model in MODELS),
    )


def _section(settings: PaperSettings, model: str, floor: Sequence[FrontierPoint]) -> str:
    dense = {width: baseline_points(_dense_path(settings, model, width)) for width in WIDTHS}
    sizes, name = group_by_size(_pruned(settings, model)), MODEL_NAMES[model]
    if not sizes and not any(dense.values()):
        return f"### {name}\n\n{NOT_RUN_YET}"
    rows = [[f"dense, D = {width}", _size(points), mean_sd(aucs_of(points))] for width, points in dense.items()]
    rows += [[f"PEP plan at {one.budget}", one.size_text(), mean_sd(aucs_of(one.points))] for one in sizes]
    best = _best(sizes)
    verdict = ""
    if best is not None:
        rivals = {"logistic regression": floor} | {f"dense, D = {at}": points for at, points in dense.items() if points}
        texts = [_against(best.points, others, name) for name, others in rivals.items()]
        verdict = f"PEP plan at {best.budget}, the best size on validation, against {'; '.join(filter(None, texts))}."
    return paragraphs(
        f"### {name}",
        picture(settings, f"criteo-small-{model}", f"test AUC on {DATASET_NAMES[SOURCE]}, {name}"),
        table([name, "parameters", "test AUC"], rows),
        verdict,
        provenance(
            read_result(result_path(settings, f"criteo-small/{model}/pep-plan")),
            *(read_result(_dense_path(settings, model, width)) for width in WIDTHS),
        ),
    )


def claims(settings: PaperSettings) -> list[Claim]:
    """Compare each model's best size on validation with logistic regression and with every dense table."""
    texts, checks = [], []
    for model in MODELS:
        best = _best(group_by_size(_pruned(settings, model)))
        rivals = [baseline_points(_dense_path(settings, model, width)) for width in WIDTHS]
        rivals.append(baseline_points(lr_path(settings, SOURCE)))
        rivals = [rival for rival in rivals if best is not None and paired_differences(best.points, rival)]
        if best is not None and rivals:
            better = [is_better_method(best.points, rival) for rival in rivals]
            smallest = min((paired_differences(best.points, rival) for rival in rivals), key=fmean)
            texts.append(
                f"{MODEL_NAMES[model]} at {best.budget}: better in {sum(better)} of {len(better)} comparisons, "
                f"smallest difference {signed(smallest)}"
            )
            checks += better
    statement = "on the small Criteo file a pruned table is better than logistic regression and than every dense table"
    meaning = "Where dense tables overfit, pruning improves AUC."
    if not texts:
        return []
    verdict = holds(checks)
    return [Claim(not_in_paper(statement), verdict, "; ".join(texts), meaning if verdict == "yes" else "")]


def _best(sizes: Sequence[MethodAtSize]) -> MethodAtSize | None:
    """Return the size that is best on validation."""
    return max(sizes, key=lambda one: one.validation_auc, default=None)


def _against(points: Sequence[FrontierPoint], others: Sequence[FrontierPoint], name: str) -> str:
    """Compare on test and on validation, because with few rows the splits can disagree; empty without common seeds."""
    on_test = paired_differences(points, others)
    if not on_test:
        return ""
    verdict = "no significant difference"
    if is_better_method(points, others) or is_better_method(others, points):
        verdict = "better" if fmean(on_test) > 0 else "worse"
    return f"{name}: {verdict}, {signed(on_test)} on test, {validation_difference(points, others):+.4f} on validation"


def _labelled(settings: PaperSettings, model: str) -> list[FrontierPoint]:
    dense = [
        replace(point, label="dense")
        for width in WIDTHS
        for point in baseline_points(_dense_path(settings, model, width))
    ]
    return [*dense, *_pruned(settings, model)]


def _pruned(settings: PaperSettings, model: str) -> list[FrontierPoint]:
    return pruned_points(read_experiment(settings, f"criteo-small/{model}/pep-plan").values(), "pep")


def _dense_path(settings: PaperSettings, model: str, width: int) -> Path:
    return settings.results / "criteo_small" / f"{model}-dense-{width}.json"


def _widths(settings: PaperSettings) -> tuple[int, ...]:
    return WIDTHS[::2] if settings.quick else WIDTHS


def _size(points: list[FrontierPoint]) -> str:
    return f"{points[0].num_parameters:,}" if points else ABSENT
