import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from thresher.data.encode.codes_to_ids import extend_vocabulary
from thresher.data.encode.row_encoder import Vocabulary
from thresher.data.read.column_values import as_text
from thresher.errors import FormatError

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)


def build(
    values: list[str], counts: NDArray[np.int64], min_count: int, known: Vocabulary | None = None, **how: bool
) -> tuple[Vocabulary, NDArray[np.int32]]:
    codes = np.flatnonzero(counts >= min_count)
    kept = pl.Series([values[code] for code in codes], dtype=pl.String)
    return extend_vocabulary(known, kept, codes, counts, **how)


@given(st.lists(texts, min_size=1), st.integers(1, 3))
def test_order_is_count_descending_then_value(values: list[str], min_count: int) -> None:
    counts = Counter(values)
    distinct = list(counts)
    totals = np.array([counts[v] for v in distinct])
    vocabulary, local_ids = build(distinct, totals, min_count)
    expected = sorted((v for v in distinct if counts[v] >= min_count), key=lambda v: (-counts[v], v.encode()))
    assert vocabulary.values.to_list() == expected
    assert vocabulary.size == len(expected) + 1
    for value, local_id in zip(distinct, local_ids, strict=True):
        assert local_id == (expected.index(value) + 1 if value in expected else 0)
    assert vocabulary.to_ids(pl.Series(distinct, dtype=pl.String)).tolist() == local_ids.tolist()


def test_values_never_counted_are_unknown() -> None:
    vocabulary, local_ids = build(["a", "b"], np.array([0, 4]), 0)
    assert vocabulary.values.to_list() == ["b"]
    assert local_ids.tolist() == [0, 1]
    assert vocabulary.to_ids(pl.Series(["a", "zebra", "b"])).tolist() == [0, 0, 1]


def test_few_values_and_many_get_the_same_ids() -> None:
    values = pl.Series([f"value {at}" for at in range(1000)])
    vocabulary = Vocabulary(values, np.arange(1000, 0, -1))
    asked = pl.Series(["value 0", "value 999", "absent", "", "value 17"])
    assert vocabulary.to_ids(asked).tolist() == [1, 1000, 0, 0, 18]
    many = pl.concat([asked] * 300)
    assert vocabulary.to_ids(many).tolist() == [1, 1000, 0, 0, 18] * 300


def test_save_and_load(tmp_path: Path) -> None:
    vocabulary, _ = build(["a", "", "ü"], np.array([2, 5, 2]), 1)
    vocabulary.save(tmp_path / "v" / "0.parquet")
    loaded = Vocabulary.load(tmp_path / "v" / "0.parquet")
    assert loaded.values.to_list() == ["", "a", "ü"]
    assert loaded.counts.tolist() == [5, 2, 2]
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(FormatError, match="broken"):
        Vocabulary.load(tmp_path / "broken.parquet")


def test_a_known_vocabulary_keeps_its_ids_and_grows_at_the_end() -> None:
    known, _ = build(["a", "b"], np.array([1, 5]), 1)
    values, counts = ["b", "a", "c", "d", "e"], np.array([0, 7, 3, 9, 1])
    grown, local_ids = build(values, counts, 2, known)
    assert grown.values.to_list() == ["b", "a", "d", "c"]
    assert grown.counts.tolist() == [5, 8, 9, 3]
    assert local_ids.tolist() == [1, 2, 4, 3, 0]
    same, local_ids = build(values, counts, 2, known, append=False)
    assert same.values.to_list() == ["b", "a"]
    assert local_ids.tolist() == [1, 2, 0, 0, 0]


@pytest.mark.parametrize(
    ("known", "column", "expected"),
    [
        (["3.0", "12.0", "-1.0", ""], pl.Series([3, 12, -1, 7]), ["3.0", "12.0", "-1.0", "7.0"]),
        (["3.0", ""], pl.Series([3.0, None, 3.5]), ["3.0", "", "3.5"]),
        (["3.0", "3"], pl.Series([3]), ["3"]),
        (["4.0", "4.2"], pl.Series([4.0, 4.2]), ["4.0", "4.2"]),
        (["3.0"], pl.Series(["3"]), ["3.0"]),  # no value would match otherwise
        (["true", "false"], pl.Series([True, False, None]), ["true", "false", ""]),
        (["FALSE", ""], pl.Series([True, False]), ["True", "FALSE"]),
        (["true", "yes"], pl.Series([True]), ["True"]),
        (["true", "True"], pl.Series([True]), ["True"]),
        ([], pl.Series([1]), ["1"]),
    ],
)
def test_numbers_and_booleans_are_spelled_as_in_the_vocabulary(known, column, expected):
    vocabulary = Vocabulary(pl.Series("value", known, dtype=pl.String), np.ones(len(known), np.int64))
    assert vocabulary.spelling.respell(as_text(column), column.dtype).to_list() == expected
    assert pickle.loads(pickle.dumps(vocabulary)).size == vocabulary.size  # also with cached properties


def test_brackets_in_a_folder_name_are_not_a_glob(tmp_path):
    for folder, value in (("b[1]", "own"), ("b1", "other's")):
        Vocabulary(pl.Series([value]), np.ones(1, np.int64)).save(tmp_path / folder / "v.parquet")
    assert Vocabulary.load(tmp_path / "b[1]" / "v.parquet").values.to_list() == ["own"]
