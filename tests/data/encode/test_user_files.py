"""Each setting of users' files is checked against a naive implementation."""

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from thresher.data.batches.split_batches import SplitBatches
from thresher.data.config import DataConfig, DenseConfig, FieldConfig, SplitConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.sources import build_source
from thresher.data.schema import SPLITS
from thresher.data.table import EncodedTable
from thresher.errors import ConfigError, DataError, SettingsConflictError

ROWS = 600


def frame() -> pl.DataFrame:
    rng = random.Random(1)
    return pl.DataFrame(
        {
            "click": [rng.choice("01") for _ in range(ROWS)],
            "site": [rng.choice("abcde") for _ in range(ROWS)],
            "other": [rng.choice("defgh") for _ in range(ROWS)],
            "price": [rng.choice(["", f"{rng.random():.4f}"]) for _ in range(ROWS)],
            "when": [f"2024-03-{1 + at // 24 % 28:02d} {at % 24:02d}:30:00" for at in range(ROWS)],
            "tags": ["|".join(rng.choices("uvwxyz", k=rng.randrange(4))) for _ in range(ROWS)],
            "part": [rng.choice(["train", "train", "valid", "TEST"]) for _ in range(ROWS)],
            "weight": [str(rng.randrange(5)) for _ in range(ROWS)],
        }
    )


def make(tmp_path: Path, data: pl.DataFrame, *fields: FieldConfig, **settings: Any) -> EncodedTable:
    path = tmp_path / "rows.csv"
    data.write_csv(path)
    fields = fields or (FieldConfig(name="site"),)
    source = build_source(DataConfig(paths=(str(path),), label="click", fields=fields, **settings))
    return encode(source, tmp_path / "out", overwrite=True)


def rows_of(table: EncodedTable) -> int:
    return sum(table.split(name).num_rows for name in SPLITS)


def values_of(table: EncodedTable, at: int = 0) -> list[str]:
    return RowEncoder.load(table.folder).vocabularies[at].values.to_list()


def check_same_as_encoder(table: EncodedTable, data: pl.DataFrame) -> None:
    """Every stored row equals the encoded raw row; rows of a split are in file order."""
    encoded = RowEncoder.load(table.folder).encode_frame(data)
    stored = np.concatenate([table.split(name).ids for name in SPLITS])
    order = np.lexsort(encoded.ids.T), np.lexsort(stored.T)
    assert np.array_equal(encoded.ids[order[0]], stored[order[1]])


def test_quantile_buckets_have_equally_many_training_rows(tmp_path: Path) -> None:
    table = make(tmp_path, frame(), FieldConfig(name="price", transform="quantiles", num_buckets=4))
    field = table.schema.fields[0]
    assert len(field.edges) == 3
    assert set(values_of(table)) == {"0", "1", "2", "3", ""}
    buckets = table.feature_counts[1:][[value != "" for value in values_of(table)]]
    assert buckets.max() - buckets.min() <= 2
    check_same_as_encoder(table, frame())


def test_a_hashed_field_has_at_most_num_buckets_values(tmp_path: Path) -> None:
    data = frame().with_columns(site=pl.Series([f"user{at}" for at in range(ROWS)]))
    table = make(tmp_path, data, FieldConfig(name="site", transform="hash", num_buckets=16))
    assert table.schema.fields[0].size <= 17
    check_same_as_encoder(table, data)
    with pytest.raises(ConfigError, match="num_buckets"):
        FieldConfig(name="site", transform="hash")


