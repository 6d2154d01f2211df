"""Unusual and damaged files: each gives the right table or the right message, and never a part of a table."""

import gzip
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from thresher.data.config import DataConfig, FieldConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.sources import EncodingPlan, build_source
from thresher.data.encode.split_rows import RandomSplit
from thresher.data.read.raw_files import RawChunk
from thresher.data.schema import SPLITS, Field, Label
from thresher.errors import DataError, FormatError

LINES = ["click,site,n", *(f"{at % 2},s{at % 5},{at}" for at in range(200))]
PLAIN = ("\n".join(LINES) + "\n").encode()


def ids_of(folder: Path, name: str, data: bytes, out: str, **settings: Any) -> list[list[int]]:
    (folder / name).write_bytes(data)
    fields = (FieldConfig(name="site"), FieldConfig(name="n", transform="log2"))
    config = DataConfig(paths=(str(folder / name),), label="click", fields=fields, **settings)
    table = encode(build_source(config), folder / out)
    assert set(RowEncoder.load(table.folder).vocabularies[0].values) == {f"s{at}" for at in range(5)}
    ids: list[list[int]] = np.concatenate([table.split("train").ids, table.split("test").ids]).tolist()
    return ids


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("crlf.csv", PLAIN.replace(b"\n", b"\r\n")),
        ("bom.csv", b"\xef\xbb\xbf" + PLAIN),
        ("no_last_line_end.csv", PLAIN[:-1]),
        ("quoted.csv", PLAIN.replace(b"s1", b'"s1"')),
        ("two_members.csv.gz", gzip.compress(PLAIN[:1000], mtime=0) + gzip.compress(PLAIN[1000:], mtime=0)),
    ],
)
def test_the_right_table(tmp_path: Path, name: str, data: bytes) -> None:
    assert ids_of(tmp_path, name, data, "out") == ids_of(tmp_path, "plain.csv", PLAIN, "expected")


