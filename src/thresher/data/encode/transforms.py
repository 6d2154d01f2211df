"""One raw column → the category values of one field, as strings; the same code at encoding and at prediction.

A missing value (null or empty text) is the value `""`, a category like any other.
"""

import zlib
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.encode.numeric_buckets import log2_buckets, quantile_buckets
from thresher.data.read.dates import read_date_part, temporal_text
from thresher.data.schema import DenseColumn, Field
from thresher.errors import DataError

BROKEN = "\0broken"
"""Stands for a text that should be a number or a date: no vocabulary holds it, so it is unknown at prediction time."""

EXACT_INTEGERS = 2.0**53
"""Below it every whole number is a float64 of its own."""
_TRUTHS = {"True": 1.0, "False": 0.0, "true": 1.0, "false": 0.0}


def field_values(field: Field, column: pl.Series) -> pl.Series:
    """The field's category values of a raw column: a String series without nulls, of the same length."""
    if field.transform == "none":
        return as_text(column)
    if field.transform == "hash":
        return _hash_values(as_text(column), field.num_buckets)
    if field.transform == "date":
        text = as_text(column)
        dates = column if column.dtype in (pl.Date, pl.Datetime) else text
        parts = read_date_part(dates, field.date_format, field.date_part).cast(pl.String)
        return _mark(parts.fill_null(""), (text == "").to_numpy(), (parts.is_null() & (text != "")).to_numpy())
    numbers, broken = as_numbers(column)
    missing = np.isnan(numbers)
    present = np.where(missing, 0.0, numbers - field.shift)
    buckets = log2_buckets(present) if field.transform == "log2" else quantile_buckets(present, field.edges)
    return _mark(pl.Series(column.name, buckets).cast(pl.String), missing, broken)


def bag_values(field: Field, column: pl.Series) -> tuple[pl.Series, NDArray[np.int64]]:
    """The raw values of a multi-valued column, all rows' one after another, and where each row's begin `[rows + 1]`.

    An empty list, an empty text and null are bags without values; so are empty values inside a list.
    """
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
    """Numbers before standardisation, NaN for missing; and which texts are none."""
    numbers, broken = as_numbers(raw)
    if column.scaling == "log":
        numbers = np.sign(numbers) * np.log1p(np.abs(numbers))
    return numbers, broken


def scale_dense(columns: Sequence[DenseColumn], numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Numbers `[rows, K]` as the model takes them; a missing one is at the mean."""
    mean = np.array([column.mean for column in columns])
    scale = np.array([column.scale for column in columns])
    scaled: NDArray[np.float32] = np.nan_to_num((numbers - mean) / scale).astype(np.float32)
    return scaled


def as_text(column: pl.Series) -> pl.Series:
    """Any column as text, as Python and pandas write its values, missing as `""`.

    A whole float is `3`, not `3.0`: a gap makes floats of a column of ids. Nor has a decimal zeros at its end: how many
    there are says the column's type, not the value.
    """
    kind = column.dtype
    if kind.is_nested():
        what = f"a column of {str(kind).lower()}, where one value a row is expected; a field of lists needs a pooling"
        raise DataError(what, column=column.name)
    if kind == pl.String:
        text = column
    elif kind == pl.Boolean:
        text = column.replace_strict({True: "True", False: "False"}, default=None, return_dtype=pl.String)
    elif kind == pl.Binary:
        try:
            text = column.cast(pl.String)
        except pl.exceptions.PolarsError:
            raise DataError("holds bytes that are not UTF-8; write them as text", column=column.name) from None
    else:
        text = temporal_text(column) if kind.is_temporal() else column.cast(pl.String)
    if kind.is_decimal():
        text = text.str.replace(r"(\.\d*?)0+$", "${1}").str.strip_suffix(".")
    if kind.is_float():
        whole = column.is_finite() & (column == column.round()) & (column.abs() < EXACT_INTEGERS)
        text = text.zip_with(~whole.fill_null(False), column.cast(pl.Int64, strict=False).cast(pl.String))
        text = text.set(column.is_nan().fill_null(False), "")
    return text.fill_null("") if text.null_count() else text


def as_numbers(column: pl.Series) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """A column as float64 with NaN for missing, and a mask of the values that are no number (infinities included).

    What is no column of numbers is what its text says, so that a value has one number whatever holds it.
    """
    if column.dtype.is_nested():
        return np.full(len(column), np.nan), column.is_not_null().to_numpy()
    if column.dtype.is_integer() or column.dtype.is_float():
        parsed = column.cast(pl.Float64, strict=False)
        doubtful = parsed.is_null() & column.is_not_null()
    else:
        text = as_text(column)
        parsed = text.cast(pl.Float64, strict=False)
        doubtful = parsed.is_null() & (text != "")
        if doubtful.any():  # spaces around a number are common and harmless
            text = text.str.strip_chars()
            parsed = text.cast(pl.Float64, strict=False).fill_null(text.replace_strict(_TRUTHS, default=None))
            doubtful = parsed.is_null() & (text != "")
    numbers = parsed.fill_null(float("nan")).to_numpy()
    broken = doubtful.to_numpy() | np.isinf(numbers)
    return np.where(broken, np.nan, numbers), broken


def _hash_values(text: pl.Series, num_buckets: int) -> pl.Series:
    """CRC-32 of the UTF-8 text modulo the number of buckets: the same in every release and every language."""
    buckets = [str(zlib.crc32(value.encode()) % num_buckets) if value else "" for value in text]
    return pl.Series(text.name, buckets, dtype=pl.String)


def _mark(labels: pl.Series, missing: NDArray[np.bool_], broken: NDArray[np.bool_]) -> pl.Series:
    if missing.any():
        labels = labels.set(pl.Series(missing), "")
    if broken.any():
        labels = labels.set(pl.Series(broken), BROKEN)
    return labels
