"""Figure and table of a comparison: AUC of each method against parameters and bytes, mean and spread over seeds."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from thresher._internal.text import align_columns
from thresher.errors import ThresherError
from thresher.report.figures import new_figure, page_style, save_figure, set_byte_ticks, set_count_ticks
from thresher.report.frontier import ABSENT, FrontierPoint
from thresher.report.plots import mean_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HIGHLIGHTED = "pep"
MARKER_HEIGHT = 0.03
"""Height of a marker as a share of the figure's height."""


@dataclass(frozen=True)
class Look:
    """How a method is drawn in every figure: families share a colour, members differ in marker and dash.

    Markers on a dashed line are hollow, so that methods differ in grey print, too.
    """

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
    "l1-projection": Look("#E69F00", "P"),
    "uniform": Look("#222222", "s"),
    "dense": Look("#222222", "s"),
    "quantised": Look("#222222", "d", "--"),
    "mde": Look("#009E73", "X"),
    "mgqe": Look("#8FBC3F", "p"),
    "darts-emb": Look("#CC79A7", "<"),
    "autodim": Look("#CC79A7", ">", "--"),
    "nis": Look("#7B3F9E", "h"),
    "dnis": Look("#7B3F9E", "H", "--"),
    "hash": Look("#8C564B", "D"),
    "double-hash": Look("#8C564B", "s", "--"),
    "quotient-remainder": Look("#8C564B", "^", ":"),
}
OTHER_LOOKS = tuple(Look(colour, marker, "-.") for colour, marker in zip(
    ("#17BECF", "#BCBD22", "#FF9896", "#637939", "#393B79", "#843C39"), ("8", "d", "P", "X", "^", "v"), strict=True
))  # fmt: skip
"""For user-defined methods, in alphabetical order."""


def plot_comparison(
    points: Sequence[FrontierPoint],
    stem: str | Path,
    *,
    floor: Sequence[FrontierPoint] = (),
    title: str | None = None,
    by_bytes_alone: Collection[str] = (),
    marks: Sequence[FrontierPoint] = (),
    depth: float | None = None,
) -> tuple[Path, ...]:
    """Draw test AUC against size, one line per method, PEP in front.

    Args:
        points: points of one model; the label is the method.
        floor: points of logistic regression without an embedding, drawn as a horizontal line.
        stem: output path without suffix.
        title: title of the figure.
        by_bytes_alone: methods drawn only against bytes, not against parameters.
        marks: published results, each drawn as a single marker.
        depth: cut the y axis at this multiple of PEP's AUC range below PEP; a note names the methods below.
    """
    sized = [point for point in points if point.num_parameters > 0 and point.test_auc is not None]
    if not sized:
        raise ThresherError("no point has a test AUC to draw")
    with page_style():
        figure = new_figure(9.0, 4.2)
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, size in ((left, "num_parameters"), (right, "storage_bytes")):
            left_out = by_bytes_alone if axes is left else ()
            _draw_methods(axes, [point for point in sized if point.label not in left_out], size)
            if floor:
                level = fmean(auc for point in floor if (auc := point.test_auc) is not None)
                axes.axhline(level, color="#555555", linestyle=":", linewidth=1, label="LR, no embedding")
            axes.set_xscale("log")
        for mark, shape in zip(marks, cycle("*Pv^")):
            left.plot(
                [mark.num_parameters], [mark.test_auc], shape, color="#C00000", mfc="white", markersize=8, zorder=4,
                label=mark.label,
            )  # fmt: skip
        if depth is not None and (lowest := _lower_limit(sized, depth)) is not None:
            left.set_ylim(bottom=lowest)
            if below := _methods_below(sized, lowest):
                note = f"Below the axis: {', '.join(below)}"
                figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color="#555555", wrap=True)
        set_count_ticks(left.xaxis)
        left.set_ylabel("test AUC")
        left.set_xlabel("embedding parameters")
        right.set_xlabel(f"stored ({set_byte_ticks(right.xaxis)})")
        known = dict(zip(*reversed(right.get_legend_handles_labels()), strict=True))
        known |= {
            label: handle for handle, label in zip(*left.get_legend_handles_labels(), strict=True) if label not in known
        }
        right.legend(known.values(), known, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, handlelength=2.6)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        return save_figure(figure, stem)


def comparison_table(points: Sequence[FrontierPoint], budgets: Sequence[str]) -> str:
    """Test AUC (mean ± standard deviation over seeds) by method and budget as text; the best of a budget has a star."""
    cells = _by_budget(points)
    best = {
        budget: max((fmean(aucs) for (_, at), aucs in cells.items() if at == budget), default=None)
        for budget in budgets
    }
    rows = [["method", *budgets]]
    for method in dict.fromkeys(point.label for point in points):
        row = [method]
        for budget in budgets:
            aucs = cells.get((method, budget))
            star = "*" if aucs and fmean(aucs) == best[budget] else " "
            row.append(ABSENT if not aucs else f"{_mean_and_spread(aucs)}{star}")
        rows.append(row)
    return align_columns(rows, [False] * len(rows[0]))


def _by_budget(points: Sequence[FrontierPoint]) -> Mapping[tuple[str, str], list[float]]:
    cells: dict[tuple[str, str], list[float]] = {}
    for point in points:
        if point.budget is not None and point.test_auc is not None:
            cells.setdefault((point.label, point.budget), []).append(point.test_auc)
    return cells


def _mean_and_spread(aucs: Sequence[float]) -> str:
    return f"{fmean(aucs):.4f}" + (f" ± {stdev(aucs):.4f}" if len(aucs) > 1 else "")


def _draw_methods(axes: "Axes", points: Sequence[FrontierPoint], size: str) -> None:
    aucs_of: dict[str, list[float]] = {}
    for point in points:
        aucs_of.setdefault(point.label, []).append(point.test_auc or 0.0)
    # the legend lists the lines from top to bottom, PEP first
    labels = sorted(aucs_of, key=lambda label: (label != HIGHLIGHTED, -fmean(aucs_of[label])))
    looks = _looks(labels)
    for label in labels:
        line = mean_line([point for point in points if point.label == label], size, "test")
        sizes, aucs, spreads = zip(*line, strict=True)
        is_pep, look = label == HIGHLIGHTED, looks[label]
        axes.errorbar(
            sizes, aucs, yerr=spreads if any(spreads) else None, color=look.colour, capsize=2, elinewidth=0.8,
            marker=look.marker, mfc=look.face_colour, linestyle=look.dash, markersize=5.5 if is_pep else 5,
            linewidth=2.2 if is_pep else 1.1, label=label, zorder=3 if is_pep else 2 if look.dash == "-" else 4,
        )  # fmt: skip


def _looks(labels: Sequence[str]) -> Mapping[str, Look]:
    others = sorted(label for label in labels if label not in LOOKS)
    return {**LOOKS, **{label: OTHER_LOOKS[at % len(OTHER_LOOKS)] for at, label in enumerate(others)}}


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
    return {
        label: [auc for _, auc, _ in mean_line([p for p in points if p.label == label], "num_parameters", "test")]
        for label in sorted({point.label for point in points})
    }


def _methods_below(points: Sequence[FrontierPoint], lowest: float) -> list[str]:
    """Methods with means below the lower limit of the y axis, and their lowest mean."""
    below = []
    for label, means in _means(points).items():
        if min(means) < lowest:
            part = "entirely, " if max(means) < lowest else ""
            below.append(f"{label} ({part}down to {min(means):.4f})")
    return below
