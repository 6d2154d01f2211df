"""Many methods in one figure and one table: AUC against parameters and against bytes, mean and spread over seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from thresher.errors import ThresherError
from thresher.report.figures import new_figure, page_style, save_figure, set_byte_ticks, set_count_ticks
from thresher.report.frontier import FrontierPoint, Split
from thresher.report.plots import mean_line
from thresher.report.tables import ABSENT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS = "pep"
COLOURS = (
    "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C564B", "#7F7F7F", "#BCBD22", "#17BECF", "#9467BD",
    "#2CA02C", "#FF9896", "#AEC7E8", "#C5B0D5", "#C49C94", "#393B79", "#637939", "#843C39",
)  # fmt: skip
MARKERS = ("s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d")


def plot_comparison(
    points: Sequence[FrontierPoint],
    stem: str | Path,
    *,
    floor: Sequence[FrontierPoint] = (),
    split: Split = "test",
    title: str | None = None,
) -> tuple[Path, ...]:
    """The frontier of every method, one line each, PEP in front.

    Args:
        points: of one model; the label is the method.
        floor: the embedding-free model's points, drawn as a line.
        stem: where to write, without suffix.
        title: above the figure.
    """
    sized = [point for point in points if point.num_parameters > 0 and point.auc(split) is not None]
    if not sized:
        raise ThresherError(f"there is no point with a {split} AUC to draw")
    with page_style():
        figure = new_figure(9.0, 4.2)
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, size in ((left, "num_parameters"), (right, "storage_bytes")):
            _draw_methods(axes, sized, size, split)
            if floor:
                level = fmean(auc for point in floor if (auc := point.auc(split)) is not None)
                axes.axhline(level, color="#555555", linestyle=":", linewidth=1, label="lr, no embedding")
            axes.set_xscale("log")
        set_count_ticks(left.xaxis)
        left.set_ylabel(f"{split} AUC")
        left.set_xlabel("embedding parameters")
        right.set_xlabel(f"stored ({set_byte_ticks(right.xaxis)})")
        right.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        return save_figure(figure, stem)


def comparison_table(points: Sequence[FrontierPoint], budgets: Sequence[str]) -> str:
    """Test AUC (mean ± sd over seeds) of each method at each budget, as plain text; the best of a budget is starred."""
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
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def _by_budget(points: Sequence[FrontierPoint]) -> Mapping[tuple[str, str], list[float]]:
    cells: dict[tuple[str, str], list[float]] = {}
    for point in points:
        if point.budget is not None and point.test_auc is not None:
            cells.setdefault((point.label, point.budget), []).append(point.test_auc)
    return cells


def _mean_and_spread(aucs: Sequence[float]) -> str:
    return f"{fmean(aucs):.4f}" + (f" ± {stdev(aucs):.4f}" if len(aucs) > 1 else "")


def _draw_methods(axes: "Axes", points: Sequence[FrontierPoint], size: str, split: Split) -> None:
    aucs_of: dict[str, list[float]] = {}
    for point in points:
        aucs_of.setdefault(point.label, []).append(point.auc(split) or 0.0)
    # the legend in the order of the lines, PEP before all
    labels = sorted(aucs_of, key=lambda label: (label != OURS, -fmean(aucs_of[label])))
    for at, label in enumerate(labels):
        line = mean_line([point for point in points if point.label == label], size, split)
        sizes, aucs, spreads = zip(*line, strict=True)
        ours = label == OURS
        colour = "#0072B2" if ours else COLOURS[at % len(COLOURS)]
        axes.errorbar(
            sizes, aucs, yerr=spreads if any(spreads) else None, color=colour, capsize=2, elinewidth=0.8,
            marker="o" if ours else MARKERS[at % len(MARKERS)], markersize=5 if ours else 3.5,
            linewidth=2.2 if ours else 1.0, label=label, zorder=3 if ours else 2,
        )  # fmt: skip
