"""PEP at its smallest size against logistic regression: what do a few thousand embedding parameters add?

The points of MovieLens-1M are the smallest of the headline. Criteo and Avazu are the small files with the paper's
sizes."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from paper.experiments import (
    aucs_of,
    baseline_points,
    dense_points,
    lr_path,
    plan_points,
    pruned_points,
    read_experiment,
    result_path,
    run_experiment,
    train_baseline,
)
from paper.markdown import ABSENT, NOT_RUN_YET, Claim, holds, mean_sd, paragraphs, picture, provenance, table
from paper.parts import data_statistics, headline
from paper.parts.data_statistics import auc_error
from paper.published import PEP_0
from paper.result_files import read_result
from paper.settings import DATASET_NAMES, MODEL_NAMES, MODELS, PaperSettings
from paper.verdicts.differences import is_better_method, paired_differences, signed, validation_difference
from thresher.models.model_registry import model_config
from thresher.report.figures import COLOURS, new_figure, page_style, save_figure
from thresher.report.frontier import FrontierPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "PEP-0 against logistic regression"
PUBLISHED = "Table 4"
MEASURED = """Test AUC of PEP plan at the paper's smallest sizes, minus that of logistic regression. On Criteo and Avazu
only these differences can be compared with the paper, because the paper uses the full files. FM uses the default
settings; of the settings for the small files, only those of DeepFM on Criteo were tuned. Tables of FM with these sizes,
D = 128 and hard labels are in [the comparison of methods](#auc-against-parameters-on-small-criteo-and-avazu-files)."""


def run(settings: PaperSettings) -> None:
    for source in DATASET_NAMES:
        train_baseline(settings, lr_path(settings, source), source, model_config("lr"), 1, settings.seeds)
    for source in ("criteo", "avazu"):
        for model in (model for model in MODELS if model in settings.models):
            run_experiment(settings, f"{source}-small/{model}/pep-plan", settings.seeds)
    headline.run(settings)


def draw(settings: PaperSettings) -> list[Path]:
    found = {source: gains for source in DATASET_NAMES if (gains := _gains(settings, source))}
    if not found:
        return []
    with page_style():
        figure = new_figure(6.9, 3.0)
        panels = figure.subplots(1, len(found), squeeze=False)[0]
        for axes, (source, gains) in zip(panels, found.items(), strict=True):
            _draw_panel(axes, gains, PEP_0[source])
            axes.set_title(DATASET_NAMES[source], loc="left")
        drawn = [axes.get_legend_handles_labels() for axes in panels]
        known = {label: handle for handles, labels in drawn for handle, label in zip(handles, labels, strict=True)}
        figure.legend(known.values(), known, loc="outside lower center", ncols=2, fontsize=8)
        return list(save_figure(figure, settings.images / "pep0-and-lr"))


def _draw_panel(axes: "Axes", gains: Mapping[str, list[float]], published: Mapping[str, tuple[float, int]]) -> None:
    """Draw mean and spread of the difference to logistic regression, here and in the paper."""
    axes.axvline(0, color=COLOURS[1], linestyle=":", linewidth=1.5, label="LR")
    for at, (name, values) in enumerate(gains.items()):
        paper = published[name][0] - published["lr"][0]
        axes.plot(paper, -at, "D", color="#555555", mfc="none", markersize=7, label="PEP-0 minus LR, paper")
        several = len(values) > 1
        axes.errorbar(
            fmean(values), -at, xerr=stdev(values) if several else 0.0, fmt="o", color=COLOURS[0], capsize=3,
            mfc=COLOURS[0] if several else "white",
            label="PEP-0 minus LR, Thresher" + ("" if several else " (one seed)"),
        )  # fmt: skip
    axes.set_yticks([-at for at in range(len(gains))], [MODEL_NAMES[name] for name in gains])
    axes.set_ylim(0.6 - len(gains), 0.6)
    axes.margins(x=0.1)
    axes.set_xlabel("test AUC minus LR")
    axes.locator_params(axis="x", nbins=3)


def page(settings: PaperSettings) -> str:
    rows = []
    for source, title in DATASET_NAMES.items():
        floor = baseline_points(lr_path(settings, source))
        for name, (auc, size) in PEP_0[source].items():
            points = floor if name == "lr" else smallest(settings, source, name)
            rows.append(
                [
                    f"{title}, {'LR' if name == 'lr' else 'PEP-0 under ' + MODEL_NAMES[name]}",
                    f"{auc:.4f} @ {size:,}",
                    f"{points[0].num_parameters:,}" if points else ABSENT,
                    mean_sd(aucs_of(points)),
                    mean_sd(aucs_of(_dense(settings, source, name))) if name != "lr" else "",
                    *_against(points, floor),
                ]
            )
    if all(row[3] == ABSENT for row in rows):
        return NOT_RUN_YET
    return paragraphs(
        _precision(settings),
        picture(settings, "pep0-and-lr", "test AUC of PEP-0 minus that of logistic regression"),
        "Dots are mean and standard deviation of the paired differences; a hollow dot has one seed. Diamonds are the "
        f"paper's differences from its own logistic regression.{_lr_levels(settings)}",
        table(["", "paper", "parameters", "test AUC, Thresher", "dense", "minus LR", "minus LR, validation"], rows),
        _conclusion(settings),
        _provenance(settings),
    )


def _against(points: list[FrontierPoint], floor: list[FrontierPoint]) -> list[str]:
    """Return the differences from logistic regression on test and on validation."""
    if points is floor:
        return ["", ""]
    differences = paired_differences(points, floor)
    return [signed(differences), f"{validation_difference(points, floor):+.4f}" if differences else ABSENT]


def _lr_levels(settings: PaperSettings) -> str:
    """Compare the two logistic regressions where the data are the same."""
    aucs, published = aucs_of(baseline_points(lr_path(settings, "movielens-1m"))), PEP_0["movielens-1m"]["lr"][0]
    if not aucs:
        return ""
    return f" The AUC of LR on MovieLens-1M is {published:.4f} in the paper and {fmean(aucs):.4f} here."


def _precision(settings: PaperSettings) -> str:
    """State the sampling error of the AUC on the small test splits, which seeds do not show."""
    texts = []
    for source in ("criteo", "avazu"):
        aucs = aucs_of(baseline_points(lr_path(settings, source)))
        error = auc_error(settings, source, fmean(aucs)) if aucs else None
        if error is not None:
            rows = read_result(data_statistics.result_path(settings, source))["num_rows"]["test"]
            texts.append(f"{error:.3f} with {rows:,} test rows of {DATASET_NAMES[source]}")
    if not texts:
        return ""
    return (
        f"All seeds share one test split. The standard error of an AUC due to the test rows is {', '.join(texts)}. "
        "Models are compared on the same rows, so their differences have a smaller error, but differences well below "
        "it are not conclusive."
    )


def _conclusion(settings: PaperSettings) -> str:
    """List where the smallest tables are better than logistic regression, and where not."""
    found = _above(settings)
    better, others = ([name for name, is_better in found if is_better is wanted] for wanted in (True, False))
    texts = [f"Better than logistic regression: {', '.join(better)}."] if better else []
    return " ".join(texts + ([f"Not better: {', '.join(others)}."] if others else []))


def _above(settings: PaperSettings) -> list[tuple[str, bool]]:
    """Return model and data set, and whether PEP-0 is better than logistic regression there."""
    found = []
    for source, title in DATASET_NAMES.items():
        floor = baseline_points(lr_path(settings, source))
        for model in (model for model in PEP_0[source] if model != "lr"):
            points = smallest(settings, source, model)
            if paired_differences(points, floor):
                found.append((f"{MODEL_NAMES[model]} on {title}", is_better_method(points, floor)))
    return found


def claims(settings: PaperSettings) -> list[Claim]:
    found = _above(settings)
    statement = "PEP-0, the smallest table, is well above logistic regression"
    meaning = "The result depends on the data set and the model; the list below the table has the details."
    verdict = holds(above for _, above in found) if found else None
    first = (
        [Claim(statement, verdict, _conclusion(settings).rstrip("."), meaning if verdict == "in part" else "")]
        if verdict
        else []
    )
    return [*first, *_with_first_order(settings)]


def _with_first_order(settings: PaperSettings) -> list[Claim]:
    """Compare AutoInt with and without first-order weights, both at the paper's sizes."""
    texts, checks = [], []
    for source in ("criteo", "avazu"):
        with_lr, without = (smallest(settings, source, model) for model in ("autoint-lr", "autoint"))
        if differences := paired_differences(with_lr, without):
            texts.append(f"{DATASET_NAMES[source]} {signed(differences)}")
            checks.append(is_better_method(with_lr, without))
    statement = "First-order weights improve AutoInt's smallest tables"
    return [Claim(statement, holds(checks), f"AutoInt+LR minus AutoInt: {'; '.join(texts)}")] if texts else []


def _provenance(settings: PaperSettings) -> str:
    """Describe the results on Criteo and Avazu; the headline describes those on MovieLens-1M."""
    names = [f"{source}-small/{model}/pep-plan" for source in ("criteo", "avazu") for model in MODELS]
    return provenance(
        *(read_result(lr_path(settings, source)) for source in DATASET_NAMES),
        *(read_result(result_path(settings, name)) for name in names),
    )


def _dense(settings: PaperSettings, source: str, model: str) -> list[FrontierPoint]:
    """Return the dense model with the same network and training as the ticket."""
    name = source if source == "movielens-1m" else f"{source}-small"
    return dense_points(read_experiment(settings, f"{name}/{model}/pep-plan").values())


def smallest(settings: PaperSettings, source: str, model: str) -> list[FrontierPoint]:
    """Return the smallest points of PEP plan, one per seed; they have the size of the paper's PEP-0."""
    if source == "movielens-1m":
        points = plan_points(settings, model)
    else:
        found = read_experiment(settings, f"{source}-small/{model}/pep-plan")
        points = pruned_points(found.values(), "pep")
    least = min((point.num_parameters for point in points), default=0)
    return [point for point in points if point.num_parameters == least]


def _gains(settings: PaperSettings, source: str) -> dict[str, list[float]]:
    """Return model → test AUC of its smallest tickets minus logistic regression, by seed."""
    floor = baseline_points(lr_path(settings, source))
    found = {
        model: paired_differences(smallest(settings, source, model), floor) for model in PEP_0[source] if model != "lr"
    }
    return {model: gains for model, gains in found.items() if gains}
