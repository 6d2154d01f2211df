from dataclasses import replace
from datetime import datetime, time, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from thresher.data.config import DataConfig, DenseConfig, FieldConfig, SplitConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.sources import build_source
from thresher.data.read.guess_columns import Guess, guess_columns
from thresher.data.read.sample_rows import sample_rows
from thresher.data.schema import FileFormat
from thresher.errors import DataError


def guess_file(path: Path, config: DataConfig | None = None) -> Guess:
    return guess_columns(sample_rows([path], FileFormat()), config)


def guess(path: Path, frame: pl.DataFrame, config: DataConfig | None = None) -> dict[str, str]:
    frame.write_csv(path)
    result = guess_file(path, config)
    return {"label": result.label} | {field.name: field.transform for field in result.fields}


def test_columns_are_guessed_by_their_values(tmp_path: Path) -> None:
    rows = 1000
    frame = pl.DataFrame(
        {
            "id": range(rows),
            "click": [row % 2 for row in range(rows)],
            "banner": [row % 7 for row in range(rows)],
            "user_id": range(10_000, 10_000 + rows),
            "views": [row * row for row in range(rows)],
            "price": [row / 8 for row in range(rows)],
            "site": [f"s{row % 30}" for row in range(rows)],
        }
    )
    assert guess(tmp_path / "a.csv", frame) == {
        "label": "click",
        "banner": "none",
        "user_id": "none",
        "views": "log2",
        "price": "quantiles",
        "site": "none",
    }
    result = guess_file(tmp_path / "a.csv")
    assert dict(result.reasons)["id"].startswith("not used")
    assert set(dict(result.reasons)) == set(frame.columns)


def test_label_by_name_then_only_then_place(tmp_path: Path) -> None:
    binary, other = [0, 1, 1], ["x", "y", "z"]
    assert guess(tmp_path / "a.csv", pl.DataFrame({"b": binary, "Label": binary, "c": other}))["label"] == "Label"
    assert guess(tmp_path / "a.csv", pl.DataFrame({"a": other, "b": binary, "c": other}))["label"] == "b"
    assert guess(tmp_path / "a.csv", pl.DataFrame({"a": binary, "b": binary, "c": other}))["label"] == "a"
    with pytest.raises(DataError, match="cannot guess the label column"):
        guess(tmp_path / "a.csv", pl.DataFrame({"a": other, "c": other}))


@pytest.mark.parametrize(
    ("values", "held"),
    [
        (["0", "1", "1", "?"], r"1 \(2\), 0 \(1\), \? \(1\)"),
        (["yes", "no", "no", "no"], r"no \(3\), yes \(1\)"),
        (["0", "0", "0", "0"], r"0 \(4\)"),
    ],
)
def test_a_column_named_like_a_label_must_be_binary(tmp_path: Path, values, held) -> None:
    path = tmp_path / "a.csv"
    frame = pl.DataFrame({"member": [0, 1, 1, 0], "clicked": values, "site": ["a", "b", "a", "b"]})
    with pytest.raises(DataError, match=rf"column 'clicked': .*0 and 1: {held}. .*data.label"):
        guess(path, frame)
    assert guess(path, frame, DataConfig(label="clicked"))["label"] == "clicked"
    assert guess(path, frame, DataConfig(drop=("clicked",)))["label"] == "member"
    assert guess(path, frame, DataConfig(fields=(FieldConfig(name="clicked"),)))["label"] == "member"
    if "yes" in values:
        assert guess(path, frame, DataConfig(positive=("yes",)))["label"] == "clicked"
    named = frame.rename({"member": "label"})  # the first of the names decides
    assert guess(path, named)["label"] == "label"


