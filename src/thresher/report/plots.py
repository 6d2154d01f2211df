"""Figures of a run: the frontier, and the kept parameters over a search."""

from collections.abc import Mapping, Sequence
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
)
from thresher.report.frontier import Frontier, FrontierPoint, Split

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DENSE_COLOUR = "#555555"
LABEL_HEIGHT = 0.06
"""Height of a text label as a share of the axis."""


def plot_frontier(
    frontier: Frontier, stem: str | Path, *, split: Split = "test", title: str | None = None
) -> tuple[Path, ...]:
    """Draw AUC against kept parameters and against bytes, on log axes; the dense model is a horizontal line.

    Args:
        frontier: points of one or several methods: one line per label, several seeds of one budget as mean and
            standard deviation.
        stem: output path without suffix.
        split: the split whose AUC is drawn.
        title: title of the figure.

    Returns:
        The files written.
    """
    points = [point for point in frontier.points if point.auc(split) is not None]
    if not points:
        raise ThresherError(f"no point has a {split} AUC to draw")
    with page_style():
        figure = new_figure(6.9, 2.9)
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, size in ((left, "num_parameters"), (right, "storage_bytes")):
            _draw_lines(axes, points, size, split)
            _draw_dense(axes, frontier.dense, size, split)
            axes.set_xscale("log")
        set_count_ticks(left.xaxis)
        left.set_ylabel(f"{split} AUC")
        left.set_xlabel("embedding parameters kept")
        unit = set_byte_ticks(right.xaxis)
        right.set_xlabel(f"stored ({unit})")
        if frontier.dense is not None or len({point.label for point in points}) > 1:
            left.legend(loc="best", fontsize=8)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        return save_figure(figure, stem)


def plot_kept(
    steps: Sequence[int], kept: Sequence[int], stem: str | Path, *, budgets: Mapping[str, int]
) -> tuple[Path, ...]:
    """Draw the kept parameters over the steps of a search, on a log axis.

    Args:
        steps: search steps.
        kept: kept parameters at these steps.
        stem: output path without suffix.
        budgets: budget → its number of parameters, drawn as a labelled line.
    """
    if not len(steps) or len(steps) != len(kept):
        raise ThresherError(
            f"got {len(steps)} steps and {len(kept)} counts; expected the same number of each, and at least one"
        )
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


def mean_line(points: Sequence[FrontierPoint], size: str, split: Split) -> list[tuple[float, float, float]]:
    """Size, mean AUC over seeds and its standard deviation of each budget; smallest first."""
    seeds: dict[str, list[FrontierPoint]] = {}
    for point in points:
        seeds.setdefault(point.budget or f"{point.num_parameters} wide", []).append(point)
    line = []
    for of_budget in seeds.values():
        aucs = [point.auc(split) or 0.0 for point in of_budget]
        spread = stdev(aucs) if len(aucs) > 1 else 0.0
        line.append((fmean(float(getattr(point, size)) for point in of_budget), fmean(aucs), spread))
    return sorted(line)


def _draw_dense(axes: "Axes", dense: FrontierPoint | None, size: str, split: Split) -> None:
    auc = None if dense is None else dense.auc(split)
    if dense is None or auc is None:
        return
    axes.axhline(auc, color=DENSE_COLOUR, linestyle=(0, (4, 3)), linewidth=1, zorder=1)
    amount = getattr(dense, size)
    axes.plot([amount], [auc], marker="*", markersize=9, color=DENSE_COLOUR, linestyle="none", label="dense", zorder=3)
