"""The figures: the frontier, and the kept parameters over a search. matplotlib is loaded only when one is drawn.

Each figure is written as PNG (to look at) and SVG (to print), at the width of a page.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from thresher.errors import ThresherError
from thresher.files import replacing_file
from thresher.report.frontier import Frontier, FrontierPoint, Split
from thresher.report.tables import byte_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
# Okabe and Ito's colours: apart for every kind of eye, and in grey print by the markers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DENSE_COLOUR = "#555555"
STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "thresher",  # the same data give the same file
    "figure.constrained_layout.use": True,
}


def plot_frontier(
    frontier: Frontier, stem: str | Path, *, split: Split = "test", title: str | None = None
) -> tuple[Path, ...]:
    """AUC against kept parameters and against bytes, both on log axes, with the dense model as a line.

    Args:
        frontier: points of one method or several (one line per label; several seeds
            of one budget become their mean and standard deviation).
        stem: where to write, without suffix.
        split: whose AUC is drawn.
        title: above the figure.

    Returns:
        The files written.
    """
    points = [point for point in frontier.points if point.auc(split) is not None]
    if not points:
        raise ThresherError(f"there is no point with a {split} AUC to draw")
    with _style():
        figure = _new_figure(6.9, 2.9)
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, size in ((left, "num_parameters"), (right, "storage_bytes")):
            _draw_lines(axes, points, size, split)
            _draw_dense(axes, frontier.dense, size, split)
            axes.set_xscale("log")
        _set_count_ticks(left.xaxis)
        left.set_ylabel(f"{split} AUC")
        left.set_xlabel("embedding parameters kept")
        unit = _set_byte_ticks(right.xaxis)
        right.set_xlabel(f"stored ({unit})")
        if frontier.dense is not None or len({point.label for point in points}) > 1:
            left.legend(loc="best", fontsize=8)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        return _save(figure, stem)


def plot_kept(
    steps: Sequence[int],
    kept: Sequence[int],
    stem: str | Path,
    *,
    planned: Sequence[int] | None = None,
    budgets: Mapping[str, int] | None = None,
    reached: Mapping[str, int] | None = None,
    title: str | None = None,
) -> tuple[Path, ...]:
    """Kept parameters over the steps of a search, on a log axis.

    Args:
        steps: where the count was taken.
        kept: the counts.
        stem: where to write, without suffix.
        planned: the counts the plan asked for at the same steps.
        budgets: budget → its number of entries; drawn as labelled lines.
        reached: budget → the step its ticket was taken at; drawn as dots.
        title: above the figure.
    """
    if not len(steps) or len(steps) != len(kept):
        raise ThresherError(
            f"{len(steps)} steps and {len(kept)} counts; a figure needs as many of each, and at least one"
        )
    with _style():
        figure = _new_figure(6.9, 2.9)
        axes = figure.subplots()
        for name, count in (budgets or {}).items():
            axes.axhline(count, color="#bbbbbb", linewidth=0.8, zorder=1)
            axes.annotate(
                name, (1, count), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points", va="center",
                fontsize=8, color=DENSE_COLOUR,
            )  # fmt: skip
        if planned is not None:
            axes.plot(steps, planned, color=COLOURS[1], linestyle="--", linewidth=1.2, label="plan")
        axes.plot(steps, kept, color=COLOURS[0], linewidth=1.6, label="kept")
        if reached and budgets:
            shown = [(step, budgets[name]) for name, step in reached.items() if name in budgets]
            axes.plot(*zip(*shown, strict=True), "o", color=COLOURS[0], markersize=5, label="ticket")
        axes.set_yscale("log")
        _set_count_ticks(axes.yaxis)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlabel("search step")
        axes.set_ylabel("parameters kept")
        axes.legend(loc="upper right", fontsize=8)
        if title:
            axes.set_title(title, loc="left", fontweight="bold", fontsize=10)
        return _save(figure, stem)


def _draw_lines(axes: "Axes", points: Sequence[FrontierPoint], size: str, split: Split) -> None:
    for i, label in enumerate(dict.fromkeys(point.label for point in points)):
        seeds: dict[str, list[tuple[float, float]]] = {}
        for point in points:
            if point.label == label:
                at = (float(getattr(point, size)), float(point.auc(split) or 0.0))
                seeds.setdefault(point.budget or str(point.num_parameters), []).append(at)
        line = sorted((fmean(x for x, _ in at), fmean(y for _, y in at), _spread(at)) for at in seeds.values())
        sizes, aucs, spreads = zip(*line, strict=True)
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        axes.plot(sizes, aucs, color=colour, marker=marker, markersize=4.5, linewidth=1.5, label=label)
        if any(spreads):
            axes.errorbar(sizes, aucs, yerr=spreads, fmt="none", ecolor=colour, elinewidth=1, capsize=2.5)


def _spread(at: Sequence[tuple[float, float]]) -> float:
    return stdev(y for _, y in at) if len(at) > 1 else 0.0


def _draw_dense(axes: "Axes", dense: FrontierPoint | None, size: str, split: Split) -> None:
    auc = None if dense is None else dense.auc(split)
    if dense is None or auc is None:
        return
    axes.axhline(auc, color=DENSE_COLOUR, linestyle=(0, (4, 3)), linewidth=1, zorder=1)
    amount = getattr(dense, size)
    axes.plot([amount], [auc], marker="*", markersize=9, color=DENSE_COLOUR, linestyle="none", label="dense", zorder=3)


def _set_count_ticks(axis: "Axis", write: Callable[[float], str] | None = None) -> None:
    """Ticks at 1, 2, 5 of each decade, or at decades alone where there are many; written short."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(base=10, subs=(1.0,) if high > 500 * low else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: (write or _short_count)(value)))
    axis.set_minor_formatter(NullFormatter())


def _set_byte_ticks(axis: "Axis") -> str:
    """Ticks in one unit, which is returned for the axis's name: each tick with its own would not fit."""
    unit, size = byte_unit(max(axis.get_view_interval()) / 20)
    _set_count_ticks(axis, lambda value: f"{value / size:,g}")
    return unit


def _short_count(value: float) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _style() -> AbstractContextManager[None]:
    import matplotlib

    return matplotlib.rc_context(STYLE)  # type: ignore[arg-type]


def _new_figure(width: float, height: float) -> "Figure":
    """A figure of its own, outside pyplot: no window, no global state, no backend to choose."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def _save(figure: "Figure", stem: str | Path) -> tuple[Path, ...]:
    stem, written = Path(stem), []
    if stem.suffix.removeprefix(".") in FORMATS:  # who names one of the files means both
        stem = stem.with_suffix("")
    for suffix in FORMATS:
        path = stem.with_name(f"{stem.name}.{suffix}")
        metadata = {"Date": None} if suffix == "svg" else None
        with replacing_file(path) as beside:
            figure.savefig(beside, format=suffix, dpi=200, metadata=metadata)
        written.append(path)
    return tuple(written)
