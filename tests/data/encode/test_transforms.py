import math

import numpy as np
import polars as pl
from hypothesis import given, strategies as st

from thresher.data.encode.transforms import BROKEN, field_values, log2_buckets, quantile_edges
from thresher.data.schema import Field


@given(st.lists(st.integers(-100, 10**12), min_size=1))
def test_log2_is_the_rule_of_the_criteo_winners(values: list[int]) -> None:
    expected = [math.floor(math.log(x) ** 2) if x > 2 else x - 2 for x in values]
    assert log2_buckets(np.array(values, np.float64)).tolist() == expected


def test_small_values_do_not_collide_with_buckets() -> None:
    small = log2_buckets(np.array([0.0, 1.0, 2.0]))
    large = log2_buckets(np.arange(3.0, 1000.0))
    assert not set(small.tolist()) & set(large.tolist())


def test_missing_values_are_a_category_and_invalid_values_are_marked() -> None:
    field = Field(name="n", size=1, transform="log2", shift=1.0)
    values = field_values(field, pl.Series(["1", "", " 4 ", "x", None, "inf"]))
    assert values.to_list() == ["-2", "", "1", BROKEN, "", BROKEN]


def test_typed_columns_give_the_same_values_as_text() -> None:
    numeric, plain = Field(name="n", size=1, transform="log2"), Field(name="n", size=1)
    typed, text = pl.Series([1, None, 100]), pl.Series(["1", "", "100"])
    for field in (numeric, plain):
        assert field_values(field, typed).to_list() == field_values(field, text).to_list()


def test_integers_stored_as_floats_have_the_same_values() -> None:
    """pandas, Parquet and JSON store integer ids with missing values as floats."""
    plain = Field(name="n", size=1)
    floats = pl.Series([3.0, 2.5, float("nan"), None, -0.0, 1e300, float("inf"), 2.0**53 - 1])
    assert field_values(plain, floats).to_list() == ["3", "2.5", "", "", "0", "1e+300", "inf", "9007199254740991"]
    assert field_values(plain, floats.cast(pl.Float32)[:3]).to_list() == ["3", "2.5", ""]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_more_quantiles_than_values_are_as_many_as_there_are_values(values: list[int]) -> None:
    numbers = np.array(values, np.float64)
    many = quantile_edges(numbers, 2**62)  # would not fit into memory
    assert many == quantile_edges(numbers, 1000) == tuple(sorted({float(value) for value in values})[1:])
