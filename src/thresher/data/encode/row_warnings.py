"""Warnings about the rows of a table: many were bad and left out, or have values that no training row has."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from thresher._internal.text import format_share, list_first
from thresher.data.encode.row_encoder import count_unknown
from thresher.data.table import EncodedSplit, EncodedTable
from thresher.errors import DataError

LARGE_SHARE, NEARLY_ALL = 0.05, 0.9
MAX_ROWS = 100_000  # of the validation split that are read for a warning
_BLOCK_ROWS = 1 << 18
MOST = 0.5
Samples = Sequence[tuple[str, int | None, str]]  # (file, line, reason)


def unknown_shares(split: EncodedSplit, table: EncodedTable, *, max_rows: int | None = None) -> NDArray[np.float64]:
    """The share of unknown values of each field; with `max_rows` estimated from about that many rows."""
    schema, step = table.schema, 1 if max_rows is None else max(1, split.num_rows // max_rows)
    counts, num_rows = np.zeros(schema.num_fields), 0
    for start in range(0, split.num_rows, _BLOCK_ROWS * step):
        ids = split.ids[start : start + _BLOCK_ROWS * step : step]
        counts[: ids.shape[1]] += count_unknown(ids, schema)
        num_rows += len(ids)
    totals = np.full(schema.num_fields, float(max(num_rows, 1)))
    for bag in split.bags:
        counts[bag.field] = np.count_nonzero(bag.values == schema.field_offsets[bag.field])
        totals[bag.field] = max(len(bag.values), 1)
    return np.asarray(counts / totals)


def untrained_unknowns(table: EncodedTable) -> dict[str, float]:
    """Fields with a large share of unknown values in validation, but none in training; and this share."""
    schema = table.schema
    untrained = table.feature_counts[list(schema.field_offsets)] == 0
    shares = unknown_shares(table.split("validation"), table, max_rows=MAX_ROWS)
    chosen = np.flatnonzero(untrained & (shares >= LARGE_SHARE))
    return {schema.fields[at].name: float(shares[at]) for at in chosen}


def expected_unknown_share(counts: NDArray[np.int64], train_share: float) -> float:
    """The share of rows outside of a random training split whose value occurs in no training row.

    A value that occurs `c` times is unknown if its other `c - 1` rows are outside, too: `Σ c (1 - t)^(c-1) / Σ c`.

    >>> expected_unknown_share(np.array([1, 1, 2]), 0.5)
    0.75
    """
    return float((counts * (1 - train_share) ** (counts - 1)).sum() / max(counts.sum(), 1))


def warn_about_unknowns(shares: Mapping[str, float]) -> str:
    """What large shares of unknown values mean, and what to do."""
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    fields = list_first(f"{name} ({format_share(share)})" for name, share in ordered)
    drop = ", and drop columns that differ in nearly every row" if ordered[0][1] > NEARLY_ALL else ""
    return (
        f"Warning: many validation rows have a value that no training row has: {fields}. They are predicted with the "
        "unknown feature of the field, which no training row has either, so that it is not trained. Set "
        f"data.min_count = 2 to train it with rare values{drop}."
    )


def check_skipped(num_rows: int, skipped: int, samples: Samples) -> None:
    """Raise if more than half of all rows are bad; `num_rows` are left."""
    total = num_rows + skipped
    if skipped > MOST * total:
        first = f" ({samples[0][2]})" if samples else ""
        file, line = samples[0][:2] if samples else (None, None)
        raise DataError(
            f"{skipped:,} of {total:,} rows are bad, too many to leave out. This is the first{first}. Check the "
            "transform of the column, the label, and the format of the file.",
            file=file or None,
            line=line,
        )


def warn_about_skipped(table: EncodedTable) -> str | None:
    """A warning if many rows were left out; None otherwise."""
    skipped = int(table.metadata.get("skipped", 0))
    total = table.num_rows + skipped
    if skipped <= LARGE_SHARE * total:
        return None
    samples = table.metadata.get("skipped_samples", ())
    first = f" The first: {samples[0][2]}." if samples else ""
    return (
        f"Warning: {skipped:,} of {total:,} rows ({format_share(skipped / total)}) are bad and were left out.{first} "
        "Results hold for the other rows only. Check the transform of the column, the label, and the format of the "
        "file."
    )
