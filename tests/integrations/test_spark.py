"""Spark encodes the same table as one machine, except for the order of the rows: on generated and on real rows."""

import os
import shutil
import signal
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (extra: spark)")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java 17, and there is no java command", allow_module_level=True)

from thresher.data.config import DataConfig, FieldConfig, SplitConfig
from thresher.data.datasets import CRITEO_COLUMNS
from thresher.data.encode.encode import encode
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.sources import build_source
from thresher.data.schema import SPLITS
from thresher.data.table import EncodedTable
from thresher.errors import DataError, TableExistsError
from thresher.integrations import spark as spark_engine

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
DATA = Path(os.environ.get("THRESHER_DATA_DIR", "missing"))


@pytest.fixture(scope="module")
def spark():
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "3",
        "spark.driver.memory": "1g",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    handler = signal.getsignal(signal.SIGINT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sockets of the Java process
        session = builder.getOrCreate()
        signal.signal(signal.SIGINT, handler)  # PySpark sets its own
        yield session
        session.stop()


def with_split(frame):
    draw = np.random.default_rng(1)
    return frame.with_columns(
        pl.Series("part", draw.choice(["train", "validation", "test"], len(frame), p=[0.8, 0.1, 0.1]))
    )


def assert_equal_but_for_the_order(left: EncodedTable, right: EncodedTable):
    assert left.schema.fields == right.schema.fields
    assert np.array_equal(left.feature_counts, right.feature_counts)
    assert left.metadata["rows"] == right.metadata["rows"]
    for one, other in zip(
        RowEncoder.load(left.folder).vocabularies, RowEncoder.load(right.folder).vocabularies, strict=True
    ):
        assert one.values.to_list() == other.values.to_list()
    for split in SPLITS:
        rows = [
            sorted(map(tuple, np.column_stack([part.ids, part.labels]).tolist()))
            for part in (left.split(split), right.split(split))
        ]
        assert rows[0] == rows[1]


def encode_both(spark, frame, folder, config):
    path = folder / "rows.parquet"
    frame.write_parquet(path)
    one = encode(build_source(replace(config, paths=(str(path),))), folder / "one")
    many = spark_engine.encode(spark.read.parquet(str(path)).repartition(3), folder / "many", config)
    return one, many


@pytest.mark.slow
def test_criteo_rows_give_the_table_of_one_machine(spark, tmp_path):
    path = DATA / "criteo" / "train.txt"
    if not path.exists():
        pytest.skip("needs criteo/train.txt in THRESHER_DATA_DIR")
    frame = pl.read_csv(path, separator="\t", has_header=False, new_columns=CRITEO_COLUMNS, n_rows=3_000)
    fields = tuple(
        FieldConfig(name=name, transform="log2" if name.startswith("I") else "none", min_count=2)
        for name in CRITEO_COLUMNS[1:]
    )
    config = DataConfig(label=CRITEO_COLUMNS[0], fields=fields, split=SplitConfig(column="part"))
    assert_equal_but_for_the_order(*encode_both(spark, with_split(frame), tmp_path, config))


@pytest.mark.slow
def test_guessed_columns_random_splits_and_errors(spark, tmp_path):
    draw = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "shop": [f"s{k}" for k in draw.zipf(1.5, 2_000)],
            "price": draw.lognormal(2, 1, 2_000).round(2),
            "clicked": draw.integers(0, 2, 2_000),
        }
    )
    frame.write_parquet(tmp_path / "rows.parquet")
    rows = spark.read.parquet(str(tmp_path / "rows.parquet"))
    table = spark_engine.encode(rows, tmp_path / "table", DataConfig(label="clicked"))
    assert table.num_rows == 2_000
    assert 0.75 < table.metadata["rows"]["train"] / 2_000 < 0.85
    assert [field.transform for field in table.schema.fields] == ["none", "quantiles"]

    again = spark_engine.encode(rows.repartition(4), tmp_path / "table", DataConfig(label="clicked"))
    assert again.fingerprint == table.fingerprint
    with pytest.raises(TableExistsError, match=r"split_seed was 0, is 1"):
        spark_engine.encode(rows, tmp_path / "table", DataConfig(label="clicked", split_seed=1))
    assert not list(tmp_path.glob("*.parts-*"))

    bad = frame.with_columns(pl.when(pl.col("shop") == "s3").then(7).otherwise(pl.col("clicked")).alias("clicked"))
    bad.write_parquet(tmp_path / "bad.parquet")
    fields = (FieldConfig(name="shop"),)
    with pytest.raises(DataError, match="7") as raised:
        spark_engine.encode(
            spark.read.parquet(str(tmp_path / "bad.parquet")),
            tmp_path / "bad",
            DataConfig(label="clicked", fields=fields),
        )
    assert "Traceback" not in str(raised.value)
    with pytest.raises(DataError, match="no column 'shp'"):
        spark_engine.encode(rows, tmp_path / "bad", DataConfig(label="clicked", fields=(FieldConfig(name="shp"),)))
