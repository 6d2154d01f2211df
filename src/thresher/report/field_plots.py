"""Figures with one bar per field: statistics of an encoded table, and what a ticket or a bundle keeps."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thresher._internal.text import byte_unit
from thresher.errors import ThresherError
from thresher.report.figures import COLOURS, new_figure, page_style, save_figure, set_count_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from thresher.data.summary import TableStatistics

MAX_FIELDS = 50
"""If a table has more fields, only the largest are drawn: more are not readable on a page."""


@dataclass(frozen=True, kw_only=True)
class KeptField:
    """The features kept of one field, and the mean size of their vectors."""

    name: str
    num_features: int
    num_kept: int
    mean_size: float
    storage_bytes: int | None = None


def plot_kept_fields(fields: Sequence[KeptField], stem: str | Path, *, title: str | None = None) -> tuple[Path, ...]:
    """Draw per field the share of features kept, their mean size, and their bytes if known."""
    if not fields:
        raise ThresherError("no field to draw: tables of this method do not keep or drop single features")
    drawn = _largest(fields, [field.num_features for field in fields])
    with_bytes = all(field.storage_bytes is not None for field in drawn)
    with page_style():
        figure = new_figure(6.9, _height(len(drawn)))
        panels = figure.subplots(1, 3 if with_bytes else 2, sharey=True)
        _bars(panels[0], [100 * field.num_kept / max(field.num_features, 1) for field in drawn], 0)
        _name_fields(panels[0], [field.name for field in drawn])
        panels[0].set_xlim(0, 100)
        panels[0].set_xlabel("features kept (%)")
        _bars(panels[1], [field.mean_size for field in drawn], 1)
        panels[1].set_xlabel("mean size of a kept feature")
        if with_bytes:
            _bars(panels[2], [float(field.storage_bytes or 0) for field in drawn], 2)
            panels[2].set_xlabel(f"stored ({_set_byte_ticks(panels[2])})")
        for panel in panels[1:]:
            panel.tick_params(axis="y", length=0)
        kept, of = sum(field.num_kept for field in fields), sum(field.num_features for field in fields)
        return _save_with_title(figure, title or f"{kept:,} of {of:,} features kept", _subset_note(fields, drawn), stem)


def plot_table(statistics: "TableStatistics", stem: str | Path, *, title: str | None = None) -> tuple[Path, ...]:
    """Draw per field the number of features and the share of unknown test values, and the frequency curve."""
    fields = statistics.fields
    drawn = _largest(fields, [field.num_features for field in fields])
    with page_style():
        figure = new_figure(6.9, _height(len(drawn)))
        grid = figure.add_gridspec(1, 3, width_ratios=(1.2, 0.8, 1.3))
        sizes = figure.add_subplot(grid[0])
        _bars(sizes, [field.num_features for field in drawn], 0)
        _name_fields(sizes, [field.name for field in drawn])
        sizes.set_xscale("log")
        sizes.set_xlim(left=0.8)
        set_count_ticks(sizes.xaxis)
        sizes.set_xlabel("features")
        unknown = figure.add_subplot(grid[1], sharey=sizes)
        shares = [100 * field.unknown_share["test"] for field in drawn]
        _bars(unknown, shares, 1)
        unknown.tick_params(axis="y", labelleft=False, length=0)
        unknown.set_xlim(0, max(1.0, 1.05 * max(shares)))
        unknown.set_xlabel("unknown in test (%)")
        _draw_curve(figure.add_subplot(grid[2]), statistics)
        rows = sum(statistics.num_rows.values())
        title = title or f"{rows:,} rows, {len(fields)} fields, {statistics.num_features:,} features"
        return _save_with_title(figure, title, _subset_note(fields, drawn), stem)


def _draw_curve(axes: "Axes", statistics: "TableStatistics") -> None:
    ranks, counts = zip(*[point for point in statistics.frequency_curve if point[1] > 0] or [(1, 1)], strict=True)
    axes.plot(ranks, counts, color=COLOURS[0], linewidth=1.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        set_count_ticks(axis)
    axes.set_xlabel("features, most frequent first")
    axes.set_ylabel("training rows")


def _bars(axes: "Axes", lengths: Sequence[float], colour: int) -> None:
    axes.barh(range(len(lengths)), lengths, height=0.7, color=COLOURS[colour])
    axes.grid(visible=False, axis="y")


def _name_fields(axes: "Axes", names: Sequence[str]) -> None:
    short = [name if len(name) <= 18 else f"{name[:17]}…" for name in names]
    axes.set_yticks(range(len(names)), short, fontsize=8 if len(names) <= 25 else 7)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first field on top


def _set_byte_ticks(axes: "Axes") -> str:
    unit, size = byte_unit(max(axes.get_xlim()) / 2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / size:g}")
    return unit


def _largest(fields: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    chosen = sorted(sorted(range(len(fields)), key=lambda at: -sizes[at])[:MAX_FIELDS])
    return [fields[at] for at in chosen]


def _subset_note(fields: Sequence[Any], drawn: Sequence[Any]) -> str:
    return f"the {len(drawn)} largest of {len(fields)} fields" if len(drawn) < len(fields) else ""


def _height(num_fields: int) -> float:
    return max(2.4, 0.75 + (0.17 if num_fields <= 25 else 0.145) * num_fields)


def _save_with_title(figure: Any, title: str, note: str, stem: str | Path) -> tuple[Path, ...]:
    text = " · ".join(filter(None, [title, note]))
    figure.suptitle(text, x=0.01, ha="left", fontsize=10, fontweight="bold")
    return save_figure(figure, stem)
