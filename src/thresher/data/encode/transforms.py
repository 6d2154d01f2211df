"""One raw column → the category values of a field, as strings; a missing value is the category `""`."""

import zlib
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.read.column_values import as_numbers, as_text, read_date_part
from thresher.data.schema import DenseColumn, Field

BROKEN = "\0broken"
"""The category of a text that should be a number or a date. No vocabulary contains it: at prediction it is unknown."""


def field_values(field: Field, column: pl.Series) -> pl.Series:
    """The category of each value of a raw column: a String series without nulls."""
    if field.transform == "none":
        return as_text(column)
    if field.transform == "hash":
        # CRC-32 of the UTF-8 text: the same in every release and language
        hashes = [str(zlib.crc32(value.encode()) % field.num_buckets) if value else "" for value in as_text(column)]
        return pl.Series(column.name, hashes, dtype=pl.String)
    if field.transform == "date":
        text = as_text(column)
        dates = column if column.dtype in (pl.Date, pl.Datetime) else text
        values = read_date_part(dates, field.date_format, field.date_part).cast(pl.String)
        missing = (text == "").to_numpy()
        broken = values.is_null().to_numpy() & ~missing
    else:
        numbers, broken = as_numbers(column)
        missing = np.isnan(numbers)
        present = np.where(missing, 0.0, numbers - field.shift)
        buckets = log2_buckets(present) if field.transform == "log2" else quantile_buckets(present, field.edges)
        values = pl.Series(column.name, buckets).cast(pl.String)
    if missing.any():
        values = values.set(pl.Series(missing), "")
    return values.set(pl.Series(broken), BROKEN) if broken.any() else values


def bag_values(field: Field, column: pl.Series) -> tuple[pl.Series, NDArray[np.int64]]:
    """The values of a multi-valued column without empty ones, concatenated, and the rows' offsets `[rows + 1]`."""
    if column.dtype == pl.String or not column.dtype.is_nested():
        text = as_text(column)
        lists = text.str.split(field.separator) if field.separator else text.reshape((-1, 1)).arr.to_list()
    else:
        lists = column.cast(pl.List(column.dtype.inner)) if isinstance(column.dtype, pl.Array) else column
    lengths = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    flat = lists.explode(empty_as_null=False, keep_nulls=False)
    kept = (as_text(flat) != "").to_numpy()
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.bincount(rows[kept], minlength=len(lengths)), out=offsets[1:])
    return flat.filter(pl.Series(kept, dtype=pl.Boolean)), offsets


def dense_values(column: DenseColumn, raw: pl.Series) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers before standardisation, NaN for missing values; and a mask of the values that are not numbers."""
    numbers, broken = as_numbers(raw)
    if column.scaling == "log":
        numbers = np.sign(numbers) * np.log1p(np.abs(numbers))
    return numbers, broken


def scale_dense(columns: Sequence[DenseColumn], numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Standardised numbers `[rows, K]`; missing values are at the mean."""
    mean, scale = np.array([(column.mean, column.scale) for column in columns]).T
    return np.asarray(np.nan_to_num((numbers - mean) / scale), np.float32)


def log2_buckets(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The rule of the Criteo contest winners: `floor(ln(x)²)` for x > 2, else `floor(x) - 2`.

    >>> log2_buckets(np.array([-1.0, 0.0, 1.0, 2.0, 3.0, 100.0])).tolist()
    [-3, -2, -1, 0, 1, 21]
    """
    logs = np.log(np.maximum(values, 2.0))
    small = np.maximum(np.floor(values) - 2, -(2.0**62))  # the smallest integer to name a bucket
    buckets: NDArray[np.int64] = np.where(values > 2, np.floor(logs * logs), small).astype(np.int64)
    return buckets


def quantile_edges(values: NDArray[np.float64], num_buckets: int) -> tuple[float, ...]:
    """The bounds of at most `num_buckets` buckets with equally many values; NaN is ignored.

    >>> quantile_edges(np.arange(8.0), 4)
    (2.0, 4.0, 6.0)
    """
    present = np.sort(values[~np.isnan(values)])
    if not len(present):
        return ()
    num_buckets = min(num_buckets, len(present))  # more would give the same bounds
    at = np.arange(1, num_buckets) * len(present) // num_buckets
    edges = np.unique(present[at])
    return tuple(edges[edges > present[0]].tolist())


def quantile_buckets(values: NDArray[np.float64], edges: tuple[float, ...]) -> NDArray[np.int64]:
    """The bucket of each number: how many edges are at or below it.

    >>> quantile_buckets(np.array([1.0, 2.0, 9.0]), (2.0, 4.0)).tolist()
    [0, 1, 2]
    """
    return np.searchsorted(np.asarray(edges, np.float64), values, side="right")
