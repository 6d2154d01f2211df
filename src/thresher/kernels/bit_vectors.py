"""Bit operations inside numba kernels: counting and finding ones, reading bits as floats, asking memory ahead.

The bit vectors are those of `compact.bits`: 64-bit words, a count per block of 256 bits, a position per 32 ones.
Loops have fixed lengths where they can: a branch guessed wrong costs more than the arithmetic. Works without torch.
"""

from typing import Any

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from thresher.kernels.compiling import kernel

ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
ONE, ZERO = np.uint64(1), np.uint64(0)


def _ones_of_word(typing_context, word):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), code


def _zeros_below_one(typing_context, word):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], context.get_constant(types.boolean, False))

    return types.uint64(types.uint64), code


def _float_of_bits(typing_context, bits):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.bitcast(args[0], context.get_value_type(types.float32))

    return types.float32(types.uint32), code


def _prefetch_entry(typing_context, array, entry):  # type: ignore[no-untyped-def]
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


popcount: Any = intrinsic(_ones_of_word)
_deposit: Any = intrinsic(_deposit_bits)
_HAS_DEPOSIT = bool(binding.get_host_cpu_features().get("bmi2", False))
trailing_zeros: Any = intrinsic(_zeros_below_one)
as_float: Any = intrinsic(_float_of_bits)
prefetch: Any = intrinsic(_prefetch_entry)


@kernel
def bit(words, position):  # type: ignore[no-untyped-def]
    return (words[position >> 6] >> np.uint64(position & 63)) & ONE != ZERO


@kernel
def rank(words, blocks, position):  # type: ignore[no-untyped-def]
    """Ones before `position`, which may be the very end."""
    count = np.int64(blocks[position >> 8])
    first = (position >> 8) << 2
    for word in range(first, min(first + 4, words.shape[0])):  # always four, but at the end
        within = min(max(position - (word << 6), 0), 64)  # bits of this word that count
        mask = ZERO if within == 0 else ALL_ONES >> np.uint64(64 - within)
        count += np.int64(popcount(words[word] & mask))
    return count


@kernel
def next_one(words, position):  # type: ignore[no-untyped-def]
    """Position of the first one at or after `position`; there is one."""
    word = position >> 6
    bits = words[word] & (ALL_ONES << np.uint64(position & 63))
    while bits == ZERO:
        word += 1
        bits = words[word]
    return (word << 6) + np.int64(trailing_zeros(bits))


def _halve(bits, left):  # type: ignore[no-untyped-def]
    """Place of one number `left` in a word that has it, by asking six times whether it is in the lower half."""
    place, width = np.int64(0), 32
    for _ in range(6):
        low = np.int64(popcount(bits & ((ONE << np.uint64(width)) - ONE)))
        above = low <= left
        left -= low if above else 0
        place += width if above else 0
        bits >>= np.uint64(width if above else 0)
        width >>= 1
    return place


def _scatter(bits, left):  # type: ignore[no-untyped-def]
    """The same in two instructions: bit `left` alone, spread over the ones of the word, lands on the one wanted."""
    return np.int64(trailing_zeros(_deposit(ONE << np.uint64(left), bits)))


_place_of_one = kernel(_scatter if _HAS_DEPOSIT else _halve)


@kernel
def select(words, samples, index):  # type: ignore[no-untyped-def]
    """Position of one number `index`."""
    return select_from(words, np.int64(samples[index >> 5]), index & 31)


@kernel
def select_from(words, position, left):  # type: ignore[no-untyped-def]
    """Position of the one that comes `left` ones after the one at `position`."""
    word = position >> 6
    bits = words[word] & (ALL_ONES << np.uint64(position & 63))
    ones = np.int64(popcount(bits))
    while ones <= left:
        left -= ones
        word += 1
        bits = words[word]
        ones = np.int64(popcount(bits))
    return (word << 6) + _place_of_one(bits, left)
