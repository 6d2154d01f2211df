"""Looking up rows in the arrays of a compact table: one serial numba kernel that releases the GIL.

Any number of Python threads may be inside it at once. It allocates nothing and reads only the rows asked for.
Not here: what the arrays mean (`compact.layouts`), and lookups that train (`kernels.compact_lookup`).
"""

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

Array = npt.NDArray[Any]
ROW_INDEX_CODES = {"all": 0, "bitmap": 1, "list8": 2, "list16": 3}
CONTENT_CODES = {"padded": 0, "masks": 1, "columns": 2}


class TableArrays(NamedTuple):
    """What the kernel reads, always of the same types; arrays a layout does not have are empty."""

    row_index: int
    content: int
    num_features: int
    width: int
    row_bits: Array  # uint64
    row_ranks: Array  # uint32
    row_starts: Array  # uint32
    row_lows8: Array
    row_lows16: Array
    cell_bits: Array  # uint64
    cell_ranks: Array  # uint32
    row_flags: Array  # uint64
    row_samples: Array  # uint32
    columns8: Array
    columns16: Array
    column_map: Array  # uint16 [width]
    values: Array


def _ones_of_word(typing_context, word):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), code


def _zeros_below_word(typing_context, word):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], context.get_constant(types.boolean, False))

    return types.uint64(types.uint64), code


_popcount: Any = intrinsic(_ones_of_word)
_trailing_zeros: Any = intrinsic(_zeros_below_word)


@numba.njit(nogil=True, cache=True, inline="always")
def _ones_in(words, first, last):  # type: ignore[no-untyped-def]
    """Ones among the bits first … last − 1."""
    count = np.int64(0)
    if last <= first:
        return count
    first_word, last_word = first >> 6, (last - 1) >> 6
    low = np.uint64(0xFFFFFFFFFFFFFFFF) << np.uint64(first & 63)
    high = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(63 - ((last - 1) & 63))
    if first_word == last_word:
        return np.int64(_popcount(words[first_word] & low & high))
    count += np.int64(_popcount(words[first_word] & low))
    for word in range(first_word + 1, last_word):
        count += np.int64(_popcount(words[word]))
    return count + np.int64(_popcount(words[last_word] & high))


@numba.njit(nogil=True, cache=True, inline="always")
def _rank(words, blocks, position):  # type: ignore[no-untyped-def]
    return np.int64(blocks[position >> 9]) + _ones_in(words, (position >> 9) << 9, position)


@numba.njit(nogil=True, cache=True, inline="always")
def _next_one(words, position):  # type: ignore[no-untyped-def]
    """Position of the first one at or after `position`; there is one."""
    word = position >> 6
    bits = words[word] & (np.uint64(0xFFFFFFFFFFFFFFFF) << np.uint64(position & 63))
    while bits == np.uint64(0):
        word += 1
        bits = words[word]
    return (word << 6) + np.int64(_trailing_zeros(bits))


@numba.njit(nogil=True, cache=True, inline="always")
def _select(words, samples, index):  # type: ignore[no-untyped-def]
    """Position of one number `index`."""
    position = np.int64(samples[index >> 5])
    left = index & 31  # ones still to pass, counted from the sampled one
    word = position >> 6
    bits = words[word] & (np.uint64(0xFFFFFFFFFFFFFFFF) << np.uint64(position & 63))
    ones = np.int64(_popcount(bits))
    while ones <= left:
        left -= ones
        word += 1
        bits = words[word]
        ones = np.int64(_popcount(bits))
    for _ in range(left):
        bits &= bits - np.uint64(1)  # clears the lowest one
    return (word << 6) + np.int64(_trailing_zeros(bits))


@numba.njit(nogil=True, cache=True, inline="always")
def _find(starts, lows, group, low):  # type: ignore[no-untyped-def]
    """Rank of a row among the listed ones, −1 when it is not there: binary search inside its group."""
    first, last = np.int64(starts[group]), np.int64(starts[group + 1])
    while first < last:
        middle = (first + last) >> 1
        if lows[middle] < low:
            first = middle + 1
        else:
            last = middle
    if first < np.int64(starts[group + 1]) and lows[first] == low:
        return first
    return np.int64(-1)


@numba.njit(nogil=True, cache=True)
def look_up_rows(table, ids, out):  # type: ignore[no-untyped-def]
    """Write the vectors of `ids` `[n]` into `out` `[n, D]`, which must hold zeros.

    Returns the place of the first id outside the table, whose vector stays zero, or −1.
    """
    # every array once into a local: taking one out of the tuple counts a reference
    row_index, content, num_features, width = table.row_index, table.content, table.num_features, table.width
    row_bits, row_ranks, row_starts = table.row_bits, table.row_ranks, table.row_starts
    row_lows8, row_lows16 = table.row_lows8, table.row_lows16
    cell_bits, cell_ranks = table.cell_bits, table.cell_ranks
    row_flags, row_samples, columns8, columns16 = table.row_flags, table.row_samples, table.columns8, table.columns16
    column_map, values = table.column_map, table.values
    first_bad = np.int64(-1)
    for i in range(ids.shape[0]):
        row = ids[i]
        if row < 0 or row >= num_features:
            if first_bad < 0:
                first_bad = np.int64(i)
            continue

        rank = np.int64(row)
        if row_index == 1:
            if (row_bits[row >> 6] >> np.uint64(row & 63)) & np.uint64(1) == np.uint64(0):
                continue
            rank = _rank(row_bits, row_ranks, row)
        elif row_index == 2:
            rank = _find(row_starts, row_lows8, row >> 8, row & 255)
        elif row_index == 3:
            rank = _find(row_starts, row_lows16, row >> 16, row & 65535)
        if rank < 0:
            continue

        if content == 0:
            start = rank * width
            for c in range(width):
                out[i, column_map[c]] = values[start + c]
        elif content == 1:
            cell, end = rank * width, (rank + 1) * width
            begin = cell
            entry = _rank(cell_bits, cell_ranks, cell)
            while cell < end:
                bits = cell_bits[cell >> 6] >> np.uint64(cell & 63)
                room = 64 - (cell & 63)
                if end - cell < room:
                    bits &= (np.uint64(1) << np.uint64(end - cell)) - np.uint64(1)
                while bits != np.uint64(0):
                    out[i, column_map[cell - begin + np.int64(_trailing_zeros(bits))]] = values[entry]
                    bits &= bits - np.uint64(1)
                    entry += 1
                cell += room
        else:
            start = _select(row_flags, row_samples, rank)
            stop = _next_one(row_flags, start + 1)
            if columns8.shape[0] > 0:
                for entry in range(start, stop):
                    out[i, column_map[columns8[entry]]] = values[entry]
            else:
                for entry in range(start, stop):
                    out[i, column_map[columns16[entry]]] = values[entry]
    return first_bad