def test_quoted_separators(tmp_path: Path) -> None:
    data = PLAIN.replace(b"s1", b'"s,1"').replace(b"s2", b'"s\n2"').replace(b"s3", b'"s""3"')
    (tmp_path / "a.csv").write_bytes(data)
    config = DataConfig(paths=(str(tmp_path / "a.csv"),), label="click", fields=(FieldConfig(name="site"),))
    table = encode(build_source(config), tmp_path / "out")
    values = RowEncoder.load(table.folder).vocabularies[0].values
    assert set(values) == {"s0", "s,1", "s\n2", 's"3', "s4"}
    assert table.num_rows == 200


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("cut.csv.gz", gzip.compress(PLAIN, mtime=0)[:-100], "truncated or damaged"),
        ("ragged.csv", PLAIN + b"1,s0\n", r"ragged\.csv:202: has 2 columns, expected 3"),
        ("nul.csv", PLAIN + b"1,s\x000,3\n", r"nul\.csv:202: contains a NUL byte"),
        ("zeros.csv", b"\0" * 1000, r"zeros\.csv"),
        ("one_row.csv", b"click,site,n\n1,s0,1\n", "all 1 labels are 1; both classes"),
        ("no_row.csv", b"click,site,n\n", "there are no rows"),
        ("nothing.csv", b"", "the file is empty"),
        ("blank.csv", b"\n\n\n", "the file is empty"),
        ("latin.csv", PLAIN + b"1,\xe9,3\n", r"latin\.csv:202: contains a byte that is not UTF-8"),
    ],
)
def test_the_right_message(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ids_of(tmp_path, name, data, "out")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_field_with_one_value(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("click,site\n" + "0,x\n1,x\n" * 50)
    config = DataConfig(paths=(str(tmp_path / "a.csv"),), label="click", fields=(FieldConfig(name="site"),))
    table = encode(build_source(config), tmp_path / "out")
    assert table.schema.field_sizes == (2,)
    assert (table.split("train").ids == 1).all()


@dataclass(frozen=True)
class ManyValues:
    """Ten million rows, nearly all with a different user."""

    num_rows: int = 10_000_000
    chunk_rows: int = 500_000

    @property
    def plan(self) -> EncodingPlan:
        return EncodingPlan(fields=(Field(name="user", min_count=3),), label=Label(column="click"))

    @property
    def num_bytes(self) -> int | None:
        return None

    def inputs(self) -> Mapping[str, Any]:
        return {"rows": self.num_rows}

    def chunks(self, position: Mapping[str, int] | None = None) -> Iterator[RawChunk]:
        for start in range(0, self.num_rows, self.chunk_rows):
            numbers = np.arange(start, start + self.chunk_rows)
            users = pl.Series(np.where(numbers % 1000 == 0, numbers % 7000, numbers)).cast(pl.String)
            clicks = pl.Series((numbers % 3 == 0).astype(np.uint8))
            yield RawChunk(pl.DataFrame({"user": users, "click": clicks}))


def test_a_large_vocabulary_is_saved_and_loaded(tmp_path: Path) -> None:
    """Every value occurs once or twice and all are kept."""
    num_values = 300_000
    numbers = np.random.default_rng(0).permutation(num_values * 5 // 4) * 7919 % num_values  # a quarter of them twice
    users = pl.Series("user", numbers).cast(pl.String).str.zfill(6).str.replace("^", "ü")
    pl.DataFrame({"click": numbers % 3 == 0, "user": users}).cast({"click": pl.UInt8}).write_csv(tmp_path / "a.csv")
    fields = (FieldConfig(name="user", min_count=1),)
    config = DataConfig(
        paths=(str(tmp_path / "a.csv"),), label="click", fields=fields, vocabulary_from="all", memory_mb=100
    )
    table = encode(build_source(config), tmp_path / "out")
    assert table.schema.field_sizes == (num_values + 1,)
    RowEncoder.load(table.folder).save(tmp_path / "bundle")
    encoder = RowEncoder.load(tmp_path / "bundle")

    counts = np.bincount(numbers)
    order = np.lexsort([np.arange(num_values), -counts])  # by count, then by value
    expected = np.empty(num_values, np.int64)
    expected[order] = np.arange(1, num_values + 1)
    values = encoder.vocabularies[0].values
    assert values[[0, -1]].to_list() == [f"ü{order[0]:06d}", f"ü{order[-1]:06d}"]
    split = RandomSplit(0).assign(len(numbers))
    for part, name in enumerate(SPLITS):
        assert np.array_equal(table.split(name).ids[:, 0], expected[numbers[split == part]])
    for rows in (len(users), 2_000, 500, 1):  # looked up by other means when they are few
        assert np.array_equal(encoder.encode_frame(users.head(rows).to_frame()).ids[:, 0], expected[numbers[:rows]])
    assert encoder.encode_frame(pl.DataFrame({"user": ["ü300000", "000000", ""]})).ids.tolist() == [[0]] * 3


@pytest.mark.slow
def test_a_field_with_ten_million_values(tmp_path: Path) -> None:
    table = encode(ManyValues(), tmp_path / "out")
    vocabulary = RowEncoder.load(table.folder).vocabularies[0]
    assert sorted(vocabulary.values.to_list(), key=int) == [str(1000 * at) for at in range(7)]
    assert table.num_rows == 10_000_000
    known = sum(int((table.split(name).ids > 0).sum()) for name in ("train", "validation", "test"))  # type: ignore[arg-type]
    assert known == 10_000


def test_a_damaged_vocabulary_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(PLAIN)
    config = DataConfig(paths=(str(tmp_path / "a.csv"),), label="click", fields=(FieldConfig(name="site"),))
    table = encode(build_source(config), tmp_path / "out")
    path = table.folder / "vocabularies" / "0.parquet"
    counts = pl.read_parquet(path)
    counts.with_columns(value=pl.col("value").reverse()).write_parquet(path)  # a whole file, with other content
    with pytest.raises(FormatError, match=r"0\.parquet is damaged: its checksum differs"):
        RowEncoder.load(table.folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_and_devices_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", Path("/dev/zero")):
        with pytest.raises(DataError, match="is a named pipe or a device"):
            build_source(DataConfig(paths=(str(path),), label="click"))
