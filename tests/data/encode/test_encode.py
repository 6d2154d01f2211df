import os
import random
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from thresher.data.config import DataConfig, FieldConfig
from thresher.data.encode import sources
from thresher.data.encode.encode import encode
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.sources import build_source, source_names
from thresher.data.encode.split_rows import RandomSplit
from thresher.data.schema import SPLITS
from thresher.data.table import EncodedTable
from thresher.errors import ConfigError, DataError, FormatError


def rows(count: int = 400) -> list[tuple[str, str, str]]:
    rng = random.Random(0)
    return [(rng.choice("01"), rng.choice(["x", "y", "", f"r{at}"]), str(rng.choice(["", at]))) for at in range(count)]


def csv(path: Path, data: list[tuple[str, str, str]], columns: tuple[str, ...] = ("click", "site", "count")) -> Path:
    path.write_text("\n".join([",".join(columns), *(",".join(row) for row in data)]) + "\n")
    return path


def config(path: Path, **settings: object) -> DataConfig:
    fields = (FieldConfig(name="site"), FieldConfig(name="count", transform="log2"))
    return DataConfig(**({"paths": (str(path),), "label": "click", "fields": fields} | settings))  # type: ignore[arg-type]


def test_ids_counts_and_split_equal_a_naive_encoder(tmp_path: Path) -> None:
    data = rows()
    table = encode(build_source(config(csv(tmp_path / "a.csv", data), min_count=2)), tmp_path / "out")
    split = RandomSplit(0).assign(len(data))
    train = [row for row, part in zip(data, split, strict=True) if part == 0]
    counts = Counter(row[1] for row in train)
    kept = sorted((v for v in counts if counts[v] >= 2), key=lambda v: (-counts[v], v))
    assert table.schema.fields[0].size == len(kept) + 1
    assert RowEncoder.load(tmp_path / "out").vocabularies[0].values.to_list() == kept
    for part, name in enumerate(SPLITS):
        mine = [row for row, where in zip(data, split, strict=True) if where == part]
        encoded = table.split(name)
        assert encoded.labels.tolist() == [int(row[0]) for row in mine]
        assert encoded.ids[:, 0].tolist() == [kept.index(r[1]) + 1 if r[1] in kept else 0 for r in mine]
    ids = table.split("train").ids
    assert np.array_equal(np.bincount(ids.ravel(), minlength=table.schema.num_features), table.feature_counts)
    assert table.feature_counts.sum() == ids.size


def test_row_encoder_gives_the_ids_of_training(tmp_path: Path) -> None:
    data = rows()
    table = encode(build_source(config(csv(tmp_path / "a.csv", data))), tmp_path / "out")
    encoder = RowEncoder.load(table.folder)
    frame = pl.DataFrame(data, schema=["click", "site", "count"], orient="row")
    everything = encoder.encode_frame(frame.drop("click")).ids
    split = RandomSplit(0).assign(len(data))
    for part, name in enumerate(SPLITS):
        assert np.array_equal(everything[split == part], table.split(name).ids)
    typed = frame.with_columns(pl.col("count").cast(pl.Int64, strict=False), pl.col("site").replace("", None))
    assert np.array_equal(encoder.encode_frame(typed).ids, everything)
    unseen = encoder.encode_frame(pl.DataFrame({"site": ["never"], "count": ["nonsense"]})).ids
    assert unseen.tolist() == [list(table.schema.field_offsets)]
    with pytest.raises(DataError, match=r"no column 'site'; did you mean 'sit'"):
        encoder.encode_frame(pl.DataFrame({"sit": ["x"], "count": ["1"]}))


def test_vocabulary_from_all_and_from_train(tmp_path: Path) -> None:
    path = csv(tmp_path / "a.csv", rows())
    train = encode(build_source(config(path)), tmp_path / "train")
    everything = encode(build_source(config(path, vocabulary_from="all")), tmp_path / "all")
    assert everything.schema.num_features > train.schema.num_features
    assert (everything.feature_counts == 0).any()
    assert everything.feature_counts.sum() == train.feature_counts.sum()
    for field, offset in zip(everything.schema.fields, everything.schema.field_offsets, strict=True):
        assert field.size >= 2
        assert everything.feature_counts[offset] == 0  # nothing is rare, yet the unknown row is there


@pytest.mark.parametrize("kind", ["tsv", "parquet", "several", "gz"])
def test_every_file_kind_gives_the_same_table(tmp_path: Path, kind: str) -> None:
    data = rows()
    expected = encode(build_source(config(csv(tmp_path / "a.csv", data))), tmp_path / "expected")
    frame = pl.DataFrame(data, schema=["click", "site", "count"], orient="row")
    if kind == "tsv":
        frame.write_csv(tmp_path / "b.tsv", separator="\t")
    elif kind == "gz":
        frame.lazy().sink_csv(tmp_path / "b.csv.gz", compression="gzip")
    elif kind == "parquet":
        frame.with_columns(pl.col("click").cast(pl.Int8), pl.col("count").cast(pl.Float64, strict=False)).write_parquet(
            tmp_path / "b.parquet"
        )
    else:
        csv(tmp_path / "b1.csv", data[:150])
        csv(tmp_path / "b2.csv", [(c, a, b) for a, b, c in data[150:300]], ("count", "click", "site"))
        frame[300:].write_csv(tmp_path / "b3.tsv", separator="\t")
    table = encode(build_source(config(tmp_path / "b*")), tmp_path / "out")
    for name in SPLITS:
        assert np.array_equal(table.split(name).ids, expected.split(name).ids)
        assert np.array_equal(table.split(name).labels, expected.split(name).labels)


