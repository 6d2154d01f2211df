"""What a ticket, bundle or encoded table holds of each field: counts, and figures with one bar per field."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from thresher._internal.text import byte_unit
from thresher.errors import ThresherError
from thresher.report.figures import COLOURS, new_figure, page_style, save_figure, set_count_ticks, set_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from thresher.data.schema import Schema
    from thresher.data.summary import TableStatistics

MAX_FIELDS = 50  # of more fields only the largest are drawn: more are not readable on a page


@dataclass(frozen=True, kw_only=True)
class FieldSummary:
    """What a table keeps of one field; `num_features` includes the unknown feature."""

    table: str
    field: str
    num_features: int
    num_kept: int  # features with at least one kept entry; the others are dropped
    num_parameters: int  # kept entries
    mean_size: float  # kept entries per kept feature
    storage_bytes: int | None = None  # bytes of the table in proportion to the field's kept entries


def summarise_fields(schema: "Schema", sizes: Any, table: str, storage_bytes: int | None = None) -> list[FieldSummary]:
    """Count kept features and entries of each field, given the sizes of all features `[…, N]`."""
    fields, total = [], max(int(sizes.sum()), 1)
    for field, first in zip(schema.fields, schema.field_offsets, strict=True):
        own = sizes[..., first : first + field.size]
        entries, kept = int(own.sum()), int(np.count_nonzero(own))
        fields.append(
            FieldSummary(
                table=table,
                field=field.name,
                num_features=field.size,
                num_kept=kept,
                num_parameters=entries,
                mean_size=entries / kept if kept else 0.0,
                storage_bytes=None if storage_bytes is None else round(storage_bytes * entries / total),
            )
        )
    return fields


def plot_kept_fields(fields: Sequence[FieldSummary], stem: str | Path) -> tuple[Path, ...]:
    """Draw per field the share of features kept, their mean size, and their bytes if known."""
    if not fields:
        raise ThresherError("no field to draw: tables of this method do not keep or drop single features")
    drawn = _largest(fields)
    with_bytes = all(field.storage_bytes is not None for field in drawn)
    with page_style():
        figure = new_figure(6.9, _height(len(drawn)))
        panels = figure.subplots(1, 3 if with_bytes else 2, sharey=True)
        _bars(panels[0], [100 * field.num_kept / max(field.num_features, 1) for field in drawn], 0)
        _name_fields(panels[0], [field.field for field in drawn])
        panels[0].set_xlim(0, 100)
        panels[0].set_xlabel("features kept (%)")
        _bars(panels[1], [field.mean_size for field in drawn], 1)
        panels[1].set_xlabel("mean size of a kept feature")
        if with_bytes:
            _bars(panels[2], [float(field.storage_bytes or 0) for field in drawn], 2)
            unit, size = byte_unit(max(panels[2].get_xlim()) / 2)
            panels[2].xaxis.set_major_formatter(lambda value, _: f"{value / size:g}")
            panels[2].set_xlabel(f"stored ({unit})")
        for panel in panels[1:]:
            panel.tick_params(axis="y", length=0)
        kept, of = sum(field.num_kept for field in fields), sum(field.num_features for field in fields)
        return _save(figure, f"{kept:,} of {of:,} features kept", fields, drawn, stem)


def plot_table(statistics: "TableStatistics", stem: str | Path) -> tuple[Path, ...]:
    """Draw per field the number of features and the share of unknown test values, and the frequency curve."""
    fields = statistics.fields
    drawn = _largest(fields)
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
        title = f"{rows:,} rows, {len(fields)} fields, {statistics.num_features:,} features"
        return _save(figure, title, fields, drawn, stem)


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


def _largest(fields: Sequence[Any]) -> list[Any]:
    chosen = sorted(range(len(fields)), key=lambda at: -fields[at].num_features)[:MAX_FIELDS]
    return [fields[at] for at in sorted(chosen)]


def _height(num_fields: int) -> float:
    return max(2.4, 0.75 + (0.17 if num_fields <= 25 else 0.145) * num_fields)


def _save(
    figure: "Figure", title: str, fields: Sequence[Any], drawn: Sequence[Any], stem: str | Path
) -> tuple[Path, ...]:
    note = f" · the {len(drawn)} largest of {len(fields)} fields" if len(drawn) < len(fields) else ""
    set_title(figure, f"{title}{note}")
    return save_figure(figure, stem)
