"""Summaries for display: of raw rows before encoding (`preview`), and of an encoded table (`table_statistics`)."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.row_warnings import expected_unknown_share, unknown_shares
from thresher.data.encode.sources import DataSource
from thresher.data.encode.transforms import BROKEN, bag_values, dense_values, field_values, quantile_edges
from thresher.data.encode.user_files import FilesSource
from thresher.data.read.column_values import LabelValue, as_numbers, as_text, count_labels, raw_column, read_labels
from thresher.data.read.sample_rows import SAMPLE_ROWS, Sample
from thresher.data.schema import SPLITS, DenseColumn, Field
from thresher.data.table import EncodedTable
from thresher.errors import DataError

LABEL_VALUES, NUM_EXAMPLES = 100, 3
TAIL_EDGES = (1, 10, 100, 1_000, 10_000, 100_000)


@dataclass(frozen=True)
class FieldPreview:
    """A field in the rows of a preview."""

    name: str
    column: str
    transform: str
    multi_valued: bool
    distinct: int
    missing_share: float
    rare_share: float  # of the values that occur fewer than `min_count` times in these rows
    unknown_share: float | None  # expected in validation if training has no unknown value; else None
    broken: int  # values that should be a number or a date and are not
    examples: tuple[tuple[str, str], ...]  # (raw value, category), most frequent first


@dataclass(frozen=True)
class Preview:
    """What `encode` would produce, estimated from a sample of the rows."""

    rows_seen: int
    rows_estimated: int | None  # of the whole source; None if unknown
    complete: bool  # whether all rows were seen
    label: str
    positive_share: float  # of the rows that have a label
    bad_labels: int
    label_values: tuple[LabelValue, ...]  # the most frequent first; all that mean 1
    fields: tuple[FieldPreview, ...]
    dense: tuple[tuple[str, float, float], ...]  # (name, mean, standard deviation)
    skipped: tuple[tuple[int, str], ...]  # bad rows (line, reason)
    reasons: tuple[tuple[str, str], ...]  # (column, role and why), if the columns were guessed
    file: str | None = None  # the first file


def preview(source: DataSource) -> Preview:
    """Encode a sample of a source's rows as `encode` would; writes nothing."""
    plan = source.plan
    sample = source.read_sample() if isinstance(source, FilesSource) else _first_rows(source)
    guess, frame = (source.guess if isinstance(source, FilesSource) else None), sample.frame
    labels, bad = read_labels(frame, plan.label)
    labelled = ~np.any([np.zeros(len(frame), bool), *(mask for mask, _ in bad)], axis=0)
    label_values = count_labels(raw_column(frame, plan.label.column), plan.label.positive)
    is_random = sample.complete and plan.split.kind == "random" and plan.vocabulary_from == "train"
    train_share = plan.split.shares[0] if is_random and plan.vocabulary_like is None else None
    return Preview(
        rows_seen=len(frame),
        rows_estimated=sample.num_rows,
        complete=sample.complete,
        label=plan.label.column,
        positive_share=float(labels[labelled].mean()) if labelled.any() else 0.0,
        bad_labels=int((~labelled).sum()),
        label_values=tuple(value for at, value in enumerate(label_values) if at < LABEL_VALUES or value.meaning == 1),
        fields=tuple(_preview_field(field, raw_column(frame, field.column), train_share) for field in plan.fields),
        dense=tuple(_preview_dense(dense, raw_column(frame, dense.column)) for dense in plan.dense),
        skipped=sample.skipped,
        reasons=() if guess is None else guess.reasons,
        file=None if sample.file is None else str(sample.file),
    )


def _first_rows(source: DataSource) -> Sample:
    frames = list[pl.DataFrame]()
    for chunk in source.chunks():
        frames.append(chunk.frame)
        if sum(map(len, frames)) > SAMPLE_ROWS:
            break
    if not any(map(len, frames)):
        raise DataError("there are no rows")
    frame = pl.concat(frames)
    return Sample(frame.head(SAMPLE_ROWS), None, None, len(frame) <= SAMPLE_ROWS)


