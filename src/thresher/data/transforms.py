"""One raw column → the category values of one field, as strings; the same code at encoding and at prediction.

A missing value (null or empty text) is the value `""`, a category like any other.
"""

import numpy as np
import polars as pl

from thresher.data.numeric_buckets import log2_buckets
from thresher.data.schema import Field

BROKEN = "\0broken"
"""Stands for a text that should have been a number: no vocabulary holds it, so it is unknown at prediction time."""


def field_values(field: Field, column: pl.Series) -> pl.Series:
    """The field's category values of a raw column: a String series without nulls, of the same length."""
    if field.transform == "none":
        return as_text(column)
    numbers, broken = as_numbers(column)
    missing = np.isnan(numbers)
    buckets = log2_buckets(np.where(missing, 0.0, numbers - field.shift))
    labels = pl.Series(column.name, buckets).cast(pl.String)
    if missing.any():
        labels = labels.set(pl.Series(missing), "")
    if broken.any():
        labels = labels.set(pl.Series(broken), BROKEN)
    return labels


def as_text(column: pl.Series) -> pl.Series:
    """Any column as text, missing as `""`."""
    text = column if column.dtype == pl.String else column.cast(pl.String)
    return text.fill_null("") if text.null_count() else text


def as_numbers(column: pl.Series) -> tuple[np.ndarray, np.ndarray]:
    """A column as float64 with NaN for missing, and a mask of the texts that are no number (infinities included)."""
    if column.dtype == pl.String:
        parsed = column.cast(pl.Float64, strict=False)
        doubtful = parsed.is_null() & column.is_not_null() & (column != "")
        if doubtful.any():  # spaces around a number are common and harmless
            stripped = column.str.strip_chars()
            parsed = stripped.cast(pl.Float64, strict=False)
            doubtful = parsed.is_null() & stripped.is_not_null() & (stripped != "")
    else:
        parsed = column.cast(pl.Float64, strict=False)
        doubtful = parsed.is_null() & column.is_not_null()
    numbers = parsed.fill_null(float("nan")).to_numpy()
    broken = doubtful.to_numpy() | np.isinf(numbers)
    return np.where(broken, np.nan, numbers), broken
