"""A sample covers whole files, whatever their format, and costs little."""

import gzip
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from thresher.data.config import DataConfig, SplitConfig
from thresher.data.encode.sources import build_source
from thresher.data.read import sample_rows as module
from thresher.data.read.guess_columns import guess_columns
from thresher.data.read.sample_rows import sample_rows
from thresher.data.schema import FileFormat
from thresher.errors import DataError

ROWS = 60_000


def sorted_rows(rows: int = ROWS) -> pl.DataFrame:
    """Rows sorted by month; each has its number, so that the sample can be checked."""
    at = pl.int_range(rows, eager=True)
    return pl.DataFrame({"click": at % 2, "month": at * 12 // rows + 1, "at": at, "city": pl.Series(["Ulm, D"] * rows)})


def write_zstd(frame: pl.DataFrame, path: Path) -> None:
    frame.write_csv(path, compression="zstd", check_extension=False)


WRITERS: dict[str, Callable[[pl.DataFrame, Path], None]] = {
    "rows.csv": lambda frame, path: frame.write_csv(path),
    "rows.csv.gz": lambda frame, path: path.write_bytes(gzip.compress(frame.write_csv().encode(), 1)) and None,
    "rows.csv.zst": write_zstd,
    "rows.parquet": lambda frame, path: frame.write_parquet(path, row_group_size=7_000),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_sample_covers_a_sorted_file(tmp_path: Path, monkeypatch, name: str) -> None:
    monkeypatch.setattr(module, "WHOLE_BYTES", 100_000)  # the text files have more than 1 MB
    WRITERS[name](sorted_rows(), path := tmp_path / name)
    sample = sample_rows([path], FileFormat())
    assert 0.99 * module.SAMPLE_ROWS <= len(sample.frame) <= module.SAMPLE_ROWS
    assert not sample.complete
    assert sample.num_rows == pytest.approx(ROWS, rel=0.05)
    numbers = sample.frame["at"].cast(pl.Int64)
    assert numbers.is_sorted()
    assert numbers.n_unique() == len(numbers)
    shares = sample.frame["month"].cast(pl.Int64).value_counts()["count"] / len(sample.frame)
    assert shares.len() == 12
    assert shares.min() > 0.04
    found = guess_columns(sample)
    assert dict(found.reasons)["month"].startswith("categorical: few integers, 12 distinct values")
    assert found.rows.endswith(f"of about {sample.num_rows:,} rows")


def test_a_small_file_is_read_completely(tmp_path: Path) -> None:
    for name, write in WRITERS.items():
        write(sorted_rows(5_000), path := tmp_path / name)
        sample = sample_rows([path], FileFormat())
        assert (len(sample.frame), sample.num_rows, sample.complete) == (5_000, 5_000, True), name
        assert guess_columns(sample).rows == ""
        more = sample_rows([path], FileFormat(), num_rows=1_000)
        assert 500 <= len(more.frame) <= 1_000, name
        assert (more.num_rows, more.complete) == (5_000, False), name


def test_compressed_text_is_read_up_to_a_limit(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 100_000)
    monkeypatch.setattr(module, "COMPRESSED_BYTES", 300_000)
    WRITERS["rows.csv.gz"](sorted_rows(), path := tmp_path / "rows.csv.gz")
    sample = sample_rows([path], FileFormat())
    assert (sample.num_rows, sample.complete) == (None, False)
    assert sample.frame["month"].n_unique() > 1
    assert guess_columns(sample).rows == f"{len(sample.frame):,} rows"


def test_a_sample_covers_all_files(tmp_path: Path) -> None:
    rows = sorted_rows(24_000)
    for month, part in rows.group_by("month"):
        columns = ["month", "city", "at", "click"] if month[0] % 2 else rows.columns
        part.select(columns).write_csv(tmp_path / f"{month[0]:02}.csv")
    paths = tuple(sorted(tmp_path.iterdir()))
    sample = sample_rows(paths, FileFormat())
    assert sample.frame["month"].n_unique() == 12
    assert sample.num_rows == 24_000
    few = pl.DataFrame({"click": [0, 1], "month": ["x", "y"]})
    few.write_parquet(tmp_path / "13.parquet")  # another type, and a column is absent
    sample = sample_rows((*paths, tmp_path / "13.parquet"), FileFormat(), num_rows=100_000)
    assert {"x", "y"} <= set(sample.frame["month"])
    many = [paths[at % 12] for at in range(50)]
    assert sample_rows(many, FileFormat()).num_rows == pytest.approx(100_000, rel=0.01)


def test_only_training_files_are_sampled(tmp_path: Path) -> None:
    for name in ("train", "validation", "test"):
        (tmp_path / f"{name}.csv").write_text("click,site\n" + f"0,{name}\n1,{name}\n" * 20)
    split = {"validation_paths": (str(tmp_path / "validation.csv"),), "test_paths": (str(tmp_path / "test.csv"),)}
    source = build_source(DataConfig(paths=(str(tmp_path / "train.csv"),), split=SplitConfig(**split)))
    assert source.sample.frame["site"].unique().to_list() == ["train"]


def test_bad_rows_stop_at_the_start_and_are_left_out_elsewhere(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "WHOLE_BYTES", 100_000)
    monkeypatch.setattr(module, "_BLOCK_BYTES", 100_000)
    lines = sorted_rows().write_csv().splitlines()
    bad = [line if at < 50_000 else "1,2" for at, line in enumerate(lines)]
    (path := tmp_path / "rows.csv").write_text("\n".join(bad))
    sample = sample_rows([path], FileFormat())
    assert sample.frame["month"].cast(int).max() == 10
    lines[7] = "1,2"
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"rows\.csv:8: has 2 columns, expected 4"):
        sample_rows([path], FileFormat())
    ((line, _),) = sample_rows([path], FileFormat(), bad_rows="skip").skipped
    assert line == 8


def test_line_breaks_inside_quotes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "WHOLE_BYTES", 100_000)
    rows = "".join(f'{at % 2},"a note\nof, two lines",{at}\n' for at in range(50_000))
    (path := tmp_path / "rows.csv").write_text("click,note,at\n" + rows)
    sample = sample_rows([path], FileFormat())
    assert len(sample.frame) > 2_000
    assert sample.frame["note"].unique().to_list() == ["a note\nof, two lines"]
    assert sample.frame["at"].cast(int).max() > 45_000
