"""Lookup of rows in the arrays of a compact table: one serial numba kernel that releases the GIL.

Any number of Python threads may run it at once. It allocates nothing of the table's size and reads only the rows looked
up. The arrays are described in `compact.layouts`; the numpy twin is `compact.lookup.look_up_by_numpy`.
"""

from collections import namedtuple
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.compiling import kernel
from thresher.kernels.primitives import (
    ONE,
    ZERO,
    as_float,
    bit,
    next_one,
    prefetch,
    rank,
    select_from,
    trailing_zeros,
)

Array = npt.NDArray[Any]
ROW_INDEX_CODES = {"all": 0, "bitmap": 1, "list8": 2, "list16": 3}
CONTENT_CODES = {"full": 0, "masks": 1, "columns": 2}
BATCH = 32  # ids processed together
VALUE_CODES = {"fp32": 0, "fp16": 1, "bf16": 2, "int8": 3, "int4": 4}


# arrays that the kernel reads: digits after a name are the bits of its type, where layouts differ in it
DTYPES = {
    "row_bits": np.uint64,
    "row_ranks": np.uint32,
    "row_starts": np.uint32,
    "row_lows8": np.uint8,
    "row_lows16": np.uint16,
    "full_bits": np.uint64,
    "full_ranks": np.uint32,
    "cell_bits": np.uint64,
    "cell_ranks": np.uint32,
    "row_flags": np.uint64,
    "row_samples": np.uint32,
    "columns8": np.uint8,
    "columns16": np.uint16,
    "column_map": np.uint16,
    "values32": np.float32,
    "values16": np.uint16,  # the bits of fp16 or bf16
    "values8": np.uint8,  # the bits of int8, or two int4
    "scales": np.float32,
}
NUMBERS = ("row_index", "content", "num_features", "width", "num_full_rows", "value_type")
_new_type: Any = namedtuple
TableArrays = _new_type("TableArrays", (*NUMBERS, *DTYPES))


def table_arrays(layout: Any, arrays: Mapping[str, Array]) -> Any:
    """The kernel's view of a layout (`compact.layouts.Layout`): numbers and arrays, always of the same types."""
    stored = {"column_map": np.arange(layout.width, dtype=np.uint16), **arrays}
    views = []
    for name, dtype in DTYPES.items():
        found = stored.get(name.rstrip("0123456789"), np.zeros(0, dtype))
        view = found.view(dtype) if found.itemsize == np.dtype(dtype).itemsize else np.zeros(0, dtype)
        view.flags.writeable = False  # numba compiles a kernel again for writable arrays
        views.append(view)
    codes = ROW_INDEX_CODES[layout.row_index], CONTENT_CODES[layout.content]
    sizes = layout.num_features, layout.width, layout.num_full_rows
    return TableArrays(*codes, *sizes, VALUE_CODES[layout.value_type], *views)


@kernel
def _find(starts, lows, group, low):  # type: ignore[no-untyped-def]
    """Rank of a row among the listed ones, by binary search inside its group; −1 if it is not listed."""
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


@kernel
def _value(value_type, values32, values16, values8, scales, entry):  # type: ignore[no-untyped-def]
    if value_type == 0:
        return values32[entry]
    if value_type == 1:
        half = np.uint32(values16[entry])
        # the exponent's bias differs by 112; multiplying instead of adding is also right for denormal numbers
        magnitude = as_float((half & np.uint32(0x7FFF)) << np.uint32(13)) * np.float32(2.0**112)
        return -magnitude if half & np.uint32(0x8000) else magnitude
    if value_type == 2:
        return as_float(np.uint32(values16[entry]) << np.uint32(16))
    if value_type == 3:
        return np.float32(np.int8(values8[entry])) * scales[entry >> 6]
    nibble = (values8[entry >> 1] >> np.uint8(4 * (entry & 1))) & np.uint8(15)
    return np.float32(np.int8(nibble) - np.int8(8)) * scales[entry >> 5]


