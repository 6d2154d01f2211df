"""Dates: formats as people have them, and the parts a field may want."""

from datetime import date, datetime

import polars as pl
import pytest

from thresher.data.dates import date_part, parse_dates


@pytest.mark.parametrize(
    ("text", "date_format", "moment"),
    [
        ("14102123", "%y%m%d%H", datetime(2014, 10, 21, 23)),
        ("21.10.2014", "%d.%m.%Y", datetime(2014, 10, 21)),
        ("21.10.2014 23:05", "%d.%m.%Y %H:%M", datetime(2014, 10, 21, 23, 5)),
        ("1413932400", "unix", datetime(2014, 10, 21, 23)),
        ("2014-10-21", "", datetime(2014, 10, 21)),
        ("2014-10-21 23:05", "", datetime(2014, 10, 21, 23, 5)),
        (" 2014-10-21T23:05:07.25+02:00 ", "", datetime(2014, 10, 21, 23, 5, 7, 250_000)),
    ],
)
def test_dates_are_read_in_their_format_and_what_is_none_is_null(text, date_format, moment):
    assert parse_dates(pl.Series([text, "soon", None]), date_format).to_list() == [moment, None, None]


@pytest.mark.parametrize("date_format", ["", "%d.%m.%Y", "unix"])
def test_columns_that_hold_dates_already_have_no_format(date_format):
    moments = parse_dates(pl.Series([date(2014, 10, 21), None]), date_format)
    assert moments.to_list() == [datetime(2014, 10, 21), None]


def test_parts_of_a_date():
    tuesday = pl.Series([datetime(2014, 10, 21, 23, 30)])
    parts = {"hour": 23, "weekday": 2, "day": 21, "month": 10, "year": 2014, "hour_of_week": 24 + 23}
    assert {part: date_part(tuesday, part).item() for part in parts} == parts
