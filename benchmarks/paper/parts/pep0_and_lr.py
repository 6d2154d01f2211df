"""PEP at its smallest size against logistic regression: what do a few thousand parameters add to first-order weights?

MovieLens-1M's points are the headline's smallest; Criteo and Avazu are the small files, with the paper's sizes.
"""

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
from paper.markdown import ABSENT, NOT_RUN_YET, Claim, holds, mean_sd, picture, provenance, table
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
    """Mean and spread of the gains over logistic regression, and the paper's over its own: levels do not compare."""
    axes.axvline(0, color=COLOURS[1], linestyle=":", linewidth=1.5, label="LR")
    for at, (name, values) in enumerate(gains.items()):
        told = published[name][0] - published["lr"][0]
        axes.plot(told, -at, "D", color="#555555", mfc="none", markersize=7, label="PEP-0 in the paper, against its LR")
        several = len(values) > 1
        axes.errorbar(
            fmean(values), -at, xerr=stdev(values) if several else 0.0, fmt="o", color=COLOURS[0], capsize=3,
            mfc=COLOURS[0] if several else "white", label="PEP-0, smallest tickets" + ("" if several else ", one seed"),
        )  # fmt: skip
    axes.set_yticks([-at for at in range(len(gains))], [MODEL_NAMES[name] for name in gains])
    axes.set_ylim(0.6 - len(gains), 0.6)
    axes.margins(x=0.1)
    axes.set_xlabel("test AUC minus LR's")
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
    return "\n\n".join(
        [
            "The paper's numbers for Criteo and Avazu are of the whole files, ours "
            "of the small ones: only the differences to logistic regression compare. In the paper PEP's smallest "
            "tables are well above it; AutoInt, without first-order weights, is helped by them there (AutoInt+LR). "
            "Of the settings for the small files only Criteo's DeepFM was tried with others; FM has the defaults. Its "
            "tables of these sizes 128 wide and by labels are [in the comparison of "
            "methods](#the-same-on-criteo-and-avazu-in-small).",
            _precision(settings),
            picture(settings, "pep0-and-lr", "test AUC of PEP-0 minus that of logistic regression"),
            "Dots are PEP-0, the smallest tickets, against LR with the same seeds, and their standard deviation; a "
            "hollow one has one seed. Diamonds are the paper's, against its own LR." + _floors(settings),
            table(["", "paper", "parameters", "test AUC, ours", "dense", "against LR, paired", "on validation"], rows),
            _conclusion(settings),
            _made(settings),
        ]
    )


def _against(points: list[FrontierPoint], floor: list[FrontierPoint]) -> list[str]:
    """Differences from logistic regression on test and on validation; of that itself none."""
    if points is floor:
        return ["", ""]
    differences = paired_differences(points, floor)
    return [signed(differences), f"{validation_difference(points, floor):+.4f}" if differences else ABSENT]


def _floors(settings: PaperSettings) -> str:
    """Gains are measured from logistic regression: what it comes to where the data are the paper's."""
    aucs, published = aucs_of(baseline_points(lr_path(settings, "movielens-1m"))), PEP_0["movielens-1m"]["lr"][0]
    return f" LR itself is, on MovieLens-1M, {published:.4f} there and {fmean(aucs):.4f} here." if aucs else ""


def _precision(settings: PaperSettings) -> str:
    """How far an AUC of each small test split may be from that of the whole file: seeds do not show it."""
    told = []
    for source in ("criteo", "avazu"):
        aucs = aucs_of(baseline_points(lr_path(settings, source)))
        error = auc_error(settings, source, fmean(aucs)) if aucs else None
        if error is not None:
            rows = read_result(data_statistics.result_path(settings, source))["num_rows"]["test"]
            told.append(f"{error:.3f} with {rows:,} test rows of {DATASET_NAMES[source]}")
    if not told:
        return ""
    return (
        f"All seeds share one test split. The standard error of an AUC that comes from its rows is {', '.join(told)}; "
        "models are compared on the same rows, so their differences err less, but one well below it is no finding."
    )


def _conclusion(settings: PaperSettings) -> str:
    """Where the smallest tables are above logistic regression, and where not."""
    found = _above(settings)
    above, not_above = ([name for name, is_so in found if is_so is wanted] for wanted in (True, False))
    told = [f"Above logistic regression: {', '.join(above)}."] if above else []
    return " ".join(told + ([f"Not above it: {', '.join(not_above)}."] if not_above else []))


def _above(settings: PaperSettings) -> list[tuple[str, bool]]:
    """Model and data set, and whether PEP-0 is above logistic regression there."""
    return [
        (f"{MODEL_NAMES[model]} on {title}", is_better_method(points, floor))
        for source, title in DATASET_NAMES.items()
        for model in PEP_0[source]
        if model != "lr"
        and paired_differences(
            points := smallest(settings, source, model), floor := baseline_points(lr_path(settings, source))
        )
    ]


def claims(settings: PaperSettings) -> list[Claim]:
    found = _above(settings)
    said = "Even the smallest tables are well above logistic regression"
    first = [Claim(said, holds(above for _, above in found), _conclusion(settings).rstrip("."))] if found else []
    return [*first, *_with_first_order(settings)]


def _with_first_order(settings: PaperSettings) -> list[Claim]:
    """AutoInt with first-order weights against AutoInt without, both at the paper's sizes."""
    told, found = [], []
    for source in ("criteo", "avazu"):
        with_lr, without = (smallest(settings, source, model) for model in ("autoint-lr", "autoint"))
        if differences := paired_differences(with_lr, without):
            told.append(f"{DATASET_NAMES[source]} {signed(differences)}")
            found.append(is_better_method(with_lr, without))
    said = "First-order weights help AutoInt's smallest tables"
    return [Claim(said, holds(found), f"AutoInt+LR minus AutoInt: {'; '.join(told)}")] if told else []


def _made(settings: PaperSettings) -> str:
    """Of MovieLens-1M the headline tells."""
    names = [f"{source}-small/{model}/pep-plan" for source in ("criteo", "avazu") for model in MODELS]
    return provenance(
        *(read_result(lr_path(settings, source)) for source in DATASET_NAMES),
        *(read_result(result_path(settings, name)) for name in names),
    )


def _dense(settings: PaperSettings, source: str, model: str) -> list[FrontierPoint]:
    """The dense model beside the ticket, with the same network and training."""
    name = source if source == "movielens-1m" else f"{source}-small"
    return dense_points(read_experiment(settings, f"{name}/{model}/pep-plan").values())


def smallest(settings: PaperSettings, source: str, model: str) -> list[FrontierPoint]:
    """The smallest points of PEP plan, one per seed: of the size of the paper's PEP-0."""
    if source == "movielens-1m":
        points = plan_points(settings, model)
    else:
        found = read_experiment(settings, f"{source}-small/{model}/pep-plan")
        points = pruned_points(found.values(), "pep")
    least = min((point.num_parameters for point in points), default=0)
    return [point for point in points if point.num_parameters == least]


def _gains(settings: PaperSettings, source: str) -> dict[str, list[float]]:
    """Model → its smallest tickets' test AUC minus logistic regression's, seed by seed; models without any left out."""
    floor = baseline_points(lr_path(settings, source))
    found = {
        model: paired_differences(smallest(settings, source, model), floor) for model in PEP_0[source] if model != "lr"
    }
    return {model: gains for model, gains in found.items() if gains}