@kernel
def look_up_rows(table, ids, bag_starts, mean, out):  # type: ignore[no-untyped-def]
    """Write the vectors of `ids` `[n]` into `out`.

    Without `bag_starts` (empty) each id has a row of `out` `[n, D]`, which is overwritten; with `bag_starts` `[B + 1]`
    the ids from `bag_starts[b]` to `bag_starts[b + 1]` share row `b` of zeroed `out` `[B, D]`, summed or averaged.
    Returns the place of the first id outside the table, or −1.

    Several ids pass together through short loops (rank of the row, place of its entries, the entries), so that the
    memory requested for one id arrives while others are processed.
    """
    # each array is read from the tuple once: reading it counts a reference
    row_index, content, num_features, width = table.row_index, table.content, table.num_features, table.width
    num_full_rows, value_type, row_starts = table.num_full_rows, table.value_type, table.row_starts
    row_bits, row_ranks, row_lows8, row_lows16 = table.row_bits, table.row_ranks, table.row_lows8, table.row_lows16
    full_bits, full_ranks, cell_bits, cell_ranks = table.full_bits, table.full_ranks, table.cell_bits, table.cell_ranks
    row_flags, row_samples, columns8, columns16 = table.row_flags, table.row_samples, table.columns8, table.columns16
    column_map, values32, values16 = table.column_map, table.values32, table.values16
    values8, scales = table.values8, table.scales

    found_at = np.empty(BATCH, np.int64)  # places in `ids` of those that have a stored row
    ranks = np.empty(BATCH, np.int64)  # of these rows
    places = np.empty(BATCH, np.int64)  # of a row's first column number
    entries = np.empty(BATCH, np.int64)  # of its first value
    sizes = np.empty(BATCH, np.int64)  # −1 for a full row
    first_bad = np.int64(-1)
    bag, share = np.int64(-1), np.float32(1)
    for start in range(0, ids.shape[0], BATCH):
        stop = min(start + BATCH, ids.shape[0])
        found = np.int64(0)
        for i in range(start, stop):
            later = ids[min(i + BATCH, ids.shape[0] - 1)]
            row = ids[i]
            if row < 0 or row >= num_features:
                if first_bad < 0:
                    first_bad = np.int64(i)
                continue
            present, stored = np.True_, np.int64(row)
            if row_index == 1:
                if 0 <= later < num_features:
                    prefetch(row_bits, later >> 6)
                present, stored = bit(row_bits, row), rank(row_bits, row_ranks, row)
            elif row_index == 2:
                stored = _find(row_starts, row_lows8, row >> 8, row & 255)
                present = stored >= 0
            elif row_index == 3:
                stored = _find(row_starts, row_lows16, row >> 16, row & 65535)
                present = stored >= 0
            # no branch, since it could not be predicted
            found_at[found], ranks[found] = i, stored
            found += np.int64(present)

        for k in range(found):
            entries[k], sizes[k] = 0, -1 if content == 0 else 0
            if num_full_rows > 0:
                full_before = rank(full_bits, full_ranks, ranks[k])
                sizes[k] = -1 if bit(full_bits, ranks[k]) else 0
                entries[k] = full_before * width
                ranks[k] -= full_before
            if content == 0:
                entries[k] = ranks[k] * width
            elif content == 1:
                places[k] = ranks[k] * width
                prefetch(cell_ranks, places[k] >> 8)
                prefetch(cell_bits, places[k] >> 6)
            else:
                prefetch(row_samples, ranks[k] >> 5)
        if content == 1:
            for k in range(found):
                entries[k] += rank(cell_bits, cell_ranks, places[k])
                if value_type == 0:
                    prefetch(values32, entries[k])
                    prefetch(values32, min(entries[k] + 16, values32.shape[0] - 1))  # the next cache line
                elif value_type <= 2:
                    prefetch(values16, entries[k])
                else:
                    prefetch(values8, entries[k] if value_type == 3 else entries[k] >> 1)
        elif content == 2:
            for k in range(found):
                places[k] = np.int64(row_samples[ranks[k] >> 5])
                prefetch(row_flags, places[k] >> 6)
            for k in range(found):
                places[k] = select_from(row_flags, places[k], ranks[k] & 31)
                entries[k] += places[k]
                if sizes[k] == 0:
                    sizes[k] = next_one(row_flags, places[k] + 1) - places[k]
                    if columns8.shape[0] > 0:
                        prefetch(columns8, places[k])
                if value_type == 0:
                    prefetch(values32, entries[k])
                elif value_type <= 2:
                    prefetch(values16, entries[k])
                else:
                    prefetch(values8, entries[k] if value_type == 3 else entries[k] >> 1)

        if bag_starts.shape[0] == 0:
            out[start:stop] = 0  # here, while these rows are in the cache
        for k in range(found):
            entry, place = entries[k], places[k]
            if bag_starts.shape[0] == 0:
                bag = found_at[k]
            elif bag < 0 or found_at[k] >= bag_starts[bag + 1]:
                bag += 1
                while found_at[k] >= bag_starts[bag + 1]:
                    bag += 1
                if mean:
                    share = np.float32(1) / np.float32(bag_starts[bag + 1] - bag_starts[bag])
            if sizes[k] < 0:
                for c in range(width):
                    value = _value(value_type, values32, values16, values8, scales, entry + c)
                    out[bag, column_map[c]] += share * value
            elif content == 1:
                cell, end = place, place + width
                while cell < end:
                    bits = cell_bits[cell >> 6] >> np.uint64(cell & 63)
                    room = 64 - (cell & 63)
                    if end - cell < room:
                        bits &= (ONE << np.uint64(end - cell)) - ONE
                    while bits != ZERO:
                        value = _value(value_type, values32, values16, values8, scales, entry)
                        out[bag, column_map[cell - place + np.int64(trailing_zeros(bits))]] += share * value
                        bits &= bits - ONE
                        entry += 1
                    cell += room
            else:
                for e in range(sizes[k]):
                    column = np.int64(columns8[place + e]) if columns8.shape[0] > 0 else np.int64(columns16[place + e])
                    value = _value(value_type, values32, values16, values8, scales, entry + e)
                    out[bag, column_map[column]] += share * value
    return first_bad
