"""A dry run: what would be made of the data, from its first rows, without writing anything."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from thresher.data.encode.numeric_buckets import quantile_edges
from thresher.data.encode.row_encoder import raw_column
from thresher.data.encode.sources import DataSource
from thresher.data.encode.transforms import BROKEN, as_numbers, as_text, bag_values, dense_values, field_values
from thresher.data.read.labels import LabelValue, count_labels, read_labels
from thresher.data.read.raw_files import RawChunk
from thresher.data.schema import Field
from thresher.errors import DataError

PREVIEW_ROWS = 10_000
LABEL_VALUES = 100


@dataclass(frozen=True)
class FieldPreview:
    """One field in the first rows."""

    name: str
    column: str
    transform: str
    multi_valued: bool
    distinct: int
    missing_share: float
    rare_share: float
    """Share of the values seen fewer than `min_count` times in these rows; over all rows it will be smaller."""
    broken: int
    """Values that are no number or date where one is needed."""
    examples: tuple[tuple[str, str], ...]
    """(raw value, category) pairs, the most frequent first."""


@dataclass(frozen=True)
class Preview:
    """What `encode` would see, judged by the first rows."""

    rows_seen: int
    rows_estimated: int | None
    """Of the whole source, from its size; None where that cannot be told."""
    label: str
    positive_share: float
    """Of the rows that have a label."""
    bad_labels: int
    label_values: tuple[LabelValue, ...]
    """What the label column holds, the most frequent first, and what each value means."""
    fields: tuple[FieldPreview, ...]
    dense: tuple[tuple[str, float, float], ...]  # (name, mean, standard deviation)
    skipped: tuple[tuple[int, str], ...]
    """Bad rows (line, reason), with bad_rows = "skip"."""
    reasons: tuple[tuple[str, str], ...]
    """Why each column was taken for what it is, when that was guessed."""
    file: str | None = None
    """The file of the first rows, where they are of one."""


def preview(source: DataSource, num_rows: int = PREVIEW_ROWS, *, examples: int = 3) -> Preview:
    """Look at the first rows of a source as `encode` would."""
    plan = source.plan
    chunks, rows_read = list[RawChunk](), 0
    for chunk in source.chunks():  # as many of the first file as it takes: how much a chunk holds must not matter
        if chunks and chunk.file != chunks[0].file:
            break
        chunks.append(chunk)
        rows_read += len(chunk.frame)
        if rows_read >= num_rows:
            break
    if not rows_read:
        raise DataError("there are no rows")
    frame = pl.concat([chunk.frame for chunk in chunks]).head(num_rows)
    labels, bad = read_labels(frame, plan.label)
    estimated = None
    if chunks[-1].bytes_done and source.num_bytes:
        estimated = round(rows_read * source.num_bytes / chunks[-1].bytes_done)
    labelled = ~np.any([np.zeros(len(frame), bool), *(mask for mask, _ in bad)], axis=0)
    guess = getattr(source, "guess", None)
    return Preview(
        rows_seen=len(frame),
        rows_estimated=estimated,
        label=plan.label.column,
        positive_share=float(labels[labelled].mean()) if labelled.any() else 0.0,
        bad_labels=int((~labelled).sum()),
        label_values=_told(count_labels(raw_column(frame, plan.label.column), plan.label.positive)),
        fields=tuple(_preview_field(field, raw_column(frame, field.column), examples) for field in plan.fields),
        dense=tuple((d.name, *_spread(dense_values(d, raw_column(frame, d.column))[0])) for d in plan.dense),
        skipped=tuple(skipped for chunk in chunks for skipped in chunk.skipped),
        reasons=() if guess is None else guess.reasons,
        file=None if chunks[0].file is None else str(chunks[0].file),
    )


def _told(values: Sequence[LabelValue]) -> tuple[LabelValue, ...]:
    """The most frequent values, and however rare they are those that mean 1."""
    return tuple(value for at, value in enumerate(values) if at < LABEL_VALUES or value.meaning == 1)


def _preview_field(field: Field, column: pl.Series, examples: int) -> FieldPreview:
    if field.pooling is not None:
        column, _ = bag_values(field, column)
    if field.transform == "quantiles":
        field = replace(field, edges=quantile_edges(as_numbers(column)[0], field.num_buckets))
    raw, values = as_text(column), field_values(field, column)
    pairs = pl.DataFrame({"raw": raw, "value": values})
    counts = pairs.group_by("value").agg(pl.len().alias("count"), pl.col("raw").first())
    counts = counts.sort(["count", "value"], descending=[True, False])
    total = max(len(values), 1)
    rare = counts.filter(pl.col("count") < field.min_count)["count"].sum()
    return FieldPreview(
        name=field.name,
        column=field.column,
        transform=field.transform,
        multi_valued=field.pooling is not None,
        distinct=len(counts),
        missing_share=float((values == "").sum() / total),
        rare_share=float(rare / total),
        broken=int((values == BROKEN).sum()),
        examples=tuple((row["raw"], row["value"]) for row in counts.head(examples).to_dicts()),
    )


def _spread(numbers: np.ndarray) -> tuple[float, float]:
    present = numbers[~np.isnan(numbers)]
    return (float(present.mean()), float(present.std())) if len(present) else (0.0, 0.0)