def _preview_field(field: Field, column: pl.Series, train_share: float | None) -> FieldPreview:
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
    unknown_share = None
    if train_share is not None and field.min_count == 1 and field.transform != "quantiles":
        unknown_share = expected_unknown_share(counts["count"].cast(pl.Int64).to_numpy(), train_share)
    return FieldPreview(
        name=field.name,
        column=field.column,
        transform=field.transform,
        multi_valued=field.pooling is not None,
        distinct=len(counts),
        missing_share=float((values == "").sum() / total),
        rare_share=float(rare / total),
        unknown_share=unknown_share,
        broken=int((values == BROKEN).sum()),
        examples=tuple((row["raw"], row["value"]) for row in counts.head(NUM_EXAMPLES).to_dicts()),
    )


def _preview_dense(dense: DenseColumn, column: pl.Series) -> tuple[str, float, float]:
    numbers, _ = dense_values(dense, column)
    present = numbers[~np.isnan(numbers)]
    return (dense.name, float(present.mean()), float(present.std())) if len(present) else (dense.name, 0.0, 0.0)


@dataclass(frozen=True)
class FieldStatistics:
    """A field. Counts are of the training split; head and tail leave out the unknown feature."""

    name: str
    num_features: int  # including the unknown feature
    unknown_share: dict[str, float]  # by split
    head: tuple[tuple[str, int], ...]  # (value, count) of the most frequent values
    head_share: float  # of the training rows with one of these values
    tail: tuple[tuple[str, int], ...]  # (range of counts, number of features): `1–9`, `10–99`, …


@dataclass(frozen=True)
class TableStatistics:
    """The statistics of an encoded table."""

    num_rows: dict[str, int]
    positive_share: dict[str, float]
    num_features: int
    fields: tuple[FieldStatistics, ...]
    frequency_curve: tuple[tuple[int, int], ...]  # (rank, count) in training, evenly spaced on a log scale of both
    skipped_rows: int = 0


def table_statistics(table: EncodedTable, *, head: int = 5) -> TableStatistics:
    """Compute the statistics in one pass over the table."""
    splits = {name: table.split(name) for name in SPLITS}
    schema = table.schema
    unknown = {name: unknown_shares(split, table) for name, split in splits.items()}
    values = [vocabulary.values for vocabulary in RowEncoder.load(table.folder).full_vocabularies]
    fields = []
    for at, (field, offset) in enumerate(zip(schema.fields, schema.field_offsets, strict=True)):
        counts = table.feature_counts[offset + 1 : offset + field.size]
        top = np.argsort(-counts, kind="stable")[:head]
        total = int(table.feature_counts[offset : offset + field.size].sum())
        fields.append(
            FieldStatistics(
                name=field.name,
                num_features=field.size,
                unknown_share={name: float(shares[at]) for name, shares in unknown.items()},
                head=tuple((values[at][int(place)], int(counts[place])) for place in top),
                head_share=float(counts[top].sum() / total) if total else 0.0,
                tail=_tail(counts),
            )
        )
    return TableStatistics(
        num_rows={name: split.num_rows for name, split in splits.items()},
        positive_share={name: split.positive_share for name, split in splits.items()},
        num_features=schema.num_features,
        fields=tuple(fields),
        frequency_curve=_curve(table.feature_counts),
        skipped_rows=int(table.metadata.get("skipped", 0)),
    )


def _tail(counts: NDArray[np.int64]) -> tuple[tuple[str, int], ...]:
    names = ["0", *(f"{low:,}–{high - 1:,}" for low, high in pairwise(TAIL_EDGES)), f"{TAIL_EDGES[-1]:,}+"]
    numbers = np.bincount(np.searchsorted(TAIL_EDGES, counts, side="right"), minlength=len(names))
    return tuple(zip(names, numbers.tolist(), strict=True))


def _curve(counts: NDArray[np.int64], points: int = 60) -> tuple[tuple[int, int], ...]:
    ordered = np.sort(counts[counts > 0])[::-1]
    if not len(ordered):
        return ()
    by_rank = np.geomspace(1, len(ordered), points).astype(np.int64)
    # in the tail counts fall steeply, and points by rank alone would miss most of the fall
    levels = np.geomspace(1, ordered[0], points)
    by_count = len(ordered) - np.searchsorted(ordered[::-1], levels, side="left")
    ranks = np.unique(np.concatenate([by_rank, by_count]))
    return tuple((int(rank), int(ordered[rank - 1])) for rank in ranks)