def test_a_guessed_label_names_columns_of_yes_and_no(tmp_path: Path) -> None:
    frame = pl.DataFrame({"member": [0, 1, 1, 0], "site": ["a", "b", "a", "b"], "good": ["yes", "no", "No", "yes"]})
    frame.write_csv(path := tmp_path / "a.csv")
    assert dict(guess_file(path).reasons)["member"] == (
        "label: the only 0/1 column; or is it good? Then set label and positive"
    )
    assert dict(guess_file(path, DataConfig(label="member")).reasons)["member"] == "label: as you set it"


def test_settings_override_guesses(tmp_path: Path) -> None:
    frame = pl.DataFrame({"stars": ["1", "5", "4"], "click": [0, 1, 0], "c": ["x", "y", "z"]})
    config = DataConfig(label="stars", positive=("4", "5"), drop=("click",))
    assert guess(tmp_path / "a.csv", frame, config) == {"label": "stars", "c": "none"}


def test_lists_are_bags_and_columns_with_another_role_are_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = {
        "click": [0, 1],
        "tags": [["x"], []],
        "when": [1, 2],
        "w": [1.0, 2.0],
        "price": [0.5, 0.7],
        "s": ["a", "b"],
    }
    pl.DataFrame(columns).write_parquet(path)
    config = DataConfig(
        dense=(DenseConfig(name="price"),), weight="w", split=SplitConfig(by="time", column="when"), drop=("s",)
    )
    result = guess_file(path, config)
    assert [(field.name, field.pooling) for field in result.fields] == [("tags", "mean")]
    assert set(dict(result.reasons)) == set(columns)


def test_hints_for_text_that_is_not_a_category(tmp_path: Path) -> None:
    rows = range(200)
    frame = pl.DataFrame(
        {
            "click": [row % 2 for row in rows],
            "seen_at": ["unknown" if row == 7 else f"2024-01-{row % 28 + 1:02}T10:00" for row in rows],
            "tags": ["|".join(f"t{tag}" for tag in range(row % 4)) for row in rows],
            "price": ["NA" if row % 20 == 0 else str(row / 7) for row in rows],
            "session": [f"s{row:x}" for row in rows],
            "city": [f"city {row % 9}" for row in rows],
            "note": [f"note {row % 2}" if row % 3 == 0 else "" for row in rows],
            "often": ["" if row % 3 else "soon" if row == 9 else f"2024-01-{row % 28 + 1:02}" for row in rows],
            "euros": [f"{row % 9},{row % 97:02}" for row in rows],
            "dollars": [f"{row % 9 + 1},{row % 997:03}.50" for row in rows],
            "pair": [f"a{row % 9},b{row % 97}" for row in rows],
        }
    )
    frame.write_csv(path := tmp_path / "rows.csv")
    reasons = dict(guess_file(path).reasons)
    part = 'Use "seen_at:hour", or transform = "date", date_part = "hour" in the settings'
    assert f"dates? {part}" in reasons["seen_at"]
    assert "numbers with commas? Use a decimal point" in reasons["euros"]
    assert "numbers with commas? Use a decimal point" in reasons["dollars"]
    assert "several values separated by ','?" in reasons["pair"]
    assert 'dates? Use "often:weekday"' in reasons["often"]  # all times are midnight
    assert reasons["note"] == "categorical: text, 3 distinct values in 200 rows"
    assert "separator = '|'" in reasons["tags"]
    assert "numbers except for 'NA'?" in reasons["price"]
    assert "Drop it" in reasons["session"]
    assert reasons["city"] == "categorical: text, 9 distinct values in 200 rows"


