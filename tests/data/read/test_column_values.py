"""A value has the same text, number or date whether it comes from polars, pandas, Python objects or a CSV file."""

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from thresher.data.config import DataConfig, FieldConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.row_encoder import RowEncoder, Vocabulary
from thresher.data.encode.sources import build_source
from thresher.data.encode.transforms import BROKEN, field_values
from thresher.data.read.column_values import as_numbers, as_text, date_part, parse_dates, read_date_part, temporal_text
from thresher.data.schema import SPLITS, Field, Label, Schema
from thresher.errors import DataError
from thresher.serving.request_rows import rows_to_frame

WHOLE = datetime(2024, 3, 5, 0, 25, 58)
MOMENTS = [WHOLE, WHOLE.replace(microsecond=500_000), WHOLE.replace(microsecond=1_000), datetime(2024, 3, 5)]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_datetimes_have_the_text_of_python_and_pandas(unit, zone):
    column = pl.Series("at", [*MOMENTS, None], pl.Datetime(unit)).dt.replace_time_zone(zone)
    expected = [str(moment) for moment in column.to_list()[:-1]]
    assert as_text(column).to_list() == [*expected, ""]
    assert [str(moment) for moment in column.to_pandas()][:-1] == expected


def test_nanoseconds_days_and_times_of_day():
    assert temporal_text(pl.Series([5], dtype=pl.Datetime("ns"))).to_list() == ["1970-01-01 00:00:00.000000005"]
    for values in ([date(2024, 3, 5)], [time(1, 2, 3), time(1, 2, 3, 500_000), time(1, 2, 3, 7)]):
        assert as_text(pl.Series(values)).to_list() == [str(value) for value in values]
    assert as_text(pl.Series([timedelta(hours=1), None])).to_list() == ["PT1H", ""]


def test_every_form_of_rows_gives_a_datetime_the_same_value():
    schema = Schema(fields=(Field(name="at", size=5),), label=Label(column="clicked"))
    frame = pl.DataFrame({"at": MOMENTS})
    expected = [str(moment) for moment in MOMENTS]
    for rows in (frame, frame.to_dicts(), frame.to_pandas(), frame.with_columns(pl.col("at").cast(pl.Datetime("ns")))):
        assert as_text(rows_to_frame(rows, schema)["at"]).to_list() == expected


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_numpy_datetimes_have_the_same_value(unit):
    schema = Schema(fields=(Field(name="at", size=5),), label=Label(column="clicked"))
    moments = [np.datetime64(WHOLE, unit), np.datetime64("NaT"), np.datetime64("2024-03-05"), None]
    frame = rows_to_frame([{"at": moment} for moment in moments], schema)
    assert as_text(frame["at"]).to_list() == [str(WHOLE), "", "2024-03-05", ""]


def test_numpy_numbers_have_the_values_of_python_numbers():
    schema = Schema(fields=(Field(name="n", size=5),), label=Label(column="clicked"))
    for plain, kind in ([3, -1], np.int32), ([0.5, float("nan")], np.float64), ([0.5, float("nan")], np.float32):
        own, numpys = ([{"n": one} for one in values] for values in (plain, map(kind, plain)))
        assert as_text(rows_to_frame(numpys, schema)["n"]).equals(as_text(rows_to_frame(own, schema)["n"]))


def test_every_form_of_rows_gives_a_boolean_the_same_value():
    schema = Schema(fields=(Field(name="member", size=3),), label=Label(column="clicked"))
    frame = pl.DataFrame({"member": [True, False, None]})
    for rows in (frame, frame.to_dicts(), frame.to_pandas()):
        assert as_text(rows_to_frame(rows, schema)["member"]).to_list() == ["True", "False", ""]


def test_a_table_from_csv_encodes_the_datetimes_of_parquet(tmp_path: Path):
    moments = [WHOLE + timedelta(minutes=7 * row) for row in range(60)]
    frame = pl.DataFrame({"click": [row % 2 for row in range(60)], "at": moments})
    frame.with_columns(pl.Series("at", map(str, moments))).write_csv(tmp_path / "rows.csv")
    frame.write_parquet(tmp_path / "rows.parquet")
    values = []
    for name in ("rows.csv", "rows.parquet"):
        config = DataConfig(paths=(str(tmp_path / name),), label="click", fields=(FieldConfig(name="at"),))
        table = encode(build_source(config), tmp_path / f"encoded {name}")
        encoder = RowEncoder.load(table.folder)
        values.append(encoder.vocabularies[0].values.to_list())
        known = frame.filter(as_text(frame["at"]).is_in(values[-1]))
        assert len(known) == table.split("train").num_rows
        assert encoder.encode_frame(known).ids.min() > 0
    assert values[0] == values[1]


