"""exp, log and the threshold functions in float32 without calls, so that loops over a row become vector instructions.

Accurate to 2 units in the last place (the polynomials are those of Cephes). Arguments must not be NaN; kernels check
that themselves. Not here: float64, and anything a kernel does with the values.
"""

from typing import Literal

import numpy as np
from numpy import float32, int32

from thresher.kernels.parallel import exact_kernel

SOFTPLUS, SIGMOID = 0, 1
FUNCTION_CODES: dict[Literal["softplus", "sigmoid"], int] = {"softplus": SOFTPLUS, "sigmoid": SIGMOID}

_LOG2_E = float32(1.44269504088896341)
_LN2_HIGH, _LN2_LOW = float32(0.693359375), float32(-2.12194440e-4)
_SQRT_HALF_BITS = int32(0x3F3504F3)


@exact_kernel
def exp(x):  # type: ignore[no-untyped-def]
    """`eˣ`, held at the ends of float32's range instead of 0 and ∞."""
    x = min(max(x, float32(-87.33654)), float32(88.37626))
    power = np.floor(x * _LOG2_E + float32(0.5))
    r = x - power * _LN2_HIGH - power * _LN2_LOW
    y = float32(1.9875691500e-4)
    y = y * r + float32(1.3981999507e-3)
    y = y * r + float32(8.3334519073e-3)
    y = y * r + float32(4.1665795894e-2)
    y = y * r + float32(1.6666665459e-1)
    y = y * r + float32(5.0000001201e-1)
    y = y * r * r + r + float32(1.0)
    return y * int32((int32(power) + int32(127)) << int32(23)).view(np.float32)


@exact_kernel
def log(x):  # type: ignore[no-untyped-def]
    """`log x` for a normal, positive `x`."""
    bits = int32(float32(x).view(np.int32) - _SQRT_HALF_BITS)
    power = float32(int32(bits >> int32(23)))
    m = int32(int32(bits & int32(0x007FFFFF)) + _SQRT_HALF_BITS).view(np.float32) - float32(1.0)  # √½ − 1 … √2 − 1
    square = m * m
    y = float32(7.0376836292e-2)
    y = y * m + float32(-1.1514610310e-1)
    y = y * m + float32(1.1676998740e-1)
    y = y * m + float32(-1.2420140846e-1)
    y = y * m + float32(1.4249322787e-1)
    y = y * m + float32(-1.6668057665e-1)
    y = y * m + float32(2.0000714765e-1)
    y = y * m + float32(-2.4999993993e-1)
    y = y * m + float32(3.3333331174e-1)
    y = y * m * square + power * _LN2_LOW - float32(0.5) * square
    return m + y + power * _LN2_HIGH


@exact_kernel
def softplus(x):  # type: ignore[no-untyped-def]
    """`log(1 + eˣ)` as `max(x, 0) + log1p(e^−|x|)`."""
    y = exp(-abs(x))  # 0 … 1
    p = float32(-3.1760570e-3)  # log1p(y) / y, interpolated at Chebyshev's points
    p = p * y + float32(1.9542528e-2)
    p = p * y + float32(-5.6373615e-2)
    p = p * y + float32(1.0543624e-1)
    p = p * y + float32(-1.5269667e-1)
    p = p * y + float32(1.9663274e-1)
    p = p * y + float32(-2.4951616e-1)
    p = p * y + float32(3.3329710e-1)
    p = p * y + float32(-4.9999893e-1)
    p = p * y + float32(1.0)
    return max(x, float32(0.0)) + p * y


@exact_kernel
def softplus_inverse_of_small(x):  # type: ignore[no-untyped-def]
    """`log(eˣ − 1)` for a normal `x` in 0 … 1: `log x` and the series of `log((eˣ − 1) / x)`."""
    return log(x) + _series(x)


@exact_kernel
def _series(x):  # type: ignore[no-untyped-def]
    square = x * x
    series = float32(1 / 181440) * square - float32(1 / 2880)
    return (series * square + float32(1 / 24)) * square + float32(0.5) * x


@exact_kernel
def softplus_inverse(x):  # type: ignore[no-untyped-def]
    """`log(eˣ − 1)` for a normal, positive `x`."""
    # small: as above; large: x + log(1 − e⁻ˣ); one logarithm serves both
    series = _series(x)
    rest = float32(1.0) - exp(-x)  # outside the choice below, which otherwise is a jump and no vector instruction
    small = x <= float32(1.0)
    return (series if small else x) + log(x if small else rest)


@exact_kernel
def sigmoid(x):  # type: ignore[no-untyped-def]
    """`1 / (1 + e⁻ˣ)`; also the derivative of softplus."""
    y = exp(-abs(x))
    return (float32(1.0) if x >= float32(0.0) else y) / (float32(1.0) + y)


@exact_kernel
def sigmoid_inverse(x):  # type: ignore[no-untyped-def]
    """`log(x / (1 − x))` for a normal `x` in 0 … 1; beyond that the largest it gives."""
    return log(x / max(float32(1.0) - x, float32(1e-30)))
