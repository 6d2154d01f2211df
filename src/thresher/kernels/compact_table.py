"""Looking up rows in the arrays of a compact table: one serial numba kernel that releases the GIL.

Any number of Python threads may be inside it at once. It allocates nothing and reads only the rows asked for.
Not here: what the arrays mean (`compact.layouts`), and lookups that train (`kernels.compact_lookup`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

Array = npt.NDArray[Any]
ROW_INDEX_CODES = {"all": 0, "bitmap": 1, "list8": 2, "list16": 3}
CONTENT_CODES = {"padded": 0, "masks": 1, "columns": 2}
VALUE_CODES = {"fp32": 0, "fp16": 1, "bf16": 2, "int8": 3, "int4": 4}


class TableArrays(NamedTuple):
    """What the kernel reads, always of the same types; arrays a layout does not have are empty."""

    row_index: int
    content: int
    num_features: int
    width: int
    has_pool: bool
    num_full_rows: int
    value_type: int
    row_bits: Array  # uint64
    row_ranks: Array  # uint32
    row_starts: Array  # uint32
    row_lows8: Array
    row_lows16: Array
    pool16: Array
    pool32: Array
    full_bits: Array  # uint64
    full_ranks: Array  # uint32
    cell_bits: Array  # uint64
    cell_ranks: Array  # uint32
    row_flags: Array  # uint64
    row_samples: Array  # uint32
    columns8: Array
    columns16: Array
    column_map: Array  # uint16 [width]
    values32: Array  # float32
    values16: Array  # uint16: the bits of fp16 or bf16
    values8: Array  # uint8: the bits of int8, or two int4
    scales: Array  # float32


def table_arrays(layout: Any, arrays: Mapping[str, Array]) -> TableArrays:
    """What the kernel reads, from a layout (`compact.layouts.Layout`) and its arrays."""

    def array(name: str, dtype: type[np.generic]) -> Array:
        found = arrays.get(name)
        return _read_only(np.zeros(0, dtype) if found is None or found.dtype != dtype else found)

    def bits(dtype: type[np.generic]) -> Array:
        fits = values.itemsize == np.dtype(dtype).itemsize
        return _read_only(values.view(dtype) if fits else np.zeros(0, dtype))

    values = arrays["values"]
    column_map = arrays["column_map"] if layout.drops_columns else np.arange(layout.width, dtype=np.uint16)
    return TableArrays(
        row_index=ROW_INDEX_CODES[layout.row_index],
        content=CONTENT_CODES[layout.content],
        num_features=layout.num_features,
        width=layout.width,
        has_pool=layout.has_pool,
        num_full_rows=layout.num_full_rows,
        value_type=VALUE_CODES[layout.value_type],
        row_bits=array("row_bits", np.uint64),
        row_ranks=array("row_ranks", np.uint32),
        row_starts=array("row_starts", np.uint32),
        row_lows8=array("row_lows", np.uint8),
        row_lows16=array("row_lows", np.uint16),
        pool16=array("pool_rows", np.uint16),
        pool32=array("pool_rows", np.uint32),
        full_bits=array("full_bits", np.uint64),
        full_ranks=array("full_ranks", np.uint32),
        cell_bits=array("cell_bits", np.uint64),
        cell_ranks=array("cell_ranks", np.uint32),
        row_flags=array("row_flags", np.uint64),
        row_samples=array("row_samples", np.uint32),
        columns8=array("columns", np.uint8),
        columns16=array("columns", np.uint16),
        column_map=_read_only(column_map),
        values32=bits(np.float32),
        values16=bits(np.uint16),
        values8=bits(np.uint8),
        scales=array("scales", np.float32),
    )


def _read_only(array: Array) -> Array:
    """Writable and read-only arrays are different types to numba: one kind means one compilation."""
    view = array.view()
    view.flags.writeable = False
    return view


def _ones_of_word(typing_context, word):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), code


def _zeros_below_word(typing_context, word):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], context.get_constant(types.boolean, False))

    return types.uint64(types.uint64), code


def _float_of_bits(typing_context, bits):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.bitcast(args[0], context.get_value_type(types.float32))

    return types.float32(types.uint32), code


_popcount: Any = intrinsic(_ones_of_word)
_trailing_zeros: Any = intrinsic(_zeros_below_word)
_as_float: Any = intrinsic(_float_of_bits)


@numba.njit(nogil=True, cache=True)
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


@numba.njit(nogil=True, cache=True)
def _rank(words, blocks, position):  # type: ignore[no-untyped-def]
    return np.int64(blocks[position >> 9]) + _ones_in(words, (position >> 9) << 9, position)


@numba.njit(nogil=True, cache=True)
def _next_one(words, position):  # type: ignore[no-untyped-def]
    """Position of the first one at or after `position`; there is one."""
    word = position >> 6
    bits = words[word] & (np.uint64(0xFFFFFFFFFFFFFFFF) << np.uint64(position & 63))
    while bits == np.uint64(0):
        word += 1
        bits = words[word]
    return (word << 6) + np.int64(_trailing_zeros(bits))


@numba.njit(nogil=True, cache=True)
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


@numba.njit(nogil=True, cache=True)
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
def _value(value_type, values32, values16, values8, scales, entry):  # type: ignore[no-untyped-def]
    if value_type == 0:
        return values32[entry]
    if value_type == 1:
        half = np.uint32(values16[entry])
        # the exponent's bias differs by 112; multiplying instead of adding also sets denormal numbers right
        magnitude = _as_float((half & np.uint32(0x7FFF)) << np.uint32(13)) * np.float32(2.0**112)
        return -magnitude if half & np.uint32(0x8000) else magnitude
    if value_type == 2:
        return _as_float(np.uint32(values16[entry]) << np.uint32(16))
    if value_type == 3:
        return np.float32(np.int8(values8[entry])) * scales[entry >> 6]
    nibble = (values8[entry >> 1] >> np.uint8(4 * (entry & 1))) & np.uint8(15)
    return np.float32(np.int8(nibble) - np.int8(8)) * scales[entry >> 5]


@numba.njit(nogil=True, cache=True)
def look_up_rows(table, ids, bag_starts, mean, out):  # type: ignore[no-untyped-def]
    """Write the vectors of `ids` `[n]` into `out`.

    Without `bag_starts` (empty) each id has a row of `out` `[n, D]`, which may hold anything; with `bag_starts`
    `[B + 1]` the ids from `bag_starts[b]` to `bag_starts[b + 1]` share row `b` of zeroed `out` `[B, D]`, summed or
    averaged.
    Returns the place of the first id outside the table, which adds nothing, or −1.
    """
    # every array once into a local: taking one out of the tuple counts a reference
    row_index, content, num_features, width = table.row_index, table.content, table.num_features, table.width
    has_pool, num_full_rows, value_type = table.has_pool, table.num_full_rows, table.value_type
    row_bits, row_ranks, row_starts = table.row_bits, table.row_ranks, table.row_starts
    row_lows8, row_lows16, pool16, pool32 = table.row_lows8, table.row_lows16, table.pool16, table.pool32
    full_bits, full_ranks = table.full_bits, table.full_ranks
    cell_bits, cell_ranks = table.cell_bits, table.cell_ranks
    row_flags, row_samples, columns8, columns16 = table.row_flags, table.row_samples, table.columns8, table.columns16
    column_map, values32, values16 = table.column_map, table.values32, table.values16
    values8, scales = table.values8, table.scales
    first_bad = np.int64(-1)
    bag, share = np.int64(-1), np.float32(1)
    for i in range(ids.shape[0]):
        if bag_starts.shape[0] == 0:
            bag = np.int64(i)
            # here and not all at once: the row is written again while it is still near
            for c in range(out.shape[1]):
                out[i, c] = np.float32(0)
        elif bag < 0 or i >= bag_starts[bag + 1]:
            bag += 1
            while i >= bag_starts[bag + 1]:
                bag += 1
            if mean:
                share = np.float32(1) / np.float32(bag_starts[bag + 1] - bag_starts[bag])
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
        if has_pool:
            rank = np.int64(pool16[rank]) if pool16.shape[0] > 0 else np.int64(pool32[rank])

        entry, full = np.int64(0), content == 0
        if num_full_rows > 0:
            full_before = _rank(full_bits, full_ranks, rank)
            full = (full_bits[rank >> 6] >> np.uint64(rank & 63)) & np.uint64(1) == np.uint64(1)
            rank -= full_before
            entry = full_before * width
        if full:
            if content == 0:
                entry = rank * width
            elif content == 1:
                entry += _rank(cell_bits, cell_ranks, rank * width)
            else:
                entry += _select(row_flags, row_samples, rank)
            for c in range(width):
                value = _value(value_type, values32, values16, values8, scales, entry + c)
                out[bag, column_map[c]] += share * value
        elif content == 1:
            cell, end = rank * width, (rank + 1) * width
            begin = cell
            entry += _rank(cell_bits, cell_ranks, cell)
            while cell < end:
                bits = cell_bits[cell >> 6] >> np.uint64(cell & 63)
                room = 64 - (cell & 63)
                if end - cell < room:
                    bits &= (np.uint64(1) << np.uint64(end - cell)) - np.uint64(1)
                while bits != np.uint64(0):
                    value = _value(value_type, values32, values16, values8, scales, entry)
                    out[bag, column_map[cell - begin + np.int64(_trailing_zeros(bits))]] += share * value
                    bits &= bits - np.uint64(1)
                    entry += 1
                cell += room
        else:
            start = _select(row_flags, row_samples, rank)
            stop = _next_one(row_flags, start + 1)
            for place in range(start, stop):
                column = np.int64(columns8[place]) if columns8.shape[0] > 0 else np.int64(columns16[place])
                value = _value(value_type, values32, values16, values8, scales, entry + place)
                out[bag, column_map[column]] += share * value
    return first_bad
