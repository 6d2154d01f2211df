import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, strategies as st

from thresher.data.config import SplitConfig
from thresher.data.encode.split_rows import MomentSample, RandomSplit, read_moments
from thresher.errors import ConfigError


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(0, 2**32))
def test_chunks_do_not_matter(chunks: list[int], seed: int) -> None:
    whole = RandomSplit(seed).assign(sum(chunks))
    split = RandomSplit(seed)
    assert np.array_equal(np.concatenate([split.assign(n) for n in chunks]), whole)


def test_shares_and_seed() -> None:
    split = RandomSplit(0).assign(100_000)
    assert np.allclose(np.bincount(split) / len(split), [0.8, 0.1, 0.1], atol=0.005)
    assert not np.array_equal(split, RandomSplit(1).assign(100_000))


def test_shares_must_add_up() -> None:
    with pytest.raises(ConfigError, match="add up"):
        SplitConfig(shares=(0.5, 0.1, 0.1))


MOMENTS = {"7": 7.0, "-1.5": -1.5, "1970-01-02": 86_400.0, "1970-01-01 00:01": 60.0, "soon": math.nan, "": math.nan}


@given(st.lists(st.sampled_from(list(MOMENTS)), max_size=8))
def test_a_moment_does_not_depend_on_the_other_rows(texts: list[str]) -> None:
    found = read_moments(pl.Series(texts, dtype=pl.String), "")
    np.testing.assert_array_equal(found, [MOMENTS[text] for text in texts])


def test_with_a_date_format_numbers_are_dates() -> None:
    moments = read_moments(pl.Series(["19700102", "19700103", "7"]), "%Y%m%d")
    np.testing.assert_array_equal(moments, [86_400, 172_800, math.nan])


def test_a_thinned_sample_of_moments_has_the_same_cuts() -> None:
    sample = MomentSample(limit=1_000)
    for part in np.array_split(np.arange(10_000.0), 37):
        sample.add(part)
        assert sum(map(len, sample._held)) <= 1_000
    assert sample.cut((0.8, 0.1, 0.1)) == pytest.approx((8_000, 9_000), abs=20)