def test_date_parts(tmp_path: Path) -> None:
    hour = FieldConfig(name="hour", column="when", transform="date")
    weekday = FieldConfig(name="weekday", column="when", transform="date", date_part="weekday")
    table = make(tmp_path, frame(), hour, weekday)
    assert set(values_of(table, 0)) == {str(hour) for hour in range(24)}
    assert set(values_of(table, 1)) == {str(day) for day in range(1, 8)}
    check_same_as_encoder(table, frame())
    encoder = RowEncoder.load(table.folder)
    monday = encoder.encode_frame(pl.DataFrame({"when": ["2024-03-04"]})).ids[0]
    assert [values_of(table, at)[monday[at] - table.schema.field_offsets[at] - 1] for at in (0, 1)] == ["0", "1"]
    with pytest.raises(DataError, match=r"rows\.csv:2: column 'site': '.' is not a date"):
        make(tmp_path, frame(), FieldConfig(name="site", transform="date"))


def test_a_shared_vocabulary_is_counted_together(tmp_path: Path) -> None:
    table = make(tmp_path, frame(), FieldConfig(name="site"), FieldConfig(name="other", vocabulary="site"))
    assert values_of(table, 0) == values_of(table, 1)
    assert set(values_of(table)) == set("abcdefgh")
    assert table.schema.num_features == 18
    site, other = table.feature_counts[:9], table.feature_counts[9:]
    assert site.sum() == other.sum() == table.split("train").num_rows
    assert list(site + other)[1:] == sorted((site + other)[1:], reverse=True)
    check_same_as_encoder(table, frame())
    with pytest.raises(ConfigError, match="no vocabulary of its own"):
        make(tmp_path, frame(), FieldConfig(name="site", vocabulary="nobody"))


@pytest.mark.parametrize("kind", ["text", "lists"])
def test_bags_contain_the_values_of_each_row(tmp_path: Path, kind: str) -> None:
    tags = FieldConfig(name="tags", separator="|" if kind == "text" else "", pooling="sum", min_count=2)
    data = frame()
    if kind == "lists":
        data = data.with_columns(pl.col("tags").str.split("|").list.eval(pl.element().filter(pl.element() != "")))
        data.write_parquet(tmp_path / "rows.parquet")
        config = DataConfig(
            paths=(str(tmp_path / "rows.parquet"),), label="click", fields=(tags, FieldConfig(name="site"))
        )
        table = encode(build_source(config), tmp_path / "out")
    else:
        table = make(tmp_path, data, tags, FieldConfig(name="site"))
    assert table.schema.field_names == ("site", "tags")  # bags come last
    vocabulary, offset = values_of(table, 1), table.schema.field_offsets[1]
    bags = {name: table.split(name).bags[0] for name in SPLITS}
    found = Counter()
    for bag in bags.values():
        assert (bag.field, bag.pooling) == (1, "sum")
        for start, end in zip(bag.offsets[:-1], bag.offsets[1:], strict=True):
            found["|".join(vocabulary[value - offset - 1] for value in bag.values[start:end])] += 1
    raw = frame()["tags"]
    assert found == Counter(raw.to_list())
    counts = np.bincount(bags["train"].values, minlength=table.schema.num_features)[offset:]
    assert np.array_equal(counts, table.feature_counts[offset:])
    encoded = RowEncoder.load(table.folder).encode_frame(data).bags[0]
    assert Counter(np.diff(encoded.offsets)) == Counter(len(text.split("|")) if text else 0 for text in raw)


