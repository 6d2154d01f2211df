import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.special import expit, logit

from thresher.compact.encoding import pack_bits, rank_blocks, select_samples
from thresher.kernels import primitives
from thresher.kernels.primitives import bit, next_one, rank, select_from

ULP = 2.0**-23
WIDE = np.concatenate([np.linspace(-87, 87, 4001), np.geomspace(1e-30, 80, 2001)]).astype(np.float32)
POSITIVE = np.concatenate([np.geomspace(1e-37, 80, 4001), np.linspace(0.9, 1.1, 101)]).astype(np.float32)


@given(st.integers(1, 3000), st.sampled_from([0.001, 0.05, 0.5, 1.0]), st.integers(0, 2**16))
def test_rank_select_and_next_one_equal_counting(num_bits, density, seed):
    flags = np.random.default_rng(seed).random(num_bits) < density
    flags[-1] = True
    ones = np.flatnonzero(flags)
    words = pack_bits(ones, num_bits)
    blocks, samples = rank_blocks(words, num_bits), select_samples(ones)
    for position in {0, 1, num_bits // 2, num_bits - 1, num_bits}:
        assert rank(words, blocks, position) == flags[:position].sum()
    for index in {0, len(ones) // 3, len(ones) - 1}:
        assert select_from(words, np.int64(samples[index >> 5]), index & 31) == ones[index]
    for position in {0, num_bits // 2, num_bits - 1}:
        assert next_one(words, position) == ones[np.searchsorted(ones, position)]
        assert bit(words, position) == flags[position]


def largest_error(function, inputs, expected, *, floor=0.0):
    ours = np.array([function(x) for x in inputs], dtype=np.float64)
    return np.max(np.abs(ours - expected) / np.maximum(np.abs(expected), floor))


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (primitives.exp, np.exp),
        (primitives.softplus, lambda x: np.logaddexp(0, x)),
        (primitives.sigmoid, expit),
    ],
)
def test_functions_of_any_number(function, reference):
    assert largest_error(function, WIDE, reference(WIDE.astype(np.float64))) < 4 * ULP


@pytest.mark.parametrize(
    ("function", "reference", "inputs"),
    [
        (primitives.log, np.log, POSITIVE),
        (primitives.softplus_inverse, lambda x: x + np.log(-np.expm1(-x)), POSITIVE),
        (primitives.sigmoid_inverse, logit, POSITIVE[POSITIVE < 0.999]),
    ],
)
def test_functions_of_positive_numbers(function, reference, inputs):
    # near their zero these are sums of larger terms, hence the floor
    assert largest_error(function, inputs, reference(inputs.astype(np.float64)), floor=1.0) < 4 * ULP


def test_exp_stays_in_range_instead_of_overflowing():
    assert 0 < primitives.exp(np.float32(-1e30)) < 1e-37
    assert 1e38 < primitives.exp(np.float32(1e30)) < np.inf
    assert primitives.softplus(np.float32(1e30)) == np.float32(1e30)
