"""Dates and times in raw columns → numbers (parts of a date for a field, seconds for a split by time), or text."""

from typing import assert_never

import polars as pl

from thresher.data.schema import DatePart

_DATE_CODES = ("%Y", "%y", "%m", "%d", "%e", "%b", "%B", "%h", "%j", "%D", "%F", "%x", "%c", "%+", "%s", "%G", "%g")


def parse_dates(column: pl.Series, date_format: str) -> pl.Series:
    """Datetime series, null where the value is missing or no date in this format (empty: ISO 8601, `unix`: seconds).

    ISO 8601 is understood beside a format that could not take it for another date: a date of Python, which needs no
    format, is written so.
    """
    if column.dtype == pl.Datetime:  # the wall clock of the place counts, as in text
        return column.dt.replace_time_zone(None).cast(pl.Datetime("us"))
    if column.dtype == pl.Date:
        return column.cast(pl.Datetime("us"))
    text = column.cast(pl.String).str.strip_chars()
    if not date_format:
        return _parse_iso(text)
    parsed = _parse_seconds(column) if date_format == "unix" else _parse_format(text, date_format)
    takes_iso_for_another = date_format.startswith("%Y-") and not date_format.startswith("%Y-%m-%d")
    return parsed if takes_iso_for_another or not parsed.null_count() else parsed.fill_null(_parse_iso(text))


def _parse_seconds(column: pl.Series) -> pl.Series:
    seconds = column.cast(pl.Float64, strict=False)
    return (seconds * 1e6).cast(pl.Int64, strict=False).cast(pl.Datetime("us"))


def _parse_format(text: pl.Series, date_format: str) -> pl.Series:
    if not any(code in date_format for code in ("%H", "%I", "%T", "%s", "%R", "%X", "%c", "%+")):
        return text.str.to_date(date_format, strict=False).cast(pl.Datetime("us"))
    if "%M" not in date_format and "%T" not in date_format and "%R" not in date_format:
        # chrono refuses an hour without minutes
        text, date_format = text + ":00", date_format + ":%M"
    return text.str.to_datetime(date_format, strict=False, time_unit="us").dt.replace_time_zone(None)


def _parse_iso(text: pl.Series) -> pl.Series:
    # the wall clock of the place counts, so an offset from UTC is dropped
    plain = text.str.replace(" ", "T", literal=True).str.replace(r"(Z|[+-]\d{2}:?\d{2})$", "")
    parsed = plain.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", strict=False, time_unit="us")
    if parsed.null_count():
        parsed = parsed.fill_null(plain.str.to_datetime("%Y-%m-%dT%H:%M", strict=False, time_unit="us"))
        parsed = parsed.fill_null(plain.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")))
    return parsed


def read_date_part(column: pl.Series, date_format: str, part: DatePart) -> pl.Series:
    """One part of each date in a column of dates or text, as whole numbers; null where it is missing or has no such.

    The hour may be that of a time of day, such as `09:30:00`.
    """
    parts = date_part(parse_dates(column, date_format), part)
    if part != "hour" or column.dtype != pl.String or not parts.null_count():
        return parts
    if any(code in date_format for code in _DATE_CODES):  # a clock read by it would pass over an impossible date
        return parts
    for clock in (date_format,) if date_format else ("%H:%M:%S%.f", "%H:%M"):
        parts = parts.fill_null(column.str.strip_chars().str.to_time(clock, strict=False).dt.hour().cast(pl.Int32))
    return parts


def date_part(dates: pl.Series, part: DatePart) -> pl.Series:
    """One part as whole numbers; weekday 1 is Monday, hour_of_week 0 is Monday's first hour."""
    match part:
        case "hour":
            found = dates.dt.hour()
        case "weekday":
            found = dates.dt.weekday()
        case "day":
            found = dates.dt.day()
        case "month":
            found = dates.dt.month()
        case "year":
            found = dates.dt.year()
        case "hour_of_week":
            found = (dates.dt.weekday().cast(pl.Int32) - 1) * 24 + dates.dt.hour().cast(pl.Int32)
        case _:
            assert_never(part)
    return found.cast(pl.Int32)


def temporal_text(column: pl.Series) -> pl.Series:
    """A column of dates, moments or times of day as Python and pandas write them with `str()`, null where missing.

    A fraction of a second has six digits, or nine where nanoseconds count, and none when it is zero.

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
    return text.str.replace(r"(\.\d{3})([+-]|$)", "${1}000${2}")  # three digits where they are enough
