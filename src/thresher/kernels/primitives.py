"""Functions that other kernels inline: bit vectors, prefetching, and exp, log and threshold functions in float32.

A bit vector is 64-bit words, with a count per block of 256 bits and a position per 32 ones (`compact.encoding`). The
float functions are accurate to 2 units in the last place (the polynomials are those of Cephes) and make no calls, so
that loops over a row become vector instructions. Their arguments must not be NaN. Works without torch.
"""

from typing import Any

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic
from numpy import float32, int32

from thresher.kernels.compiling import exact_kernel, kernel, serial_kernel

ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
ONE, ZERO = np.uint64(1), np.uint64(0)
SOFTPLUS, SIGMOID = 0, 1
FUNCTION_CODES = {"softplus": SOFTPLUS, "sigmoid": SIGMOID}
PREFETCHED_ROWS = 4  # ahead; fewer leave waiting, more fall out of the first cache

_NUMBERS_PER_LINE = 16  # of memory; narrow rows are finished sooner, so they are requested earlier
_LOG2_E = float32(1.44269504088896341)
_LN2_HIGH, _LN2_LOW = float32(0.693359375), float32(-2.12194440e-4)
_SQRT_HALF_BITS = int32(0x3F3504F3)


def _popcount(typing_context, word):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), code


def _trailing_zeros(typing_context, word):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], context.get_constant(types.boolean, False))

    return types.uint64(types.uint64), code


def _as_float(typing_context, bits):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.bitcast(args[0], context.get_value_type(types.float32))

    return types.float32(types.uint32), code


def _prefetch(typing_context, array, entry):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
        place = builder.bitcast(builder.gep(data, [args[1]]), pointer)
        builder.call(function, [place, number(0), number(3), number(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(array, types.intp), code


def _deposit_bits(typing_context, bits, mask):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        word = ir.IntType(64)
        function = builder.module.declare_intrinsic("llvm.x86.bmi.pdep.64", (), ir.FunctionType(word, [word, word]))
        return builder.call(function, args)

    return types.uint64(types.uint64, types.uint64), code


popcount: Any = intrinsic(_popcount)
trailing_zeros: Any = intrinsic(_trailing_zeros)
as_float: Any = intrinsic(_as_float)
prefetch: Any = intrinsic(_prefetch)
_deposit: Any = intrinsic(_deposit_bits)
_HAS_DEPOSIT = bool(binding.get_host_cpu_features().get("bmi2", False))


@serial_kernel
def prefetch_row(table, rows, i):  # type: ignore[no-untyped-def]
    """Prefetch the row of `table` (contiguous, 4 bytes a number) that is used some places after `rows[i]`."""
    width = table.shape[1]
    ahead = PREFETCHED_ROWS + _NUMBERS_PER_LINE // max(width, 1)
    start = rows[min(i + ahead, rows.shape[0] - 1)] * width
    for entry in range(start, start + width, _NUMBERS_PER_LINE):
        prefetch(table, entry)


@kernel
def bit(words, position):  # type: ignore[no-untyped-def]
    return (words[position >> 6] >> np.uint64(position & 63)) & ONE != ZERO


@kernel
def rank(words, blocks, position):  # type: ignore[no-untyped-def]
    """Number of ones before `position`, which may be the end of the vector."""
    count = np.int64(blocks[position >> 8])
    first = (position >> 8) << 2
    for word in range(first, min(first + 4, words.shape[0])):  # a fixed length: a wrong branch costs more
        within = min(max(position - (word << 6), 0), 64)  # bits of this word that count
        mask = ZERO if within == 0 else ALL_ONES >> np.uint64(64 - within)
        count += np.int64(popcount(words[word] & mask))
    return count


@kernel
def next_one(words, position):  # type: ignore[no-untyped-def]
    """Position of the first one at or after `position`; there must be one."""
    word = position >> 6
    bits = words[word] & (ALL_ONES << np.uint64(position & 63))
    while bits == ZERO:
        word += 1
        bits = words[word]
    return (word << 6) + np.int64(trailing_zeros(bits))


def _place_by_halving(bits, index):  # type: ignore[no-untyped-def]
    """Place of the one with this index in a word, by asking six times whether it is in the lower half."""
    place, width = np.int64(0), 32
    for _ in range(6):
        low = np.int64(popcount(bits & ((ONE << np.uint64(width)) - ONE)))
        above = low <= index
        index -= low if above else 0
        place += width if above else 0
        bits >>= np.uint64(width if above else 0)
        width >>= 1
    return place


def _place_by_deposit(bits, index):  # type: ignore[no-untyped-def]
    """The same in two instructions: one bit, spread over the ones of the word, lands on the wanted one."""
    return np.int64(trailing_zeros(_deposit(ONE << np.uint64(index), bits)))


_place_of_one = kernel(_place_by_deposit if _HAS_DEPOSIT else _place_by_halving)


@kernel
def select_from(words, position, index):  # type: ignore[no-untyped-def]
    """Position of the one that is `index` ones after the one at `position`."""
    word = position >> 6
    bits = words[word] & (ALL_ONES << np.uint64(position & 63))
    ones = np.int64(popcount(bits))
    while ones <= index:
        index -= ones
        word += 1
        bits = words[word]
        ones = np.int64(popcount(bits))
    return (word << 6) + _place_of_one(bits, index)


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
