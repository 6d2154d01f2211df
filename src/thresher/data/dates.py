"""Dates and times in raw columns → numbers: parts of a date for a field, seconds for a split by time."""

from typing import assert_never

import polars as pl

from thresher.data.schema import DatePart


def parse_dates(column: pl.Series, date_format: str) -> pl.Series:
    """Datetime series, null where the value is missing or no date in this format (empty: ISO 8601, `unix`: seconds)."""
    if column.dtype in (pl.Date, pl.Datetime):
        return column.cast(pl.Datetime("us"))
    if date_format == "unix":
        seconds = column.cast(pl.Float64, strict=False)
        return (seconds * 1e6).cast(pl.Int64, strict=False).cast(pl.Datetime("us"))
    text = column.cast(pl.String).str.strip_chars()
    if date_format:
        if not any(code in date_format for code in ("%H", "%I", "%T", "%s", "%R", "%X", "%c", "%+")):
            return text.str.to_date(date_format, strict=False).cast(pl.Datetime("us"))
        if "%M" not in date_format and "%T" not in date_format and "%R" not in date_format:
            # chrono refuses an hour without minutes
            text, date_format = text + ":00", date_format + ":%M"
        return text.str.to_datetime(date_format, strict=False, time_unit="us")
    # the wall clock of the place counts, so an offset from UTC is dropped
    plain = text.str.replace(" ", "T", literal=True).str.replace(r"(Z|[+-]\d{2}:?\d{2})$", "")
    parsed = plain.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", strict=False, time_unit="us")
    if parsed.null_count():
        parsed = parsed.fill_null(plain.str.to_datetime("%Y-%m-%dT%H:%M", strict=False, time_unit="us"))
        parsed = parsed.fill_null(plain.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")))
    return parsed


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