def test_the_hour_is_local_time_in_text_and_in_columns():
    moment = datetime(2024, 3, 5, 0, 25, tzinfo=timezone(timedelta(hours=1)))
    column = pl.Series([moment]).dt.convert_time_zone("Europe/Berlin")
    assert parse_dates(column, "").dt.hour().to_list() == parse_dates(as_text(column), "").dt.hour().to_list() == [0]


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical, pl.Enum(["3", "4.5", "x", "09:30"]), pl.Binary])
def test_columns_with_a_text_form_are_read_through_their_text(kind):
    column = pl.Series(["3", "4.5", "x", None, "09:30"]).cast(kind)
    assert as_text(column).to_list() == ["3", "4.5", "x", "", "09:30"]
    numbers, broken = as_numbers(column)
    assert numbers[:2].tolist() == [3, 4.5]
    assert broken.tolist() == [False, False, True, False, True]
    hour = Field(name="at", size=2, transform="date")
    assert field_values(hour, column).to_list() == [BROKEN, BROKEN, BROKEN, "", "9"]


def test_decimals_have_the_same_value_as_numbers():
    column = pl.Series([Decimal("4.00"), Decimal("10.50"), Decimal("100.00"), Decimal("-0.10"), None])
    assert as_text(column).to_list() == ["4", "10.5", "100", "-0.1", ""]
    assert as_text(pl.Series([Decimal(400), Decimal(0)])).to_list() == ["400", "0"]
    assert as_numbers(column)[0][:4].tolist() == [4, 10.5, 100, -0.1]


def test_a_time_of_day_has_an_hour_and_is_not_a_number():
    column = pl.Series([time(9, 30), time(0, 25, 58, 7), None])
    hour, weekday = (Field(name="at", size=2, transform="date", date_part=part) for part in ("hour", "weekday"))
    for form in (column, as_text(column)):
        assert field_values(hour, form).to_list() == ["9", "0", ""]
        assert field_values(weekday, form).to_list() == [BROKEN, BROKEN, ""]
        assert as_numbers(form)[1].tolist() == [True, True, False]
    points = Field(name="at", size=2, transform="date", date_format="%H.%M")
    assert field_values(points, pl.Series(["09.30", "soon"])).to_list() == ["9", BROKEN]


def test_booleans_are_numbers_in_every_form():
    for column in (pl.Series([True, False, None]), pl.Series(["True", "false", ""])):
        numbers, broken = as_numbers(column)
        assert numbers[:2].tolist() == [1, 0]
        assert not broken.any()


def test_errors_of_columns_without_text_name_the_column():
    for column, what in (pl.Series("tags", [["a"]]), "one value per row"), (pl.Series("tags", [b"\xff"]), "not UTF-8"):
        with pytest.raises(DataError, match=f"column 'tags': .*{what}"):
            as_text(column)


def test_integer_ids_written_as_floats_are_known_in_every_form(tmp_path: Path):
    """pandas writes integer ids as 3.0 if some are missing; other readers of that file get numbers."""
    ids = [None if row % 50 == 7 else float(row % 9) for row in range(300)]
    frame = pl.DataFrame({"click": [row % 2 for row in range(300)], "user": ids, "flag": ["true", "false"] * 150})
    frame.to_pandas().to_csv(tmp_path / "rows.csv", index=False)
    assert "3.0" in (tmp_path / "rows.csv").read_text()
    fields = (FieldConfig(name="user"), FieldConfig(name="flag"))
    encode(
        build_source(DataConfig(paths=(str(tmp_path / "rows.csv"),), label="click", fields=fields)), tmp_path / "out"
    )
    encoder = RowEncoder.load(tmp_path / "out")
    expected = encoder.encode_frame(pl.read_csv(tmp_path / "rows.csv", infer_schema=False)).ids
    assert len(set(expected[:, 0].tolist())) == 10
    truths = frame.with_columns(flag=pl.col("flag") == "true")
    for rows in (frame, frame.to_pandas(), truths, truths.to_dicts(), frame.with_columns(pl.col("user").cast(pl.Int8))):
        assert np.array_equal(encoder.encode_frame(rows_to_frame(rows, encoder.schema)).ids, expected)


@pytest.mark.parametrize("new_values", ["unknown", "append"])
def test_a_newer_table_of_numbers_has_the_ids_of_the_row_encoder(tmp_path: Path, new_values):
    """An earlier CSV with 3.0, a newer Parquet file with numbers, some of them new, in every split."""
    fields = (FieldConfig(name="user"),)

    def table(ids, name, **settings):
        frame = pl.DataFrame({"click": [row % 2 for row in range(len(ids))], "user": ids})
        frame.write_parquet(tmp_path / f"{name}.parquet")
        if name == "first":
            frame.with_columns(pl.Series("user", [f"{float(one)}" for one in ids])).write_csv(tmp_path / "first.csv")
        path = tmp_path / ("first.csv" if name == "first" else f"{name}.parquet")
        config = DataConfig(paths=(str(path),), label="click", fields=fields, **settings)
        return frame, encode(build_source(config), tmp_path / name)

    table([row % 9 for row in range(300)], "first")
    later = [(7 * row) % 12 for row in range(300)]
    frame, second = table(later, "second", vocabulary_like=str(tmp_path / "first"), new_values=new_values)
    ids = np.sort(np.concatenate([second.split(name).ids[:, 0] for name in SPLITS]))
    served = np.sort(RowEncoder.load(tmp_path / "second").encode_frame(frame).ids[:, 0])
    assert np.array_equal(ids, served)
    assert len(set(served.tolist())) == (10 if new_values == "unknown" else 12)