def test_text_of_iso_dates_is_guessed_like_dates(tmp_path: Path) -> None:
    rows = range(200)
    frame = pl.DataFrame(
        {
            "click": [row % 2 for row in rows],
            "at": [f"2026-05-{row % 28 + 1:02} {row % 24:02}:33:{row % 60:02}" for row in rows],
            "zoned": ["" if row % 3 == 0 else f"2026-05-{row % 28 + 1:02}T{row % 24:02}:33Z" for row in rows],
            "day": [f"2026-05-{row % 28 + 1:02}" for row in rows],
            "part": [f"{row % 9 + 1}-1-{row % 28 + 1}" for row in rows],
            "invalid": [f"2026-02-{row % 31 + 1:02}" for row in rows],
        }
    )
    frame.write_csv(path := tmp_path / "rows.csv")
    found = guess_file(path)
    dates = {field.name: field.date_part for field in found.fields if field.transform == "date"}
    assert dates == {"at": "hour", "zoned": "hour", "day": "weekday"}
    assert dict(found.reasons)["at"] == "date: text of dates, the hour; set date_part for another part"
    assert dict(found.reasons)["part"].startswith("categorical: text")


def test_dates_in_parquet_and_unix_seconds_are_guessed(tmp_path: Path) -> None:
    rows = range(400)
    moments = [datetime(2024, 3, 5) + timedelta(hours=5 * row) for row in rows]
    frame = pl.DataFrame(
        {
            "click": [row % 2 for row in rows],
            "at": [None, *moments[1:]],
            "there": pl.Series(moments, dtype=pl.Datetime("ns")).dt.replace_time_zone("UTC"),
            "day": pl.Series(moments).dt.date(),
            "midnight": pl.Series(moments).dt.date().cast(pl.Datetime),
            "seconds": [1_709_600_000 + 977 * row for row in rows],
            "amount": [1_000_000_000 - 1 + 977 * row for row in rows],
        }
    )
    frame.write_parquet(path := tmp_path / "rows.parquet")
    found = guess_file(path)
    taken = {field.name: (field.transform, field.date_part) for field in found.fields if field.transform == "date"}
    assert taken == {
        "at": ("date", "hour"),
        "there": ("date", "hour"),
        "day": ("date", "weekday"),
        "midnight": ("date", "weekday"),
    }
    reasons = dict(found.reasons)
    assert reasons["at"].startswith("date: ")
    assert 'date_format = "unix"' in reasons["seconds"]
    assert "1970" not in reasons["amount"]
    table = encode(build_source(DataConfig(paths=(str(path),))), tmp_path / "encoded")
    sizes = {field.name: field.size - 1 for field in table.schema.fields}
    assert (sizes["at"], sizes["there"], sizes["day"]) == (25, 24, 7)


def test_a_last_line_without_a_line_end_is_used_for_guessing(tmp_path: Path) -> None:
    (path := tmp_path / "rows.csv").write_text("click,site\n0,a\n1,b\n0,c")
    found = guess_file(path)
    assert dict(found.reasons)["site"] == "categorical: text, 3 distinct values in 3 rows"
    path.write_text("click,site\n0,a")
    assert guess_file(path, DataConfig(label="click")).fields[0].name == "site"


def test_categories_and_times_of_day_in_parquet_are_texts(tmp_path: Path) -> None:
    rows = range(400)
    sites = [f"s{row % 9}" for row in rows]
    frame = pl.DataFrame(
        {
            "click": pl.Series([str(row % 2) for row in rows], dtype=pl.Categorical),
            "site": pl.Series(sites, dtype=pl.Categorical),
            "place": pl.Series(sites, dtype=pl.Enum(sorted(set(sites)))),
            "member": [row % 3 == 0 for row in rows],
            "clock": [time(row % 24, row % 60, row % 7) for row in rows],
        }
    )
    frame.write_parquet(path := tmp_path / "rows.parquet")
    config = DataConfig(paths=(str(path),))
    source = build_source(config)
    assert {field.transform for field in source.plan.fields} == {"none"}
    assert 'times of day? Use "clock:hour"' in dict(source.guess.reasons)["clock"]
    assert dict(source.guess.reasons)["member"] == "categorical: text, 2 distinct values in 400 rows"
    encoder = RowEncoder.load(encode(source, tmp_path / "encoded").folder)
    values = {f.name: set(v.values) for f, v in zip(encoder.schema.fields, encoder.vocabularies, strict=True)}
    assert values["site"] == values["place"] == set(sites)
    assert values["clock"] <= {str(moment) for moment in frame["clock"]}
    fields = (FieldConfig(name="clock", transform="date"),)
    table = encode(build_source(replace(config, label="click", fields=fields)), tmp_path / "hours")
    assert set(RowEncoder.load(table.folder).vocabularies[0].values) == {str(hour) for hour in range(24)}


