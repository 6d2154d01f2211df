"""Figures of methods with what only the reproduction shows: published results, and a lower limit of the AUC axis."""

from collections.abc import Collection, Sequence
from itertools import chain, cycle
from pathlib import Path

from thresher.report.figures import page_style
from thresher.report.frontier import FrontierPoint
from thresher.report.plots import HIGHLIGHTED, draw_methods, mean_line, save_methods

MARKER_HEIGHT = 0.03
"""Height of a marker as a share of the figure's height."""


def plot_methods(
    points: Sequence[FrontierPoint],
    stem: str | Path,
    *,
    depth: float,
    title: str | None = None,
    floor: Sequence[FrontierPoint] = (),
    by_bytes_alone: Collection[str] = (),
    marks: Sequence[FrontierPoint] = (),
) -> tuple[Path, ...]:
    """Draw a figure like `plot_comparison`.

    Args:
        depth: cut the y axis at this multiple of PEP's AUC range below PEP; a note names the methods below.
        by_bytes_alone: methods drawn only against bytes, not against parameters.
        marks: published results, each drawn as a single marker.
    """
    with page_style():
        figure = draw_methods([point for point in points if point.label not in by_bytes_alone], points, floor)
        left, right = figure.axes
        for mark, shape in zip(marks, cycle("*Pv^")):
            look = {"color": "#C00000", "mfc": "white", "markersize": 8, "zorder": 4, "label": mark.label}
            left.plot([mark.num_parameters], [mark.test_auc], shape, **look)
            right.plot([], [], shape, **look)  # for the legend
        if (lowest := _lower_limit(points, depth)) is not None:
            left.set_ylim(bottom=lowest)
            if below := _methods_below(points, lowest):
                note = f"Below the axis: {', '.join(below)}"
                figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color="#555555", wrap=True)
        return save_methods(figure, stem, title)


def _lower_limit(points: Sequence[FrontierPoint], depth: float) -> float | None:
    """The lower limit of the y axis, moved so that it cuts no marker; None if PEP has fewer than two different AUCs."""
    aucs = [auc for point in points if point.label == HIGHLIGHTED and (auc := point.test_auc) is not None]
    if not aucs or max(aucs) == min(aucs):
        return None
    means = sorted(chain.from_iterable(_means(points).values()), reverse=True)
    lowest = max(min(aucs) - depth * (max(aucs) - min(aucs)), means[-1] - 0.001)
    room = MARKER_HEIGHT * (means[0] - lowest)
    for mean in means:  # from the top: a marker at the limit moves it, perhaps onto the next
        lowest = mean - room if abs(mean - lowest) < room else lowest
    return lowest


def _means(points: Sequence[FrontierPoint]) -> dict[str, list[float]]:
    """Method → mean test AUC at each size."""
    measured = [point for point in points if point.num_parameters > 0 and point.test_auc is not None]
    return {
        label: [auc for _, auc, _ in mean_line([p for p in measured if p.label == label], "num_parameters", "test")]
        for label in sorted({point.label for point in measured})
    }


def _methods_below(points: Sequence[FrontierPoint], lowest: float) -> list[str]:
    """Methods with means below the lower limit of the y axis, and their lowest mean."""
    below = []
    for label, means in _means(points).items():
        if min(means) < lowest:
            part = "entirely, " if max(means) < lowest else ""
            below.append(f"{label} ({part}down to {min(means):.4f})")
    return below
