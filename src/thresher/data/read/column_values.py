"""One raw column → text, numbers, dates or labels, whether it comes from CSV, Parquet or Python."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher._internal.text import list_first
from thresher.data.read.text_rows import likely_delimiter
from thresher.data.schema import DatePart, Label
from thresher.errors import DataError, LabelError

EXACT_INTEGERS = 2.0**53  # below it float64 represents every integer exactly
SHOWN_VALUES = 5
_BINARY = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
_BOOLEAN_NUMBERS = {"True": 1.0, "False": 0.0, "true": 1.0, "false": 0.0}
_DATE_CODES = ("%Y", "%y", "%m", "%d", "%e", "%b", "%B", "%h", "%j", "%D", "%F", "%x", "%c", "%+", "%s", "%G", "%g")


def raw_column(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column of raw rows; raises with the nearest name if it does not exist."""
    if name in frame.columns:
        return frame[name]
    raise DataError(unknown_column(name, frame.columns))


def check_columns(found: Sequence[str], columns: Iterable[str], *, file: str | Path | None = None) -> None:
    """Raise if one of the `columns` was not found."""
    for column in columns:
        if column not in found:
            error = DataError(unknown_column(column, found), file=file)
            error.column = column
            raise error


def unknown_column(name: str, columns: Sequence[str]) -> str:
    """The error message for a column that does not exist."""
    if char := likely_delimiter(columns):
        return f"no column {name!r}; the column names look separated by {char!r}"
    near = get_close_matches(name, columns, 1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"the columns are: {', '.join(columns[:20]) or 'none'}"
    return f"no column {name!r}; {hint}"


def as_text(column: pl.Series) -> pl.Series:
    """Any column as text, by Python's `str()`; missing values as `""`, and a float without fraction as `3`."""
    kind = column.dtype
    if kind.is_nested():
        problem = f"has type {str(kind).lower()}; expected one value per row. A field of lists needs a pooling"
        raise DataError(problem, column=column.name)
    if kind == pl.String:
        text = column
    elif kind == pl.Boolean:
        text = column.replace_strict({True: "True", False: "False"}, default=None, return_dtype=pl.String)
    elif kind == pl.Binary:
        try:
            text = column.cast(pl.String)
        except pl.exceptions.PolarsError:
            raise DataError("contains bytes that are not UTF-8; convert them to text", column=column.name) from None
    else:
        text = temporal_text(column) if kind.is_temporal() else column.cast(pl.String)
    if kind.is_decimal():  # trailing zeros depend on the column's type, not on the value
        text = text.str.replace(r"(\.\d*?)0+$", "${1}").str.strip_suffix(".")
    if kind.is_float():
        whole = column.is_finite() & (column == column.round()) & (column.abs() < EXACT_INTEGERS)
        text = text.zip_with(~whole.fill_null(False), column.cast(pl.Int64, strict=False).cast(pl.String))
        text = text.set(column.is_nan().fill_null(False), "")
    return text.fill_null("") if text.null_count() else text


def as_numbers(column: pl.Series) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """A column as float64 with NaN for missing values, and a mask of the values that are not a finite number."""
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
            parsed = text.cast(pl.Float64, strict=False).fill_null(text.replace_strict(_BOOLEAN_NUMBERS, default=None))
            doubtful = parsed.is_null() & (text != "")
    numbers = parsed.fill_null(float("nan")).to_numpy()
    broken = doubtful.to_numpy() | np.isinf(numbers)
    return np.where(broken, np.nan, numbers), broken


def parse_dates(column: pl.Series, date_format: str) -> pl.Series:
    """A Datetime series; null where the value is missing or not a date in this format.

    Format `unix`: seconds since 1970; empty: ISO 8601. ISO 8601, the text of a Python date, is also accepted with
    another format, unless the format could read it as another date.
    """
    if column.dtype == pl.Datetime:  # local time, as in text
        return column.dt.replace_time_zone(None).cast(pl.Datetime("us"))
    if column.dtype == pl.Date:
        return column.cast(pl.Datetime("us"))
    text = column.cast(pl.String).str.strip_chars()
    if not date_format:
        return _parse_iso(text)
    if date_format == "unix":
        parsed = (column.cast(pl.Float64, strict=False) * 1e6).cast(pl.Int64, strict=False).cast(pl.Datetime("us"))
    else:
        parsed = _parse_format(text, date_format)
    misreads_iso = date_format.startswith("%Y-") and not date_format.startswith("%Y-%m-%d")
    return parsed if misreads_iso or not parsed.null_count() else parsed.fill_null(_parse_iso(text))


def _parse_format(text: pl.Series, date_format: str) -> pl.Series:
    if not any(code in date_format for code in ("%H", "%I", "%T", "%s", "%R", "%X", "%c", "%+")):
        return text.str.to_date(date_format, strict=False).cast(pl.Datetime("us"))
    if "%M" not in date_format and "%T" not in date_format and "%R" not in date_format:
        # chrono does not parse an hour without minutes
        text, date_format = text + ":00", date_format + ":%M"
    return text.str.to_datetime(date_format, strict=False, time_unit="us").dt.replace_time_zone(None)


def _parse_iso(text: pl.Series) -> pl.Series:
    # local time is used, so an offset from UTC is dropped
    plain = text.str.replace(" ", "T", literal=True).str.replace(r"(Z|[+-]\d{2}:?\d{2})$", "")
    parsed = plain.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", strict=False, time_unit="us")
    if parsed.null_count():
        parsed = parsed.fill_null(plain.str.to_datetime("%Y-%m-%dT%H:%M", strict=False, time_unit="us"))
        parsed = parsed.fill_null(plain.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")))
    return parsed


def read_date_part(column: pl.Series, date_format: str, part: DatePart) -> pl.Series:
    """One part of each date (the hour also of a time of day, `09:30:00`) as an integer; null if it is not a date."""
    parts = date_part(parse_dates(column, date_format), part)
    if part != "hour" or column.dtype != pl.String or not parts.null_count():
        return parts
    if any(code in date_format for code in _DATE_CODES):  # to_time would accept an impossible date
        return parts
    for clock in (date_format,) if date_format else ("%H:%M:%S%.f", "%H:%M"):
        parts = parts.fill_null(column.str.strip_chars().str.to_time(clock, strict=False).dt.hour().cast(pl.Int32))
    return parts


def date_part(dates: pl.Series, part: DatePart) -> pl.Series:
    """One part as integers. Weekday 1 is Monday; hour_of_week 0 is the first hour of Monday."""
    if part == "hour_of_week":
        return (dates.dt.weekday().cast(pl.Int32) - 1) * 24 + dates.dt.hour().cast(pl.Int32)
    found: pl.Series = getattr(dates.dt, part)()
    return found.cast(pl.Int32)


def temporal_text(column: pl.Series) -> pl.Series:
    """A column of dates, datetimes or times as `str()` formats them in Python and pandas; null where missing.

    >>> from datetime import datetime
    >>> temporal_text(pl.Series([datetime(2024, 3, 5, 9, 30), datetime(2024, 3, 5, 9, 30, 0, 500_000)])).to_list()
    ['2024-03-05 09:30:00', '2024-03-05 09:30:00.500000']
    """
    if column.dtype == pl.Datetime:
        zone = "" if column.dtype.time_zone is None else "%:z"  # type: ignore[attr-defined]
        text = column.dt.strftime(f"%Y-%m-%d %H:%M:%S%.f{zone}")
    elif column.dtype == pl.Time:
        text = column.dt.strftime("%H:%M:%S%.f")
    else:
        return column.dt.to_string()
    return text.str.replace(r"(\.\d{3})([+-]|$)", "${1}000${2}")  # polars writes three digits if they suffice


@dataclass(frozen=True)
class LabelValue:
    """One value of the label column."""

    value: str
    count: int
    meaning: int | None  # 0, 1, or None if it is not a label


def label_of(value: str, positive: tuple[str, ...] = ()) -> int | None:
    """0, 1, or None for a value that is not a label."""
    text = value.strip()
    if positive:
        return int(text in positive) if text else None
    return _BINARY.get(text.lower())


def read_labels(frame: pl.DataFrame, label: Label) -> tuple[NDArray[np.uint8], list[tuple[NDArray[np.bool_], str]]]:
    """Labels of the rows (0 if invalid), and masks of the invalid rows with their error message."""
    text = as_text(raw_column(frame, label.column))
    known = {value: label_of(value, label.positive) for value in text.unique().to_list()}
    positives = {value for value, meaning in known.items() if meaning == 1}
    labels = text.is_in(positives).cast(pl.UInt8).to_numpy()
    missing = {value for value, meaning in known.items() if meaning is None and not value.strip()}
    wrong = {value for value, meaning in known.items() if meaning is None} - missing
    expected = "expected 0 or 1. Set data.positive to the values that mean 1, or choose another column"
    problems = ((wrong, expected), (missing, "it is missing. Correct or drop the row"))
    return labels, [(text.is_in(bad).to_numpy(), f"is not a label: {why}") for bad, why in problems if bad]


def count_labels(column: pl.Series, positive: tuple[str, ...] = ()) -> tuple[LabelValue, ...]:
    """The values of a label column with count and meaning, most frequent first."""
    counts = as_text(column).alias("value").value_counts(name="count")
    counts = counts.sort(["count", "value"], descending=[True, False])
    return tuple(LabelValue(value, count, label_of(value, positive)) for value, count in counts.iter_rows())


def describe_labels(values: Sequence[LabelValue]) -> str:
    """Describes which values count as 1, which as 0, and which are not a label, most frequent first.

    >>> describe_labels([LabelValue("no", 700, 0), LabelValue("yes", 42, 1), LabelValue("maybe", 3, 0)])
    'yes (42) → 1; no (700), maybe (3) → 0'
    """
    parts = []
    for meaning, target in ((1, "→ 1"), (0, "→ 0"), (None, "→ no label")):
        found = [value for value in values if value.meaning == meaning]
        shown = list_first((f"{each.value or 'empty'} ({each.count:,})" for each in found), SHOWN_VALUES)
        if found or meaning == 1:
            parts.append(f"{shown or 'nothing'} {target}")
    return "; ".join(parts)


def check_positive(values: Sequence[LabelValue], positive: tuple[str, ...], *, file: Path, column: str) -> None:
    """Raise if a positive value does not occur, but one that differs only in spelling does, such as `Yes` for `yes`."""
    known = {each.value.strip() for each in values}
    for wanted in positive:
        near = [each.value for each in values if _normalised(each.value) == _normalised(wanted)]
        if near and wanted not in known:
            held = ", ".join(repr(each.value) for each in values[:SHOWN_VALUES])
            problem = f"data.positive is {wanted!r}, but no row has this value. Found {held}. Did you mean {near[0]!r}?"
            raise LabelError(problem, file=file, column=column)


def _normalised(value: str) -> str | float:
    """A value without differences of spelling: case, spaces, number format."""
    text = value.strip().casefold()
    try:
        return float(text)
    except ValueError:
        return text