def test_a_column_without_a_name_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for first, reason in (range(4), "a row number, different in every row"), ([1, 1, 2, 2], "it has no name"):
        path.write_text(",click,site\n" + "".join(f"{number},{row % 2},a\n" for row, number in enumerate(first)))
        found = guess_file(path)
        assert dict(found.reasons)[""] == f"not used: {reason}"
        assert [field.name for field in found.fields] == ["site"]


CODE_NAMES = ["item", "user", "Movie", "shown-ad", "targetItem", "STORE", "device_2", "user_id", "userid", "zip5"]
CODE_NAMES += ["flight_number", "FL_NUM", "TailNum", "phonenumber", "isbn13", "Phone", "order_no", "device_type"]


@pytest.mark.parametrize("name", CODE_NAMES)
def test_integers_named_like_codes_are_categories(tmp_path: Path, name: str) -> None:
    frame = pl.DataFrame({"click": [row % 2 for row in range(1000)], name: range(1000)})
    assert guess(tmp_path / "a.csv", frame)[name] == "none"
    assert "ids because of the name" in dict(guess_file(tmp_path / "a.csv").reasons)[name]


QUANTITY_NAMES = ["user_visits", "itemCount", "load", "number", "visits_per_user", "num_users", "number_of_items"]
QUANTITY_NAMES += ["bid", "amount_paid", "tip", "total_num", "max_item"]


@pytest.mark.parametrize("name", QUANTITY_NAMES)
def test_integers_named_like_quantities_are_numeric(tmp_path: Path, name: str) -> None:
    frame = pl.DataFrame({"click": [row % 2 for row in range(1000)], name: range(1000)})
    assert guess(tmp_path / "a.csv", frame)[name] == "log2"


@pytest.mark.parametrize("name", ["price_per_item", "time_on_page", "item", "flight_number", "bid", "tip", "paid"])
def test_fractions_are_never_identifiers(tmp_path: Path, name: str) -> None:
    frame = pl.DataFrame({"click": [row % 2 for row in range(1000)], name: [row / 7 for row in range(1000)]})
    assert guess(tmp_path / "a.csv", frame)[name] == "quantiles"


@pytest.mark.parametrize(
    ("values", "transform", "reason"),
    [
        ([f"{row * 7 % 1000:05}" for row in range(1000)], "none", "numbers with leading zeros, so codes"),
        ([f"{9_780_000_000_000 + row * 7919}" for row in range(1000)], "none", "numbers of 13 digits each, so codes"),
        ([f"{9_780_000_000 + row * 7919}.0" for row in range(1000)], "none", "numbers of 10 digits each, so codes"),
        ([f"20{row % 30:02}{row % 12 + 1:02}{row % 28 + 1:02}" for row in range(1000)], "none", 'format = "%Y%m%d"'),
        ([f"{20_000 + row * 57}" for row in range(1000)], "log2", "many integers, log² buckets"),
        ([f"{10_000_000 + row}" for row in range(-500, 500)], "quantiles", "many integers in a narrow range"),
        ([f"{-10_000_000 - row}" for row in range(1000)], "log2", "many integers, log² buckets"),
        ([f"{1_700_000_000 + row * 977}" for row in range(1000)], "quantiles", "seconds since 1970? Set"),
        ([f"{1_700_000_000_000 + row * 977_123}" for row in range(1000)], "quantiles", "milliseconds since 1970?"),
    ],
    ids=["zip", "isbn", "floats", "dates", "salaries", "narrow", "negative", "unix", "unix ms"],
)
def test_integers_are_codes_or_quantities_by_their_values(tmp_path: Path, values, transform, reason) -> None:
    frame = pl.DataFrame({"click": [row % 2 for row in range(1000)], "x": values})
    assert guess(tmp_path / "a.csv", frame)["x"] == transform
    assert reason in dict(guess_file(tmp_path / "a.csv").reasons)["x"]


