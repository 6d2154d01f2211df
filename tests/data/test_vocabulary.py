import gc
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.data.vocabulary import ValueCoder, Vocabulary, build_vocabulary
from thresher.errors import FormatError

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)


@given(st.lists(st.lists(texts, max_size=20), max_size=5))
def test_coder_numbers_values_by_first_appearance(chunks: list[list[str]]) -> None:
    coder, seen = ValueCoder(), list[str]()
    for chunk in chunks:
        seen += [value for value in dict.fromkeys(chunk) if value not in seen]
        codes = coder.encode(pl.Series(chunk, dtype=pl.String))
        gc.collect()
        assert [seen[code] for code in codes] == chunk
    assert coder.values().to_list() == seen
    assert len(coder) == len(seen)


@given(st.lists(texts, min_size=1), st.integers(1, 3))
def test_order_is_count_descending_then_value(values: list[str], min_count: int) -> None:
    counts = Counter(values)
    distinct = list(counts)
    vocabulary, local_ids = build_vocabulary(
        pl.Series(distinct, dtype=pl.String), np.array([counts[v] for v in distinct]), min_count
    )
    expected = sorted((v for v in distinct if counts[v] >= min_count), key=lambda v: (-counts[v], v.encode()))
    assert vocabulary.values.to_list() == expected
    assert vocabulary.size == len(expected) + 1
    for value, local_id in zip(distinct, local_ids, strict=True):
        assert local_id == (expected.index(value) + 1 if value in expected else 0)
    assert vocabulary.to_ids(pl.Series(distinct, dtype=pl.String)).tolist() == local_ids.tolist()


def test_values_never_counted_are_unknown() -> None:
    vocabulary, local_ids = build_vocabulary(pl.Series(["a", "b"]), np.array([0, 4]), 1)
    assert vocabulary.values.to_list() == ["b"]
    assert local_ids.tolist() == [0, 1]
    assert vocabulary.to_ids(pl.Series(["a", "zebra", "b"])).tolist() == [0, 0, 1]


def test_save_and_load(tmp_path: Path) -> None:
    vocabulary, _ = build_vocabulary(pl.Series(["a", "", "ü"]), np.array([2, 5, 2]), 1)
    vocabulary.save(tmp_path / "v" / "0.parquet")
    loaded = Vocabulary.load(tmp_path / "v" / "0.parquet")
    assert loaded.values.to_list() == ["", "a", "ü"]
    assert loaded.counts.tolist() == [5, 2, 2]
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(FormatError, match="broken"):
        Vocabulary.load(tmp_path / "broken.parquet")
