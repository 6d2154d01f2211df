"""Figures of runs and comparisons: AUC against size, and the kept parameters over a search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from thresher.errors import ThresherError
from thresher.report.figures import (
    COLOURS,
    MARKERS,
    new_figure,
    page_style,
    save_figure,
    set_byte_ticks,
    set_count_ticks,
    set_title,
)
from thresher.report.frontier import Frontier, FrontierPoint, Split, mean_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DENSE_COLOUR = "#555555"
LABEL_HEIGHT = 0.06  # of a text label, as a share of the axis
HIGHLIGHTED = "pep"


@dataclass(frozen=True)
class Look:
    """How a method is drawn: families share a colour; members differ in marker and dash, so also in grey print."""

    colour: str
    marker: str
    dash: str = "-"

    @property
    def face_colour(self) -> str:
        return self.colour if self.dash == "-" else "none"


LOOKS: Mapping[str, Look] = {
    "pep": Look("#0072B2", "o"),
    "pep, int8": Look("#0072B2", "D", "--"),
    "pep-decay": Look("#56B4E9", "s", "--"),
    "iterative-magnitude": Look("#D55E00", "^"),
    "gradual-magnitude": Look("#D55E00", "v", "--"),
    "magnitude": Look("#D55E00", "D", ":"),
    "post-training": Look("#E69F00", "h", "--"),
    "l1-projection": Look("#E69F00", "P"),
    "uniform": Look("#222222", "s"),
    "dense": Look("#222222", "s"),
    "quantized": Look("#222222", "d", "--"),
    "mde": Look("#009E73", "X"),
    "mgqe": Look("#8FBC3F", "p"),
    "darts-emb": Look("#CC79A7", "<"),
    "autodim": Look("#CC79A7", ">", "--"),
    "nis": Look("#7B3F9E", "h"),
    "dnis": Look("#7B3F9E", "H", "--"),
    "frequent": Look("#E69F00", "s", ":"),
    "hash": Look("#8C564B", "D"),
    "double-hash": Look("#8C564B", "s", "--"),
    "quotient-remainder": Look("#8C564B", "^", ":"),
}
OTHER_LOOKS = tuple(Look(colour, marker, "-.") for colour, marker in zip(
    ("#17BECF", "#BCBD22", "#FF9896", "#637939", "#393B79", "#843C39"), ("8", "d", "P", "X", "^", "v"), strict=True
))  # fmt: skip
"""For user-defined methods, in alphabetical order."""


def plot_frontier(
    frontier: Frontier, stem: str | Path, *, split: Split = "test", title: str | None = None
) -> tuple[Path, ...]:
    """Draw AUC against kept parameters and against bytes, one line per label.

    Horizontal lines are the dense model, with a band of one standard error of its AUC, and the model without an
    embedding. Several seeds of one budget are drawn as mean and standard deviation, models that were still improving
    with hollow markers. Returns the files `<stem>.png` and `.svg`.
    """
    points = [point for point in frontier.points if point.auc(split) is not None]
    if not points:
        raise ThresherError(f"no point has a {split} AUC to draw")
    with page_style():
        figure = new_figure(6.9, 3.2)
        left, right = figure.subplots(1, 2, sharey=True)
        noise = frontier.metadata.get("auc_standard_error", {}).get(split)
        for axes, size in ((left, "num_parameters"), (right, "storage_bytes")):
            _draw_lines(axes, points, size, split)
            _draw_dense(axes, frontier.dense, size, split)
            _draw_noise(axes, None if frontier.dense is None else frontier.dense.auc(split), noise)
            _draw_floor(axes, None if frontier.floor is None else frontier.floor.auc(split))
        _label_axes(left, right, f"{split} AUC", "embedding parameters kept")
        if frontier.dense is not None or len({point.label for point in points}) > 1:
            left.legend(loc="best", fontsize=7)
        set_title(figure, title or default_title(frontier, split))
        return save_figure(figure, stem)


def default_title(frontier: Frontier, split: Split) -> str:
    """Data set, model and seeds, as far as they are known."""
    metadata, num_seeds = frontier.metadata, max([point.num_seeds or 1 for point in frontier.points])
    seeds = f"mean of {num_seeds} seeds" if num_seeds > 1 else f"seed {metadata['seed']}" if "seed" in metadata else ""
    parts = [str(metadata.get("source", "")), str(metadata.get("model", "")), f"{split} AUC", seeds]
    return " · ".join(filter(None, parts))


def plot_comparison(
    points: Sequence[FrontierPoint],
    stem: str | Path,
    *,
    floor: Sequence[FrontierPoint] = (),
    noise: float | None = None,
    title: str | None = None,
) -> tuple[Path, ...]:
    """Draw test AUC against parameters and bytes, one line per method (label), PEP in front.

    Models that did not converge have a circle around them.

    Args:
        floor: points of logistic regression without an embedding, drawn as a horizontal line.
        noise: standard error of the test AUC, drawn as a band around the best mean.
    """
    with page_style():
        figure = draw_methods(points, points, floor)
        means = [mean for mean in mean_points(points) if mean.test_auc is not None]
        best = max((mean.test_auc or 0.0 for mean in means), default=None)
        for axes, size in zip(figure.axes, ("num_parameters", "storage_bytes"), strict=True):
            _draw_noise(axes, best, noise)
            _mark_unfinished(axes, [mean for mean in means if mean.still_improving], size)
        return save_methods(figure, stem, title)


def draw_methods(
    by_parameters: Sequence[FrontierPoint], by_bytes: Sequence[FrontierPoint], floor: Sequence[FrontierPoint]
) -> "Figure":
    """A figure with two panels: points against their parameters and against their bytes."""
    figure = new_figure(9.0, 4.2)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, points, size in zip(panels, (by_parameters, by_bytes), ("num_parameters", "storage_bytes"), strict=True):
        sized = [point for point in points if point.num_parameters > 0 and point.test_auc is not None]
        if not sized:
            raise ThresherError("no point has a test AUC to draw")
        _draw_method_lines(axes, sized, size)
        if floor:
            level = fmean(auc for point in floor if (auc := point.test_auc) is not None)
            axes.axhline(level, color=DENSE_COLOUR, linestyle=":", linewidth=1, label="LR, no embedding")
    return figure


def save_methods(figure: "Figure", stem: str | Path, title: str | None) -> tuple[Path, ...]:
    """Label and save a figure of `draw_methods`; the legend lists what the right panel shows."""
    left, right = figure.axes
    _label_axes(left, right, "test AUC", "embedding parameters")
    right.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, handlelength=2.6)
    set_title(figure, title)
    return save_figure(figure, stem)


def plot_kept(
    steps: Sequence[int], kept: Sequence[int], stem: str | Path, *, budgets: Mapping[str, int]
) -> tuple[Path, ...]:
    """Draw the kept parameters over the steps of a search; each budget and its parameters are a labelled line."""
    with page_style():
        figure = new_figure(6.9, 2.9)
        axes = figure.subplots()
        for count in budgets.values():
            axes.axhline(count, color="#bbbbbb", linewidth=0.8, zorder=1)
        counts = [max(1, count) for count in (*kept, *budgets.values())]
        for names, place in label_places(budgets, LABEL_HEIGHT * log(max(counts) / min(counts))):
            axes.annotate(
                names, (1, place), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points", va="center",
                fontsize=8, color=DENSE_COLOUR,
            )  # fmt: skip
        axes.plot(steps, kept, color=COLOURS[0], linewidth=1.6, label="kept")
        axes.set_yscale("log")
        set_count_ticks(axes.yaxis)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlabel("search step")
        axes.set_ylabel("parameters kept")
        axes.legend(loc="upper right", fontsize=8)
        return save_figure(figure, stem)


def label_places(counts: Mapping[str, int], apart: float) -> list[tuple[str, float]]:
    """Labels and their positions on a log axis; labels closer than `apart` share a position."""
    places: list[list[str]] = []
    for name in sorted(counts, key=lambda name: -counts[name]):
        if places and log(counts[places[-1][0]]) - log(counts[name]) < apart:
            places[-1].append(name)
        else:
            places.append([name])
    return [(", ".join(names), exp(fmean(log(counts[name]) for name in names))) for names in places]


def _draw_lines(axes: "Axes", points: Sequence[FrontierPoint], size: str, split: Split) -> None:
    for i, label in enumerate(dict.fromkeys(point.label for point in points)):
        line = mean_line([point for point in points if point.label == label], size, split)
        sizes, aucs, spreads = zip(*line, strict=True)
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        axes.plot(sizes, aucs, color=colour, marker=marker, markersize=4.5, linewidth=1.5, label=label)
        if any(spreads):
            axes.errorbar(sizes, aucs, yerr=spreads, fmt="none", ecolor=colour, elinewidth=1, capsize=2.5)
    _mark_unfinished(axes, [point for point in points if point.still_improving], size, split)
    if len({point.label for point in points}) == 1:  # values of several lines would overlap
        for amount, auc, _ in mean_line(points, size, split):
            axes.annotate(
                f"{auc:.4f}", (amount, auc), (0, 5), textcoords="offset points", ha="center", fontsize=7,
                color=DENSE_COLOUR,
            )  # fmt: skip


def _mark_unfinished(axes: "Axes", points: Sequence[FrontierPoint], size: str, split: Split = "test") -> None:
    """A circle around each model that was still improving when its training ended."""
    if points:
        sizes, aucs = [getattr(point, size) for point in points], [point.auc(split) or 0.0 for point in points]
        axes.plot(
            sizes, aucs, linestyle="none", marker="o", markersize=10, mfc="none", color=DENSE_COLOUR,
            label="not converged", zorder=5,
        )  # fmt: skip


def _draw_noise(axes: "Axes", auc: float | None, noise: float | None) -> None:
    """A band of one standard error, so that differences within the noise do not fill the axis."""
    if auc is not None and noise:
        axes.axhspan(auc - noise, auc + noise, color="#eeeeee", zorder=0, label=f"± {noise:.4f} standard error")


def _draw_floor(axes: "Axes", auc: float | None) -> None:
    if auc is not None:
        axes.axhline(auc, color=DENSE_COLOUR, linestyle=":", linewidth=1, label="no embedding", zorder=1)


def mean_line(points: Sequence[FrontierPoint], size: str, split: Split) -> list[tuple[float, float, float]]:
    """Size, mean AUC over seeds and its standard deviation of each budget; smallest first."""
    seeds: dict[str, list[FrontierPoint]] = {}
    for point in points:
        seeds.setdefault(point.budget or f"{point.num_parameters} wide", []).append(point)
    line = []
    for of_budget in seeds.values():
        aucs = [point.auc(split) or 0.0 for point in of_budget]
        spread = stdev(aucs) if len(aucs) > 1 else (getattr(of_budget[0], f"{split}_auc_sd") or 0.0)
        line.append((fmean(float(getattr(point, size)) for point in of_budget), fmean(aucs), spread))
    return sorted(line)


def _draw_dense(axes: "Axes", dense: FrontierPoint | None, size: str, split: Split) -> None:
    auc = None if dense is None else dense.auc(split)
    if dense is None or auc is None:
        return
    axes.axhline(auc, color=DENSE_COLOUR, linestyle=(0, (4, 3)), linewidth=1, zorder=1)
    amount = getattr(dense, size)
    axes.plot([amount], [auc], marker="*", markersize=9, color=DENSE_COLOUR, linestyle="none", label="dense", zorder=3)


def _draw_method_lines(axes: "Axes", points: Sequence[FrontierPoint], size: str) -> None:
    aucs_of: dict[str, list[float]] = {}
    for point in points:
        aucs_of.setdefault(point.label, []).append(point.test_auc or 0.0)
    # the legend lists the lines from top to bottom, PEP first
    labels = sorted(aucs_of, key=lambda label: (label != HIGHLIGHTED, -fmean(aucs_of[label])))
    others = sorted(label for label in labels if label not in LOOKS)
    looks = {**LOOKS, **{label: OTHER_LOOKS[at % len(OTHER_LOOKS)] for at, label in enumerate(others)}}
    for label in labels:
        line = mean_line([point for point in points if point.label == label], size, "test")
        sizes, aucs, spreads = zip(*line, strict=True)
        is_pep, look = label == HIGHLIGHTED, looks[label]
        axes.errorbar(
            sizes, aucs, yerr=spreads if any(spreads) else None, color=look.colour, capsize=2, elinewidth=0.8,
            marker=look.marker, mfc=look.face_colour, linestyle=look.dash, markersize=5.5 if is_pep else 5,
            linewidth=2.2 if is_pep else 1.1, label=label, zorder=3 if is_pep else 2 if look.dash == "-" else 4,
        )  # fmt: skip


def _label_axes(left: "Axes", right: "Axes", quality: str, parameters: str) -> None:
    for axes in (left, right):
        axes.set_xscale("log")
    set_count_ticks(left.xaxis)
    left.set_ylabel(quality)
    left.set_xlabel(parameters)
    right.set_xlabel(f"stored ({set_byte_ticks(right.xaxis)})")
