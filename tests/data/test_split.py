import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.data.split import RandomSplit
from thresher.errors import ConfigError


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(0, 2**32))
def test_chunks_do_not_matter(chunks: list[int], seed: int) -> None:
    whole = RandomSplit(seed).assign(sum(chunks))
    split = RandomSplit(seed)
    assert np.array_equal(np.concatenate([split.assign(n) for n in chunks]), whole)
    resumed = RandomSplit(seed)
    resumed.skip(chunks[0])
    assert np.array_equal(resumed.assign(sum(chunks[1:])), whole[chunks[0] :])


def test_shares_and_seed() -> None:
    split = RandomSplit(0).assign(100_000)
    assert np.allclose(np.bincount(split) / len(split), [0.8, 0.1, 0.1], atol=0.005)
    assert not np.array_equal(split, RandomSplit(1).assign(100_000))


def test_shares_must_add_up() -> None:
    with pytest.raises(ConfigError, match="add up"):
        RandomSplit(0, (0.5, 0.1, 0.1))