def test_a_table_of_the_same_data_is_opened_and_of_changed_data_raises(tmp_path: Path) -> None:
    path, out = csv(tmp_path / "a.csv", rows()), tmp_path / "out"
    first = encode(build_source(config(path)), out)
    stamp = (out / "table.json").stat().st_mtime_ns
    assert encode(build_source(config(path)), out).fingerprint == first.fingerprint
    assert (out / "table.json").stat().st_mtime_ns == stamp
    with pytest.raises(DataError, match=r"plan\.split_seed was 0, is 1.*overwrite this table"):
        encode(build_source(config(path, split_seed=1)), out)
    os.utime(path, ns=(1, 1))  # copied or fetched again: the same data
    assert encode(build_source(config(path)), out).fingerprint == first.fingerprint
    text, times = path.read_text(), path.stat()
    path.write_text(text.replace("\n1,", "\n0,", 1))  # as many bytes, and the time as before
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(DataError, match=r"files\[0\]\.sha256 was"):
        encode(build_source(config(path)), out)
    path.write_text(text)
    second = encode(build_source(config(path, split_seed=1)), out, overwrite=True)
    assert second.fingerprint != first.fingerprint


def test_the_fingerprint_of_a_large_file_includes_its_modification_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The middle of the file is not hashed."""
    monkeypatch.setattr(sources, "MAX_HASHED_BYTES", 100)
    monkeypatch.setattr(sources, "_END_BYTES", 50)
    path = csv(tmp_path / "a.csv", rows())
    encode(build_source(config(path)), tmp_path / "out")
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match="changed_ns was"):
        encode(build_source(config(path)), tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("click,site,count\n0,x,1\n2,y,1\n", r"a\.csv:3: column 'click': '2' is not a label"),
        ("click,site,count\n0,x,1\n,y,1\n", r"a\.csv:3: column 'click': '' is not a label: it is missing"),
        ("click,site,count\n0,x,1\n1,y,one\n", r"a\.csv:3: column 'count': 'one' is not a number"),
        ("click,site,count\n" + "1,x,1\n" * 30, r"all 30 labels are 1; both classes"),
        ("click,site,count\n0,x,1\n1,x,1\n", "none of the 2 rows is in the"),
        ("click,site,count\n", "there are no rows"),
        ("", "the file is empty"),
        ("click,site,count\n0,x,1\n1,x\n", r"a\.csv:3: has 2 columns, expected 3"),
        ("click,sites,count\n0,x,1\n", "no column 'site'; did you mean 'sites'"),
    ],
)
def test_errors_name_the_file_and_leave_no_table(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        encode(build_source(config(tmp_path / "a.csv")), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_labels_by_positive_values_and_true_false(tmp_path: Path) -> None:
    data = rows()
    expected = encode(build_source(config(csv(tmp_path / "a.csv", data))), tmp_path / "a").split("train").labels
    for words, positive in ((("False", "TRUE"), ()), (("0.0", "1.0"), ()), (("no", "yes"), ("yes", "maybe"))):
        path = csv(tmp_path / "b.csv", [(words[int(a)], b, c) for a, b, c in data])
        table = encode(build_source(config(path, positive=positive)), tmp_path / "b", overwrite=True)
        assert np.array_equal(table.split("train").labels, expected)


def test_a_folder_of_other_files_is_not_changed(tmp_path: Path) -> None:
    path, out = csv(tmp_path / "a.csv", rows()), tmp_path / "out"
    out.mkdir()
    (out / "precious.txt").write_text("mine")
    with pytest.raises(DataError, match="not an encoded table"):
        encode(build_source(config(path)), out)
    with pytest.raises(DataError, match="not an encoded table"):
        encode(build_source(config(path)), out, overwrite=True)
    assert (out / "precious.txt").read_text() == "mine"


@pytest.mark.parametrize("place", ["out/raw.csv", "out/train/notes.txt", "out.partial/deep/a.txt"])
def test_other_files_in_the_folder_are_not_replaced(tmp_path: Path, place: str) -> None:
    path, out = csv(tmp_path / "a.csv", rows()), tmp_path / "out"
    encode(build_source(config(path)), out)
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_bytes(path.read_bytes())
    with pytest.raises(DataError, match=f"not part of an encoded table: {place.split('/', 1)[1]}"):
        encode(build_source(config(tmp_path / place)), out, overwrite=True)
    assert (tmp_path / place).read_bytes() == path.read_bytes()
    assert EncodedTable.open(out).split("train").num_rows


def test_damaged_tables_raise(tmp_path: Path) -> None:
    out = tmp_path / "out"
    encode(build_source(config(csv(tmp_path / "a.csv", rows()))), out)
    ids = (out / "test" / "ids.npy").read_bytes()
    (out / "test" / "ids.npy").write_bytes(ids[:-8])
    with pytest.raises(FormatError, match=r"ids\.npy"):
        EncodedTable.open(out)
    with pytest.raises(FormatError, match="not an encoded table"):
        EncodedTable.open(tmp_path)


def test_sources_by_name() -> None:
    assert {"files", "movielens-1m", "synthetic"} <= set(source_names())
    with pytest.raises(ConfigError, match="did you mean 'movielens-1m'"):
        build_source(DataConfig(source="movielens1m"))
    with pytest.raises(ConfigError, match="needs data_dir"):
        build_source(DataConfig(source="movielens-1m"))


def test_progress_is_reported(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None, str]] = []
    path = csv(tmp_path / "a.csv", rows())
    encode(build_source(config(path)), tmp_path / "out", progress=lambda *step: seen.append(step))
    assert {message for _, _, message in seen} == {"reading", "vocabularies", "encoding"}
    assert seen[-1][:2] == (400, 400)