@pytest.mark.parametrize(
    ("known", "asked", "found"),
    [
        (["3.0", "4.0"], ["3", "3.0", "x"], [1, 1, 0]),
        (["3", "4"], ["3.0", "3", "3.00"], [1, 1, 0]),
        (["3.0", "2.5"], ["3", "2.5", "-3"], [1, 2, 0]),  # a column of prices
        (["3", "3.0"], ["3", "3.0", "4.0"], [1, 2, 0]),  # two values
        (["a", "b"], ["1.0", "a", ""], [0, 1, 0]),
        (["", "007"], ["7.0", "007.0", ""], [0, 2, 1]),
        ([], ["3.0", "3", ""], [0, 0, 0]),
    ],
)
def test_values_are_known_however_the_file_spells_integers(known, asked, found):
    vocabulary = Vocabulary(pl.Series(known, dtype=pl.String), np.ones(len(known), np.int64))
    assert vocabulary.to_ids(vocabulary.spelling.respell(pl.Series(asked), pl.String())).tolist() == found


@pytest.mark.parametrize("new_values", ["unknown", "append"])
@pytest.mark.parametrize("first_with_zero", [True, False])
def test_a_newer_text_file_has_the_ids_of_the_row_encoder(tmp_path: Path, new_values, first_with_zero):
    """Missing values in the earlier file and none in the newer one, or the other way round."""

    def table(ids, name, with_zero, **settings):
        texts = [f"{one}.0" if with_zero else f"{one}" for one in ids]
        frame = pl.DataFrame({"click": [row % 2 for row in range(len(ids))], "user": texts})
        frame.write_csv(tmp_path / f"{name}.csv")
        paths, fields = (str(tmp_path / f"{name}.csv"),), (FieldConfig(name="user"),)
        config = DataConfig(paths=paths, label="click", fields=fields, **settings)
        return frame, encode(build_source(config), tmp_path / name)

    table([row % 9 for row in range(300)], "first", first_with_zero)
    like = {"vocabulary_like": str(tmp_path / "first"), "new_values": new_values}
    frame, second = table([(7 * row) % 12 for row in range(300)], "second", not first_with_zero, **like)
    ids = np.sort(np.concatenate([second.split(name).ids[:, 0] for name in SPLITS]))
    served = np.sort(RowEncoder.load(tmp_path / "second").encode_frame(frame).ids[:, 0])
    assert np.array_equal(ids, served)
    assert len(set(served.tolist())) == (10 if new_values == "unknown" else 12)


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
def test_dates_are_read_in_their_format_and_other_values_are_null(text, date_format, moment):
    assert parse_dates(pl.Series([text, "soon", None]), date_format).to_list() == [moment, None, None]


def test_a_time_zone_in_the_format_works_with_missing_dates():
    found = parse_dates(pl.Series(["2014-10-21 23:05 +0000", None]), "%Y-%m-%d %H:%M %z")
    assert found.to_list() == [datetime(2014, 10, 21, 23, 5), None]


def test_iso_dates_are_not_accepted_if_the_format_reads_them_differently():
    cells = pl.Series(["2024-01-05", "2024-01-13"])
    assert parse_dates(cells, "%Y-%d-%m").to_list() == [datetime(2024, 5, 1), None]  # not 13 January beside 1 May
    assert parse_dates(cells, "%d.%m.%Y").to_list() == [datetime(2024, 1, 5), datetime(2024, 1, 13)]


def test_an_impossible_date_has_no_hour():
    cells = pl.Series(["2024-02-30 10:00", "2024-02-28 11:00"])
    assert read_date_part(cells, "%Y-%m-%d %H:%M", "hour").to_list() == [None, 11]
    assert read_date_part(pl.Series(["09.30"]), "%H.%M", "hour").to_list() == [9]


@pytest.mark.parametrize("date_format", ["", "%d.%m.%Y", "unix"])
def test_date_columns_need_no_format(date_format):
    moments = parse_dates(pl.Series([date(2014, 10, 21), None]), date_format)
    assert moments.to_list() == [datetime(2014, 10, 21), None]


def test_parts_of_a_date():
    tuesday = pl.Series([datetime(2014, 10, 21, 23, 30)])
    parts = {"hour": 23, "weekday": 2, "day": 21, "month": 10, "year": 2014, "hour_of_week": 24 + 23}
    assert {part: date_part(tuesday, part).item() for part in parts} == parts