def test_dense_columns_and_weights(tmp_path: Path) -> None:
    dense = (DenseConfig(name="price"), DenseConfig(name="raw", column="price", scaling="none"))
    table = make(tmp_path, frame(), dense=dense, weight="weight")
    train = table.split("train")
    assert train.dense is not None
    assert train.weights is not None
    price, raw = train.dense.T
    present = raw != 0
    assert np.isclose(price[present].mean(), 0, atol=1e-5)
    assert np.isclose(price[present].std(), 1, atol=1e-5)
    assert np.allclose(price[~present], 0)  # missing: the mean
    assert set(train.weights.tolist()) == {0.0, 1.0, 2.0, 3.0, 4.0}
    encoded = RowEncoder.load(table.folder).encode_frame(frame()).dense
    stored = np.concatenate([table.split(name).dense for name in SPLITS])  # type: ignore[misc]
    assert encoded is not None
    assert np.array_equal(np.sort(encoded, axis=0), np.sort(stored, axis=0))
    with pytest.raises(DataError, match=r"rows\.csv:3: column 'weight': '-1' is missing or negative"):
        make(tmp_path, frame().with_columns(weight=pl.Series(["1", "-1"] * (ROWS // 2))), weight="weight")


def test_log_scaling_keeps_the_sign_and_standardises_after_the_logarithm(tmp_path: Path) -> None:
    data = frame().with_columns(balance=pl.Series([str(at - 200) for at in range(ROWS)]))
    table = make(tmp_path, data, dense=(DenseConfig(name="balance", scaling="log"),))
    (column,) = table.schema.dense
    rows = pl.DataFrame({"site": "a", "balance": ["-7", "0", "7"]})
    dense = RowEncoder.load(table.folder).encode_frame(rows).dense
    assert dense is not None
    np.testing.assert_allclose(dense[:, 0] * column.scale + column.mean, np.log([1 / 8, 1, 8]), atol=1e-5)
    train = table.split("train").dense
    assert train is not None
    assert np.isclose(train.std(), 1, atol=1e-5)


@pytest.mark.parametrize("value", ["12,5", "inf", [1.0], b"x"])
def test_a_dense_value_that_is_not_a_number_raises(tmp_path: Path, value: Any) -> None:
    table = make(tmp_path, frame(), dense=(DenseConfig(name="cost", column="price"),))
    prices = [None, None, value] if not isinstance(value, str) else ["1.5", None, value]
    rows = pl.DataFrame({"site": ["a", "b", "c"], "price": prices})
    encoder = RowEncoder.load(table.folder)
    with pytest.raises(DataError, match=r"^column 'price': .* in row 2 is not a number") as caught:
        encoder.encode_frame(rows)
    assert (caught.value.column, str(caught.value).count("12,5")) == ("price", int(value == "12,5"))
    dense = encoder.encode_frame(rows.head(2)).dense
    assert dense is not None
    assert dense[1].item() == 0  # missing: the mean
    if isinstance(value, str):
        raw = frame().with_columns(price=pl.Series(["1", value] * (ROWS // 2)))
        with pytest.raises(DataError, match=r"rows\.csv:3: column 'price': .* is not a number"):
            make(tmp_path, raw, dense=(DenseConfig(name="cost", column="price"),))


def test_split_by_column(tmp_path: Path) -> None:
    table = make(tmp_path, frame(), split=SplitConfig(by="column", column="part"))
    counts = Counter(frame()["part"])
    assert table.metadata["rows"] == {"train": counts["train"], "validation": counts["valid"], "test": counts["TEST"]}
    with pytest.raises(DataError, match=r"rows\.csv:2: column 'site' must be train, validation or test"):
        make(tmp_path, frame(), split=SplitConfig(by="column", column="site"))


def test_split_by_time(tmp_path: Path) -> None:
    data = frame().with_columns(moment=pl.Series([str(at * 7 % ROWS) for at in range(ROWS)]))
    fields = (FieldConfig(name="moment"),)
    by_share = make(tmp_path, data, *fields, split=SplitConfig(by="time", column="moment"), vocabulary_from="all")
    assert by_share.metadata["rows"] == {"train": 480, "validation": 60, "test": 60}
    test_ids = by_share.split("test").ids[:, 0] - 1
    assert {int(values_of(by_share)[at]) for at in test_ids} == set(range(540, 600))
    said = SplitConfig(by="time", column="when", validation_from="2024-03-20", test_from="2024-03-24")
    table = make(tmp_path, data, split=said)
    assert table.metadata["rows"]["train"] == 19 * 24
    assert table.metadata["rows"]["validation"] == 4 * 24


@pytest.mark.parametrize("said", [{}, {"validation_from": "480", "test_from": "540"}])
def test_an_invalid_time_skips_only_its_own_row(tmp_path: Path, said: dict[str, str]) -> None:
    moments = [str(at) for at in range(ROWS)]
    moments.insert(300, "soon")
    data = pl.DataFrame({"click": ["0", "1"] * (ROWS // 2) + ["1"], "site": "a", "moment": moments})
    split = SplitConfig(by="time", column="moment", **said)
    table = make(tmp_path, data, split=split, bad_rows="skip")
    assert table.metadata["rows"] == {"train": 480, "validation": 60, "test": 60}
    assert [line for _, line, _ in table.metadata["skipped_samples"]] == [302]
    with pytest.raises(DataError, match=r"rows\.csv:302: column 'moment' is neither a number nor a date"):
        make(tmp_path, data, split=split)


def test_split_by_files(tmp_path: Path) -> None:
    data = frame()
    for name, rows in (("a.csv", data[:400]), ("b.csv", data[400:500]), ("c.csv", data[500:])):
        rows.write_csv(tmp_path / name)
    split = SplitConfig(by="files", validation_paths=(str(tmp_path / "b.csv"),), test_paths=(str(tmp_path / "c.csv"),))
    config = DataConfig(
        paths=(str(tmp_path / "a.csv"),), label="click", fields=(FieldConfig(name="site"),), split=split
    )
    table = encode(build_source(config), tmp_path / "out")
    assert table.metadata["rows"] == {"train": 400, "validation": 100, "test": 100}
    assert table.split("test").labels.tolist() == [int(label) for label in data["click"][500:]]


def test_bad_rows_are_skipped_counted_and_shown(tmp_path: Path) -> None:
    lines = ["click,site,n", *(f"{at % 2},s{at % 3},{at}" for at in range(100))]
    good = "\n".join(lines) + "\n"
    bad = ["1,s0", "1,s0,1,2", "2,s0,1", ",s0,1", "1,s0,many", "1,\udce9,1", "1,\0,1"]
    for at, line in enumerate(bad):
        lines.insert(10 + 5 * at, line)
    for name, text in (("good.csv", good), ("bad.csv", "\n".join(lines) + "\n")):
        (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    fields = (FieldConfig(name="site"), FieldConfig(name="n", transform="log2"))
    tables = {}
    for name in ("good", "bad"):
        config = DataConfig(paths=(str(tmp_path / f"{name}.csv"),), label="click", fields=fields, bad_rows="skip")
        tables[name] = encode(build_source(config), tmp_path / name)
    assert tables["bad"].metadata["skipped"] == len(bad)
    samples = {line: reason for _, line, reason in tables["bad"].metadata["skipped_samples"]}
    assert sorted(samples) == [11 + 5 * at for at in range(len(bad))]
    assert [samples[11 + 5 * at].split(";")[0].split(". ")[0] for at in range(len(bad))] == [
        "has 2 columns, expected 3",
        "has 4 columns, expected 3",
        "column 'click': '2' is not a label: expected 0 or 1",
        "column 'click': '' is not a label: it is missing",
        "column 'n': 'many' is not a number",
        "contains a byte that is not UTF-8",
        "contains a NUL byte: the file is binary or damaged",
    ]
    for name in SPLITS:
        assert np.array_equal(tables["good"].split(name).ids, tables["bad"].split(name).ids)


def test_skipped_rows_have_no_bags_and_no_split(tmp_path: Path) -> None:
    """An invalid number, an invalid value in a bag and an unknown split do not change the other rows."""
    columns = ["click", "n", "tags", "part"]
    tags = ["", "0", "0|1", "0|1|2"]
    rows = [(str(at % 2), str(at % 5), tags[at % 4], ("train", "valid", "test")[at % 3]) for at in range(90)]
    bad = [("1", "many", "1|2|3", "train"), ("1", "2", "3|x|3", "train"), ("1", "2", "0|1", "never")]
    mixed = [*rows[:40], bad[0], *rows[40:60], *bad[1:], *rows[60:]]
    fields = (
        FieldConfig(name="n", transform="log2"),
        FieldConfig(name="tags", separator="|", pooling="sum", transform="log2"),
    )
    split, tables = SplitConfig(by="column", column="part"), []
    for name, some in (("clean", rows), ("mixed", mixed)):
        (tmp_path / name).mkdir()
        data = pl.DataFrame(some, schema=columns, orient="row")
        tables.append(make(tmp_path / name, data, *fields, split=split, bad_rows="skip"))
    clean, left = tables
    assert left.metadata["skipped"] == 3
    for name in SPLITS:
        one, other = clean.split(name), left.split(name)
        assert np.array_equal(one.ids, other.ids)
        assert np.array_equal(one.labels, other.labels)
        assert np.array_equal(one.bags[0].values, other.bags[0].values)
        assert np.array_equal(one.bags[0].offsets, other.bags[0].offsets)


@pytest.mark.parametrize("new_values", ["unknown", "append"])
def test_a_newer_file_with_an_earlier_vocabulary(tmp_path: Path, new_values: str) -> None:
    fields = (
        FieldConfig(name="site"),
        FieldConfig(name="price", transform="quantiles", num_buckets=4),
        FieldConfig(name="tags", separator="|", pooling="mean"),
    )
    first = make(tmp_path, frame(), *fields, dense=(DenseConfig(name="w", column="weight"),))
    first_values = [values_of(first, at) for at in range(3)]
    (tmp_path / "out").rename(tmp_path / "yesterday")
    later = frame().with_columns(site=pl.Series([f"n{at % 3}" if at % 4 == 0 else "a" for at in range(ROWS)]))
    later.write_csv(tmp_path / "later.csv")
    config = DataConfig(
        paths=(str(tmp_path / "later.csv"),), vocabulary_like=str(tmp_path / "yesterday"), new_values=new_values
    )  # type: ignore[arg-type]
    table = encode(build_source(config), tmp_path / "today")
    assert table.schema.dense == first.schema.dense
    assert table.schema.fields[1] == first.schema.fields[1]
    assert [values_of(table, at) for at in (1, 2)] == first_values[1:]
    assert values_of(table)[:5] == first_values[0]
    assert sorted(values_of(table)[5:]) == (["n0", "n1", "n2"] if new_values == "append" else [])
    unknown = sum(int((table.split(name).ids[:, 0] == 0).sum()) for name in SPLITS)
    assert unknown == (0 if new_values == "append" else ROWS // 4)
    check_same_as_encoder(table, later)


def test_compressed_files_are_read_directly(tmp_path: Path) -> None:
    table = make(tmp_path, frame())
    expected = {name: np.array(table.split(name).ids) for name in SPLITS}
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress((tmp_path / "rows.csv").read_bytes()))
    config = DataConfig(paths=(str(tmp_path / "rows.csv.gz"),), label="click", fields=(FieldConfig(name="site"),))
    packed = encode(build_source(config), tmp_path / "packed")
    assert all(np.array_equal(packed.split(name).ids, expected[name]) for name in SPLITS)


def test_summary_is_plain_json(tmp_path: Path) -> None:
    table = make(tmp_path, frame())
    assert json.loads((table.folder / "table.json").read_text())["rows"] == table.metadata["rows"]
    assert rows_of(table) == ROWS


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"fields": (FieldConfig(name="site"), FieldConfig(name="click"))}, "a field"),
        ({"fields": (FieldConfig(name="answer", column="click"),)}, "a field"),
        ({"dense": (DenseConfig(name="click"),)}, "a dense column"),
        ({"weight": "click"}, "the sample weight"),
    ],
)
def test_the_label_cannot_be_an_input(tmp_path: Path, settings: dict[str, Any], told: str) -> None:
    frame().write_csv(tmp_path / "rows.csv")
    fields = settings.pop("fields", (FieldConfig(name="site"),))
    with pytest.raises(ConfigError, match=f"column 'click' is both the label and {told}"):
        build_source(DataConfig(paths=(str(tmp_path / "rows.csv"),), label="click", fields=fields, **settings))


def test_two_fields_with_one_name_raise_before_reading(tmp_path: Path) -> None:
    frame().write_csv(tmp_path / "rows.csv")
    fields = (FieldConfig(name="price", transform="log2"), FieldConfig(name="price", transform="quantiles"))
    with pytest.raises(DataError, match="two fields are called 'price'"):
        build_source(DataConfig(paths=(str(tmp_path / "rows.csv"),), label="click", fields=fields))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"paths": "rows.csv"}, r'DataConfig: paths: expected an array .* got "rows\.csv"'),
        ({"drop": "site"}, "DataConfig: drop: expected an array"),
        ({"fields": ("site", "other")}, r"DataConfig: fields\[0\]: expected a table"),
        ({"positive": (1,)}, r"DataConfig: positive\[0\]: expected a string, got 1"),
    ],
)
def test_settings_of_the_wrong_type_raise(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        build_source(DataConfig(**{"paths": ("rows.csv",), "label": "click", **settings}))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"date_part": "weekday"}, "date_part has no effect with the transform 'none'.*transform = \"date\""),
        ({"date_format": "%Y", "transform": "hash", "num_buckets": 9}, "date_format has no effect"),
        ({"num_buckets": 9}, 'num_buckets has no effect.*transform = "quantiles" or "hash"'),
        ({"shift": 1.5, "transform": "quantiles"}, "shift has no effect"),
    ],
)
def test_settings_of_another_transform_raise(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsConflictError, match=f"field 'site': {problem}"):
        FieldConfig(name="site", **settings)


