import os
from pathlib import Path

import pytest

from thresher.data.config import DataConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.errors import DataError

DATA_DIR = os.environ.get("THRESHER_DATA_DIR")


@pytest.mark.skipif(DATA_DIR is None, reason="THRESHER_DATA_DIR does not name the real data")
def test_statistics_of_the_paper(tmp_path: Path) -> None:
    config = DataConfig(source="movielens-1m", data_dir=f"{DATA_DIR}/ml-1m", vocabulary_from="all", with_ids=True)
    table = encode(build_source(config), tmp_path / "out")
    assert table.num_rows == 739_012
    sizes = dict(zip(table.schema.field_names, (size - 1 for size in table.schema.field_sizes), strict=True))
    assert sizes.pop("user") == 6_040
    assert sizes.pop("movie") == 3_668  # of 3,706 rated ones: the others have only ratings of 3
    assert list(sizes.values()) == [278, 2, 7, 21, 3439, 81, 301]
    assert sum(sizes.values()) == 4_129
    positives = sum(int(table.split(name).labels.sum()) for name in ("train", "validation", "test"))  # type: ignore[arg-type]
    assert round(positives / table.num_rows, 4) == 0.7784


def write(folder: Path, ratings: str) -> Path:
    folder.mkdir()
    (folder / "ratings.dat").write_text(ratings)
    (folder / "users.dat").write_text("1::F::1::10::48067\n2::M::56::16::70072\n")
    (folder / "movies.dat").write_bytes(b"1::Toy Story (1995)::Animation|Comedy\n2::L\xe9on (1994)::Crime\n")
    return folder


def test_label_year_and_timestamp_rules(tmp_path: Path) -> None:
    lines = [
        "1::1::3::1000",
        *(f"{1 + n % 2}::{1 + n // 2 % 2}::{(1, 2, 4, 5, 3)[n % 5]}::{1100 + n}" for n in range(200)),
    ]
    folder = write(tmp_path / "ml", "\n".join(lines) + "\n")
    source = build_source(DataConfig(source="movielens-1m", data_dir=str(folder)))
    frame = next(iter(source.chunks())).frame
    assert len(frame) == 160
    assert frame["label"].mean() == 0.5
    assert set(frame["year"]) == {"1995", "1994"}
    assert source.plan.fields[0].shift == 1000
    assert encode(source, tmp_path / "out").num_rows == 160


def test_errors_name_the_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ratings\.dat:2: expected 4 parts"):
        build_source(DataConfig(source="movielens-1m", data_dir=str(write(tmp_path / "a", "1::1::3::1000\n1::1\n"))))
    with pytest.raises(DataError, match="is missing in"):
        build_source(DataConfig(source="movielens-1m", data_dir=str(write(tmp_path / "b", "9::1::4::1000\n"))))
    with pytest.raises(DataError, match="unpacked ml-1m"):
        build_source(DataConfig(source="movielens-1m", data_dir=str(tmp_path / "none")))
