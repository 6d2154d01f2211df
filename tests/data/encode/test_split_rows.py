import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, strategies as st

from thresher.data.config import DataConfig, SplitConfig, SyntheticConfig
from thresher.data.encode.sources import build_source
from thresher.data.encode.split_rows import MomentSample, RandomSplit, build_splitter, read_moments
from thresher.errors import ConfigError, DataError, SettingsConflictError


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


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, "random"),
        ({"shares": (0.5, 0.3, 0.2)}, "random"),
        ({"column": "fold"}, "column"),
        ({"column": "day", "by": "time"}, "time"),
        ({"column": "day", "date_format": "%d.%m.%Y"}, "time"),
        ({"column": "day", "validation_from": "2024-03-01", "test_from": "2024-04-01"}, "time"),
        ({"validation_paths": ("v.csv",), "test_paths": ("t.csv",)}, "files"),
    ],
)
def test_settings_imply_the_kind_of_split(settings: dict[str, Any], kind: str) -> None:
    split = SplitConfig(**settings)
    assert split.kind == kind
    assert split == SplitConfig(**{**settings, "by": kind})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"by": "random", "column": "fold"}, 'column has no effect in a split by random.*to "time" or "column"'),
        ({"by": "random", "test_paths": ("t.csv",)}, 'test_paths has no effect in a split by random.*to "files"'),
        ({"by": "column", "column": "fold", "date_format": "%Y"}, "date_format has no effect in a split by column"),
        (
            {"column": "fold", "shares": (0.5, 0.3, 0.2)},
            'shares has no effect in a split by column.*"random" or "time"',
        ),
        (
            {"column": "fold", "validation_paths": ("v",), "test_paths": ("t",)},
            "column has no effect in a split by fil",
        ),
        ({"by": "time", "column": "day", "test_paths": ("t.csv",)}, "test_paths has no effect in a split by time"),
        (
            {"column": "day", "validation_from": "3", "test_from": "4", "shares": (0.5, 0.3, 0.2)},
            "shares has no effect beside data.split.validation_from",
        ),
    ],
)
def test_settings_of_another_kind_of_split_raise(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsConflictError, match=problem):
        SplitConfig(**settings)


def test_a_split_seed_needs_a_random_split() -> None:
    with pytest.raises(SettingsConflictError, match="split_seed has no effect in a split by column"):
        DataConfig(split=SplitConfig(column="fold"), split_seed=3)


def test_a_split_column_that_does_not_exist_raises() -> None:
    rows = SyntheticConfig(num_rows=100)
    source = build_source(DataConfig(source="synthetic", synthetic=rows, split=SplitConfig(column="signal")))
    splitter = build_splitter(source)
    with pytest.raises(DataError, match="no column 'signal'; did you mean 'signal_"):
        splitter(next(source.chunks()), np.ones(100, bool))


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
