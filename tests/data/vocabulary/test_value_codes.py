import numpy as np
import polars as pl
import pytest
from hypothesis import given, strategies as st

from thresher.data.schema import Field
from thresher.data.vocabulary import value_codes
from thresher.data.vocabulary.value_codes import FieldCoder, ValueCoder, add_counts

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)


@given(st.lists(st.lists(texts, max_size=20), max_size=5))
def test_values_are_numbered_by_first_appearance(chunks: list[list[str]]) -> None:
    coder, seen = ValueCoder(), list[str]()
    for chunk in chunks:
        new = [value for value in dict.fromkeys(chunk) if value not in seen]
        seen += new
        codes, first_rows = coder.encode(pl.Series(chunk, dtype=pl.String))
        assert [seen[code] for code in codes] == chunk
        assert [chunk[row] for row in first_rows] == new
    assert coder.size == len(seen)


def test_a_million_values_get_distinct_codes() -> None:
    coder = ValueCoder()
    numbers = pl.Series(np.random.default_rng(0).permutation(1_000_000))
    codes, first_rows = coder.encode(numbers)
    assert coder.size == 1_000_000
    assert np.array_equal(codes, np.arange(1_000_000))
    assert np.array_equal(first_rows, codes)
    again, first_rows = coder.encode(numbers.reverse())
    assert np.array_equal(again, codes[::-1])
    assert not len(first_rows)


@pytest.mark.parametrize("cached", [1 << 20, 3])
def test_transformed_columns_of_any_type_share_codes(monkeypatch: pytest.MonkeyPatch, cached: int) -> None:
    monkeypatch.setattr(value_codes, "MAX_CACHED_VALUES", cached)
    coder, field = FieldCoder(), Field(name="n", transform="log2")
    for _ in range(3):
        text = coder.encode(field, pl.Series(["100", "", "101", "2", "7", "8"]))
        typed = coder.encode(field, pl.Series([100, None, 101, 2, 7, 8]))
        assert text.tolist() == typed.tolist() == [0, 1, 0, 2, 3, 4]
    assert pl.concat(coder.new_values).to_list() == ["21", "", "0", "3", "4"]
    broken = coder.encode(field, pl.Series(["x", "100"]))
    assert broken.tolist() == [coder.broken_code, 0]


def test_counts_of_chosen_rows() -> None:
    counts = np.zeros(3, np.uint32)
    add_counts(counts, np.array([0, 2, 2, 1], np.int32), np.array([True, True, True, False]))
    assert counts.tolist() == [1, 0, 2]
