"""Dates: formats as people have them, and the parts a field may want."""

from datetime import date, datetime

import polars as pl
import pytest

from thresher.data.read.column_values import date_part, parse_dates, read_date_part


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


def test_a_zone_in_the_format_and_a_missing_date_stand_together():
    found = parse_dates(pl.Series(["2014-10-21 23:05 +0000", None]), "%Y-%m-%d %H:%M %z")
    assert found.to_list() == [datetime(2014, 10, 21, 23, 5), None]


def test_iso_is_no_way_out_of_a_format_that_reads_it_otherwise():
    cells = pl.Series(["2024-01-05", "2024-01-13"])
    assert parse_dates(cells, "%Y-%d-%m").to_list() == [datetime(2024, 5, 1), None]  # not 13 January beside 1 May
    assert parse_dates(cells, "%d.%m.%Y").to_list() == [datetime(2024, 1, 5), datetime(2024, 1, 13)]


def test_the_hour_of_an_impossible_date_is_none():
    cells = pl.Series(["2024-02-30 10:00", "2024-02-28 11:00"])
    assert read_date_part(cells, "%Y-%m-%d %H:%M", "hour").to_list() == [None, 11]
    assert read_date_part(pl.Series(["09.30"]), "%H.%M", "hour").to_list() == [9]


@pytest.mark.parametrize("date_format", ["", "%d.%m.%Y", "unix"])
def test_columns_that_hold_dates_already_have_no_format(date_format):
    moments = parse_dates(pl.Series([date(2014, 10, 21), None]), date_format)
    assert moments.to_list() == [datetime(2014, 10, 21), None]


def test_parts_of_a_date():
    tuesday = pl.Series([datetime(2014, 10, 21, 23, 30)])
    parts = {"hour": 23, "weekday": 2, "day": 21, "month": 10, "year": 2014, "hour_of_week": 24 + 23}
    assert {part: date_part(tuesday, part).item() for part in parts} == parts
