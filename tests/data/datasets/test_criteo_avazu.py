"""Small samples of the real logs, and generated rows, against a naive counter."""

import gzip
import math
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from generated_data import write_avazu_like, write_criteo_like
from thresher.data.config import DataConfig
from thresher.data.datasets import AVAZU_FIELDS, CRITEO_COLUMNS
from thresher.data.encode.encode import encode
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.sources import build_source
from thresher.data.encode.split_rows import RandomSplit
from thresher.data.encode.user_files import FilesSource
from thresher.data.schema import SPLITS
from thresher.data.table import EncodedTable
from thresher.errors import ConfigError, DataError


def criteo_rows(path: Path) -> list[list[str]]:
    def bucket(text: str) -> str:
        if not text:
            return ""
        number = int(text)
        return str(math.floor(math.log(number) ** 2) if number > 2 else number - 2)

    rows = [line.split("\t") for line in path.read_text().splitlines()]
    return [[row[0], *(bucket(cell) for cell in row[1:14]), *row[14:]] for row in rows]


def avazu_rows(path: Path) -> list[list[str]]:
    rows = [line.split(",") for line in path.read_text().splitlines()]
    return [row[1:] for row in rows[1:]]


def check_against_naive_counter(table: EncodedTable, rows: list[list[str]], *, everything: bool) -> None:
    assert table.num_rows == len(rows)
    split = RandomSplit(0).assign(len(rows))
    train = [row for row, part in zip(rows, split, strict=True) if part == 0]
    vocabularies = RowEncoder.load(table.folder).vocabularies
    for at, (field, offset) in enumerate(zip(table.schema.fields, table.schema.field_offsets, strict=True)):
        seen, in_train = (Counter(row[at + 1] for row in some) for some in (rows if everything else train, train))
        kept = sorted((value for value in seen if seen[value] >= 10), key=lambda value: (-seen[value], value))
        assert vocabularies[at].values.to_list() == kept, field.name
        counts = table.feature_counts[offset : offset + field.size]
        assert counts[1:].tolist() == [in_train[value] for value in kept]
        assert counts[0] == len(train) - counts[1:].sum()
    for part, name in enumerate(SPLITS):
        labels = [int(row[0]) for row, where in zip(rows, split, strict=True) if where == part]
        assert table.split(name).labels.tolist() == labels


@pytest.mark.parametrize(
    ("source", "file", "positive"),
    [
        ("criteo", "criteo/train.txt", 0.2495),
        ("criteo", "criteo/terabyte_day_0_10k.txt", 0.0265),
        ("avazu", "avazu/train.csv", 0.1677),
        ("avazu", "avazu/two_hours_42k.csv", 0.1746),
    ],
)
def test_real_rows(tmp_path: Path, data_dir: Path, source: str, file: str, positive: float) -> None:
    path = data_dir / file
    if not path.exists():
        pytest.skip(f"needs {path}")
    with path.open() as lines:  # the naive counter is slow
        (tmp_path / path.name).write_text("".join(islice(lines, 25_000)))
    path = tmp_path / path.name
    table = encode(build_source(DataConfig(source=source, paths=(str(path),))), tmp_path / "out")
    rows = criteo_rows(path) if source == "criteo" else avazu_rows(path)
    check_against_naive_counter(table, rows, everything=False)
    assert round(table.metadata["positives"] / table.num_rows, 4) == positive
    assert table.schema.num_fields == (39 if source == "criteo" else 22)


@pytest.mark.parametrize("everything", [False, True])
def test_generated_criteo_rows(tmp_path: Path, everything: bool) -> None:
    path = write_criteo_like(tmp_path / "train.txt", 3_000)
    config = DataConfig(source="criteo", data_dir=str(tmp_path), vocabulary_from="all" if everything else "train")
    table = encode(build_source(config), tmp_path / "out")
    rows = criteo_rows(path)
    check_against_naive_counter(table, rows, everything=everything)
    raw = pl.read_csv(path, separator="\t", has_header=False, new_columns=CRITEO_COLUMNS, infer_schema=False)
    ids = RowEncoder.load(table.folder).encode_frame(raw).ids
    split = RandomSplit(0).assign(len(rows))
    for part, name in enumerate(SPLITS):
        assert np.array_equal(ids[split == part], table.split(name).ids)


