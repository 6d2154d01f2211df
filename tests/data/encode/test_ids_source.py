"""Parquet files of ids are used as they are: the table holds the same ids, with given vocabularies or without."""

import numpy as np
import polars as pl
import pytest

from thresher.data.config import DataConfig, SplitConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.sources import build_source
from thresher.data.schema import SPLITS
from thresher.errors import ConfigError, DataError, TableExistsError

SCHEMA = """
label = "clicked"
dense = ["price"]
weight = "importance"
[[fields]]
name = "tags"
size = 30
pooling = "mean"
[[fields]]
name = "user"
size = 50
[[fields]]
name = "shop"
column = "shop_id"
size = 5
vocabulary = "shops.parquet"
"""
ROWS = 2_000


@pytest.fixture
def rows():
    draw = np.random.default_rng(0)
    tags = [draw.integers(0, 30, draw.integers(0, 4)).tolist() for _ in range(ROWS)]
    return pl.DataFrame(
        {
            "user": draw.integers(0, 50, ROWS),
            "shop_id": draw.integers(0, 5, ROWS).astype(np.int16),
            "tags": pl.Series(tags, dtype=pl.List(pl.UInt32)),
            "price": draw.random(ROWS),
            "importance": draw.random(ROWS) + 0.5,
            "clicked": draw.integers(0, 2, ROWS),
            "part": draw.choice(SPLITS, ROWS, p=[0.7, 0.2, 0.1]),
        }
    )


def config_of(folder, rows, **settings):
    """Two files, and the schema."""
    (folder / "schema.toml").write_text(SCHEMA)
    pl.DataFrame({"value": ["zoo", "bar", "inn", "den"]}).write_parquet(folder / "shops.parquet")
    rows[:1_200].write_parquet(folder / "a.parquet", row_group_size=500)
    rows[1_200:].write_parquet(folder / "b.parquet")
    paths = (str(folder / "[ab].parquet"),)
    split = SplitConfig(column="part")
    return DataConfig(
        **{"source": "ids", "paths": paths, "schema": str(folder / "schema.toml"), "split": split} | settings
    )


def test_ids_are_used_as_they_are(tmp_path, rows):
    table = encode(build_source(config_of(tmp_path, rows)), tmp_path / "table")
    assert table.schema.field_names == ("user", "shop", "tags")
    assert table.schema.field_sizes == (50, 5, 30)
    counts = np.zeros(85, np.int64)
    for name in SPLITS:
        split, own = table.split(name), rows.filter(pl.col("part") == name)
        assert np.array_equal(split.ids, np.stack([own["user"], own["shop_id"].cast(pl.Int64) + 50], 1))
        assert np.array_equal(split.labels, own["clicked"])
        assert np.allclose(split.dense[:, 0], own["price"])
        assert np.allclose(split.weights, own["importance"])
        assert np.array_equal(np.diff(split.bags[0].offsets), own["tags"].list.len())
        flat = own["tags"].explode(empty_as_null=False, keep_nulls=False).cast(pl.Int64).to_numpy() + 55
        assert np.array_equal(split.bags[0].values, flat)
        if name == "train":
            counts = np.bincount(np.concatenate([split.ids.ravel(), flat]), minlength=85)
    assert np.array_equal(table.feature_counts, counts)
    assert not (tmp_path / "table" / "scratch").exists()


def test_vocabularies_are_optional(tmp_path, rows):
    table = encode(build_source(config_of(tmp_path, rows)), tmp_path / "table")
    raw = pl.DataFrame(
        {"user": [17, 0, 999], "shop_id": ["inn", "zoo", "pub"], "tags": [[3], [], [29, 1]], "price": [1.0, 2, 3]}
    )
    encoded = RowEncoder.load(table.folder).encode_frame(raw)
    assert encoded.ids.tolist() == [[17, 53], [0, 51], [0, 50]]  # without a vocabulary the ids themselves are values
    assert encoded.bags[0].values.tolist() == [58, 84, 56]


def test_the_same_ids_open_the_same_table(tmp_path, rows):
    table = encode(build_source(config_of(tmp_path, rows)), tmp_path / "table")
    assert encode(build_source(config_of(tmp_path, rows)), tmp_path / "table").fingerprint == table.fingerprint
    changed = rows.with_columns(clicked=1 - pl.col("clicked"))
    with pytest.raises(TableExistsError, match="encoded from other data"):
        encode(build_source(config_of(tmp_path, changed)), tmp_path / "table")
    random = encode(build_source(config_of(tmp_path, rows, split=SplitConfig())), tmp_path / "random")
    assert 0.75 < random.metadata["rows"]["train"] / ROWS < 0.85


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user": pl.lit(50)}, r"a.parquet:1: column 'user': id 50 is outside 0 … 49 \(size 50 in the schema\)"),
        ({"user": pl.lit(None, pl.Int64)}, "id None is outside"),
        ({"shop_id": pl.lit("zoo")}, "holds String; ids are integers"),
        ({"tags": pl.lit([-1])}, "column 'tags': id -1 is outside"),
        ({"clicked": pl.lit(2)}, "column 'clicked': expected 0 or 1"),
        ({"price": pl.lit(float("inf"))}, "column 'price': expected a finite number"),
        ({"part": pl.lit("later")}, "must be train, validation or test"),
    ],
)
def test_wrong_rows_are_named(tmp_path, rows, change, message):
    with pytest.raises(DataError, match=message):
        encode(build_source(config_of(tmp_path, rows.with_columns(**change))), tmp_path / "table")
    assert not (tmp_path / "table").exists()


def test_wrong_settings_are_refused(tmp_path, rows):
    config = config_of(tmp_path, rows)
    with pytest.raises(ConfigError, match=r"needs data\.schema"):
        build_source(config_of(tmp_path, rows, schema=None))
    with pytest.raises(ConfigError, match="vocabulary_like has no effect"):
        build_source(config_of(tmp_path, rows, vocabulary_like="other"))
    with pytest.raises(ConfigError, match=r"data\.schema is for the source 'ids', not for 'files'"):
        config_of(tmp_path, rows, source="files")
    (tmp_path / "c.csv").write_text("a\n1\n")
    with pytest.raises(DataError, match="is not a Parquet file"):
        build_source(config_of(tmp_path, rows, paths=(str(tmp_path / "c.csv"),)))
    pl.DataFrame({"value": ["zoo", "zoo", "inn", "den"]}).write_parquet(tmp_path / "shops.parquet")
    with pytest.raises(DataError, match=r"field 'shop' needs 4, all different"):
        encode(build_source(config), tmp_path / "table")
