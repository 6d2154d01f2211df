"""The kernels' own exp and log against float64."""

import numpy as np
import pytest
from scipy.special import expit, logit

from thresher.kernels import vector_math

ULP = 2.0**-23
WIDE = np.concatenate([np.linspace(-87, 87, 4001), np.geomspace(1e-30, 80, 2001)]).astype(np.float32)
POSITIVE = np.concatenate([np.geomspace(1e-37, 80, 4001), np.linspace(0.9, 1.1, 101)]).astype(np.float32)


def largest_error(function, inputs, expected, *, floor=0.0):
    ours = np.array([function(x) for x in inputs], dtype=np.float64)
    return np.max(np.abs(ours - expected) / np.maximum(np.abs(expected), floor))


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (vector_math.exp, np.exp),
        (vector_math.softplus, lambda x: np.logaddexp(0, x)),
        (vector_math.sigmoid, expit),
    ],
)
def test_functions_of_any_number(function, reference):
    assert largest_error(function, WIDE, reference(WIDE.astype(np.float64))) < 4 * ULP


@pytest.mark.parametrize(
    ("function", "reference", "inputs"),
    [
        (vector_math.log, np.log, POSITIVE),
        (vector_math.softplus_inverse, lambda x: x + np.log(-np.expm1(-x)), POSITIVE),
        (vector_math.sigmoid_inverse, logit, POSITIVE[POSITIVE < 0.999]),
    ],
)
def test_functions_of_positive_numbers(function, reference, inputs):
    # near their zero these are sums of larger terms, hence the floor
    assert largest_error(function, inputs, reference(inputs.astype(np.float64)), floor=1.0) < 4 * ULP


def test_exp_stays_in_range_instead_of_overflowing():
    assert 0 < vector_math.exp(np.float32(-1e30)) < 1e-37
    assert 1e38 < vector_math.exp(np.float32(1e30)) < np.inf
    assert vector_math.softplus(np.float32(1e30)) == np.float32(1e30)