def test_generated_avazu_rows_compressed_and_in_parts(tmp_path: Path) -> None:
    path = write_avazu_like(tmp_path / "train.csv", 3_000)
    table = encode(build_source(DataConfig(source="avazu", data_dir=str(tmp_path))), tmp_path / "out")
    assert table.schema.field_names == AVAZU_FIELDS
    check_against_naive_counter(table, avazu_rows(path), everything=False)
    whole = pl.read_csv(path, infer_schema=False)
    whole[:1000].lazy().sink_csv(tmp_path / "part1.csv.gz", compression="gzip")
    whole[1000:].lazy().sink_csv(tmp_path / "part2.csv.zst", compression="zstd")
    parts = encode(build_source(DataConfig(source="avazu", paths=(str(tmp_path / "part*"),))), tmp_path / "parts")
    for name in SPLITS:
        assert np.array_equal(parts.split(name).ids, table.split(name).ids)


def test_a_longer_generated_file_starts_like_a_shorter_one_and_has_signal(tmp_path: Path) -> None:
    long = write_criteo_like(tmp_path / "long.txt", 60_000).read_bytes()
    assert long.startswith(write_criteo_like(tmp_path / "short.txt", 2_000).read_bytes())
    assert long != write_criteo_like(tmp_path / "other.txt", 60_000, seed=1).read_bytes()
    rows = pl.read_csv(long, separator="\t", has_header=False, new_columns=CRITEO_COLUMNS, infer_schema=False)
    rows = rows.with_columns(pl.col("label").cast(pl.Int8))
    assert abs(rows["label"].mean() - 0.256) < 0.02  # type: ignore[operator]
    shares = rows.group_by("C17").agg(pl.col("label").mean(), pl.len()).filter(pl.col("len") > 1_000)["label"]
    assert shares.std() > 0.03  # type: ignore[operator]
    noise = rows.group_by("C23").agg(pl.col("label").mean(), pl.len()).filter(pl.col("len") > 1_000)["label"]
    assert noise.std() < 0.02  # type: ignore[operator]


@pytest.mark.parametrize(("source", "name"), [("criteo", "train.txt"), ("avazu", "train.csv"), ("avazu", "train")])
def test_a_file_that_exists_plain_and_compressed_is_read_once(tmp_path: Path, source: str, name: str) -> None:
    plain = (write_criteo_like if source == "criteo" else write_avazu_like)(tmp_path / name, 50)
    (tmp_path / f"{name}.zst").write_bytes(b"never opened")
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    config = DataConfig(source=source, data_dir=str(tmp_path))
    found = build_source(config)
    assert isinstance(found, FilesSource)
    assert found.paths == (plain,)
    plain.unlink()
    packed = build_source(config)
    assert isinstance(packed, FilesSource)
    assert packed.paths == (tmp_path / f"{name}.gz",)
    assert sum(len(chunk.frame) for chunk in packed.chunks()) == 50


def test_days_are_sorted_by_number_and_read_once(tmp_path: Path) -> None:
    for name in ("day_10", "day_2.gz", "day_0.zst", "day_10.gz", "day_0.gz", "day_1"):
        (tmp_path / name).touch()
    source = build_source(DataConfig(source="criteo", data_dir=str(tmp_path)))
    assert isinstance(source, FilesSource)
    assert [path.name for path in source.paths] == ["day_0.gz", "day_1", "day_2.gz", "day_10"]


def test_missing_files_raise(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="criteo needs data_dir"):
        build_source(DataConfig(source="criteo"))
    with pytest.raises(DataError, match=r"contains none of train\.csv"):
        build_source(DataConfig(source="avazu", data_dir=str(tmp_path)))