def test_few_of_many_rows_do_not_make_a_row_id(tmp_path: Path) -> None:
    rows = 30_000
    users = [f"u{row * 7919 % 25_000}" for row in range(rows)]
    frame = pl.DataFrame(
        {"click": [row % 2 for row in range(rows)], "user": users, "note": [f"n{row}" for row in range(rows)]}
    )
    frame.write_csv(path := tmp_path / "a.csv")
    reasons = dict(guess_file(path).reasons)
    assert "a row id? Drop it" in reasons["note"]
    assert "row id" not in reasons["user"]
    frame.head(1000).write_csv(path)
    assert "a row id? Drop it" in dict(guess_file(path).reasons)["user"]


def test_integers_that_recur_and_are_spread_evenly_are_ids(tmp_path: Path) -> None:
    draw, rows = np.random.default_rng(0), 20_000
    popular = draw.permutation(3000)[np.minimum(draw.zipf(1.2, rows), 3000) - 1]
    frame = pl.DataFrame(
        {
            "click": draw.integers(0, 2, rows),
            "s": draw.integers(1, 3000, rows),
            "popular": popular,
            "each": draw.permutation(rows),
            "counts": draw.geometric(0.01, rows),
            "amounts": draw.gamma(2, 500, rows).astype(int),
            "salaries": draw.normal(50_000, 15_000, rows).astype(int).clip(0),
            "change": draw.integers(-1500, 1500, rows),
        }
    )
    frame.write_csv(path := tmp_path / "a.csv")
    found = guess_file(path, DataConfig(label="click"))
    transforms = {field.name: field.transform for field in found.fields}
    assert transforms.pop("s") == transforms.pop("popular") == "none"
    assert set(transforms.values()) == {"log2"}
    assert "integers spread evenly, as ids are" in dict(found.reasons)["s"]


def test_ids_of_a_large_file_are_seen_in_a_sample(tmp_path: Path) -> None:
    draw, rows = np.random.default_rng(0), 300_000
    frame = pl.DataFrame({"click": draw.integers(0, 2, rows), "s": draw.integers(1, 20_000, rows)})
    frame.write_parquet(path := tmp_path / "a.parquet")
    assert guess_file(path).fields[0].transform == "none"


@pytest.mark.parametrize(("name", "transform"), [("timestamp", "quantiles"), ("createdAt", "quantiles"), ("x", "none")])
def test_early_times_are_known_by_their_name(tmp_path: Path, name: str, transform: str) -> None:
    frame = pl.DataFrame({"click": [row % 2 for row in range(1000)], name: [880_000_000 + row for row in range(1000)]})
    assert guess(tmp_path / "a.csv", frame)[name] == transform
    reason = dict(guess_file(tmp_path / "a.csv").reasons)[name]
    assert ("seconds since 1970" in reason) == (transform == "quantiles")


def test_codes_with_letters_are_not_called_numbers(tmp_path: Path) -> None:
    codes = ["V3N4P" if row % 9 == 0 else str(10_000 + 7 * (row % 90)) for row in range(1000)]
    frame = pl.DataFrame({"click": [row % 2 for row in range(1000)], "zip_code": codes, "constant": ["a"] * 1000})
    frame.write_csv(path := tmp_path / "a.csv")
    reasons = dict(guess_file(path).reasons)
    assert "numeric" not in reasons["zip_code"]
    assert reasons["constant"] == "categorical: text, 1 distinct value in 1,000 rows"