def test_append_needs_an_earlier_table() -> None:
    with pytest.raises(ConfigError, match=r"needs data\.vocabulary_like"):
        DataConfig(paths=("rows.csv",), new_values="append")


def test_a_split_by_time_needs_enough_distinct_times(tmp_path: Path) -> None:
    data = frame().with_columns(when=pl.lit("2024-03-01"))
    with pytest.raises(DataError, match="too many rows have the same time for a split by time"):
        make(tmp_path, data, split=SplitConfig(by="time", column="when"))


@pytest.mark.parametrize(("name", "part"), [("validation", "valid"), ("test", "TEST")])
def test_a_split_with_one_class_raises_before_training(tmp_path: Path, name: str, part: str) -> None:
    negative = pl.when(pl.col("part") == part).then(pl.lit("0")).otherwise(pl.col("click"))
    table = make(tmp_path, frame().with_columns(click=negative), split=SplitConfig(by="column", column="part"))
    with pytest.raises(DataError, match=f"labels of the {name} split are 0, but AUC needs both 0 and 1"):
        SplitBatches.of(table, 16, seed=0)


def test_one_file_given_twice_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rows.csv"
    frame().write_csv(path)
    (tmp_path / "link.csv").symlink_to(path)
    fields = (FieldConfig(name="site"),)
    for other, said in ((path, "is given twice"), (tmp_path / "link.csv", "are one file")):
        caplog.clear()
        build_source(DataConfig(paths=(str(path), str(other)), label="click", fields=fields))
        assert said in caplog.text


def test_a_label_that_is_dropped_or_repeated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rows.csv"
    frame().with_columns(copy=pl.col("click")).write_csv(path)
    with pytest.raises(ConfigError, match=r"data\.drop names the label column 'click'"):
        build_source(DataConfig(paths=(str(path),), label="click", drop=("click",)))
    build_source(DataConfig(paths=(str(path),), label="click"))
    assert "column 'copy' has the same values as the label 'click'" in caplog.text
    caplog.clear()
    build_source(DataConfig(paths=(str(path),), label="click", drop=("copy",)))
    assert "same values" not in caplog.text
