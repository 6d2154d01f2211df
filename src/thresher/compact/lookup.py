"""Lookup in the arrays of a compact table: the numba kernel, or its slower numpy twin if numba is not installed."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.compact.encoding import unpack_values
from thresher.compact.layouts import BLOCK_BITS, LIST_SHIFT, SELECT_STRIDE, Layout

Array = npt.NDArray[Any]
Positions = npt.NDArray[np.int64]
LookUp = Callable[[Positions, Positions | None, bool, npt.NDArray[np.float32]], int]
"""(ids `[n]`, bag starts `[B + 1]` or None, mean not sum, output, zeroed if bags) → place of the first bad id or −1."""

ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
NO_BAGS = np.zeros(0, np.int64)
BEFORE = np.array(
    [[(1 << min(max(at - first, 0), 64)) - 1 for first in range(0, BLOCK_BITS, 64)] for at in range(BLOCK_BITS)],
    np.uint64,
)
"""The bits of a block before each position in it, `[256, 4]`."""
PLACE_OF_ONE = np.array([([at for at in range(8) if octet >> at & 1] + [0] * 8)[:8] for octet in range(256)])
"""The place of each one of a byte, `[256, 8]`."""


def choose_lookup(layout: Layout, arrays: Mapping[str, Array]) -> LookUp:
    """The function that reads this table."""
    try:
        from thresher.kernels.compact_table import look_up_rows, table_arrays
        from thresher.kernels.compiling import num_parts, run_parts
    except ImportError:  # numba is not installed
        return partial(look_up_by_numpy, layout, arrays)
    kernel_arrays = table_arrays(layout, arrays)

    def run(ids: Positions, bag_starts: Positions | None, mean: bool, out: npt.NDArray[np.float32]) -> int:
        if bag_starts is not None:
            return int(look_up_rows(kernel_arrays, ids, bag_starts, mean, out))
        parts = num_parts(out.size)
        bounds = [len(ids) * part // parts for part in range(parts + 1)]

        def look_up_part(part: int) -> int:
            rows = slice(bounds[part], bounds[part + 1])
            bad = int(look_up_rows(kernel_arrays, ids[rows], NO_BAGS, False, out[rows]))
            return bad if bad < 0 else bad + bounds[part]

        return next((bad for bad in run_parts(look_up_part, parts) if bad >= 0), -1)

    return run


def look_up_by_numpy(
    layout: Layout,
    arrays: Mapping[str, Array],
    ids: Positions,
    bag_starts: Positions | None,
    mean: bool,
    out: npt.NDArray[np.float32],
) -> int:
    """The numpy twin of `kernels.compact_table.look_up_rows`."""
    places, columns, values, bad = find_entries(layout, arrays, ids)
    if bag_starts is None:
        out[:] = 0
        out[places, columns] = values
    else:
        bags = np.repeat(np.arange(len(bag_starts) - 1), np.diff(bag_starts))[places]
        if mean:
            values = values / np.diff(bag_starts).astype(np.float32)[bags]
        np.add.at(out, (bags, columns), values)
    return bad


def find_entries(
    layout: Layout, arrays: Mapping[str, Array], ids: Positions
) -> tuple[Positions, Positions, npt.NDArray[np.float32], int]:
    """The kept entries of some rows: place of the row in `ids`, column, value; and the place of the first bad id or −1.

    The entries are not in order.
    """
    inside = (ids >= 0) & (ids < layout.num_features)
    places = np.flatnonzero(inside)
    ranks, found = _ranks(layout, arrays, ids[places])
    places = places[found]
    which, columns, entries = _entries(layout, arrays, ranks)
    if layout.drops_columns:
        columns = arrays["column_map"][columns].astype(np.int64)
    values = unpack_values(arrays, layout.value_type, entries)
    return places[which], columns, values, -1 if inside.all() else int(np.flatnonzero(~inside)[0])


def _ranks(layout: Layout, arrays: Mapping[str, Array], rows: Positions) -> tuple[Positions, npt.NDArray[np.bool_]]:
    """The ranks of those rows that are indexed, and whether each row is."""
    match layout.row_index:
        case "all":
            return rows, np.ones(len(rows), np.bool_)
        case "bitmap":
            found = _bit(arrays["row_bits"], rows)
            return _rank(arrays["row_bits"], arrays["row_ranks"], rows[found]), found
        case "list8" | "list16":
            shift = LIST_SHIFT[layout.row_index]
            starts, lows, wanted = arrays["row_starts"], arrays["row_lows"], rows & ((1 << shift) - 1)
            first, last = starts[rows >> shift].astype(np.int64), starts[(rows >> shift) + 1].astype(np.int64)
            end = last
            while np.any(searching := first < last):  # a binary search in every row's group at once
                middle = (first + last) >> 1
                below = searching & (np.take(lows, middle, mode="clip") < wanted)
                first, last = np.where(below, middle + 1, first), np.where(searching & ~below, middle, last)
            found = first < end
            found[found] = lows[first[found]] == wanted[found]
            return first[found], found


def _entries(layout: Layout, arrays: Mapping[str, Array], ranks: Positions) -> tuple[Positions, Positions, Positions]:
    """For each entry of these rows: its row (as a place in `ranks`), its column, its place among the values."""
    width = layout.width
    if layout.content == "full":
        which, columns = np.divmod(np.arange(len(ranks) * width), width)
        return which, columns, ranks[which] * width + columns
    full, skipped = np.zeros(len(ranks), np.bool_), np.zeros(len(ranks), np.int64)
    if layout.num_full_rows:
        full = _bit(arrays["full_bits"], ranks)
        full_before = _rank(arrays["full_bits"], arrays["full_ranks"], ranks)
        ranks, skipped = ranks - full_before, full_before * width
    if layout.content == "masks":
        starts = _rank(arrays["cell_bits"], arrays["cell_ranks"], ranks * width)
        partial = np.flatnonzero(~full)
        cells = ranks[partial, None] * width + np.arange(width)
        which, columns = np.nonzero(_bit(arrays["cell_bits"], cells))
        which = partial[which]
        within = np.arange(len(which)) - np.searchsorted(which, which)
        entries = starts[which] + within + skipped[which]
    else:
        starts = _select(arrays["row_flags"], arrays["row_samples"], ranks)
        sizes = np.zeros(len(ranks), np.int64)
        sizes[~full] = _next_one(arrays["row_flags"], starts[~full] + 1) - starts[~full]
        which = np.repeat(np.arange(len(ranks)), sizes)
        listed = starts[which] + np.arange(len(which)) - (np.cumsum(sizes) - sizes)[which]
        columns, entries = arrays["columns"][listed].astype(np.int64), listed + skipped[which]
    if layout.num_full_rows:
        of_full, full_columns = np.divmod(np.arange(int(full.sum()) * width), width)
        of_full = np.flatnonzero(full)[of_full]
        which, columns = np.concatenate([which, of_full]), np.concatenate([columns, full_columns])
        entries = np.concatenate([entries, starts[of_full] + skipped[of_full] + full_columns])
    return which, columns, entries


def _bit(words: Array, positions: Positions) -> npt.NDArray[np.bool_]:
    bits: npt.NDArray[np.uint64] = words[positions >> 6] >> (positions & 63).astype(np.uint64)
    return (bits & np.uint64(1)).astype(np.bool_)


def _rank(words: Array, blocks: Array, positions: Positions) -> Positions:
    """Number of ones before each position."""
    block = positions // BLOCK_BITS
    places = block[:, None] * len(BEFORE[0]) + np.arange(len(BEFORE[0]))
    within = np.take(words, places, mode="clip") & BEFORE[positions % BLOCK_BITS]  # at the end there may be no word
    count: Positions = blocks[block] + np.bitwise_count(within).sum(1, dtype=np.int64)
    return count


def _select(words: Array, samples: Array, indices: Positions) -> Positions:
    """Position of the one with each index."""
    position = samples[indices // SELECT_STRIDE].astype(np.int64)
    left = indices % SELECT_STRIDE
    word = position >> 6
    bits = words[word] & (ALL_ONES << (position & 63).astype(np.uint64))
    ones = np.bitwise_count(bits).astype(np.int64)
    while np.any(further := ones <= left):
        left -= ones * further
        word += further
        bits = np.where(further, np.take(words, word, mode="clip"), bits)
        ones = np.bitwise_count(bits).astype(np.int64)
    octets = bits.astype("<u8").view(np.uint8).reshape(-1, 8)
    ends = np.bitwise_count(octets).cumsum(1, dtype=np.int64)
    octet = (ends <= left[:, None]).sum(1)
    rows = np.arange(len(bits))
    left -= np.where(octet > 0, ends[rows, octet - 1], 0)
    found: Positions = (word << 6) + (octet << 3) + PLACE_OF_ONE[octets[rows, octet], left]
    return found


def _next_one(words: Array, positions: Positions) -> Positions:
    """Position of the first one at or after each position; there must be one."""
    word = positions >> 6
    bits = np.take(words, word, mode="clip") & (ALL_ONES << (positions & 63).astype(np.uint64))
    while np.any(empty := bits == 0):
        word += empty
        bits = np.where(empty, np.take(words, word, mode="clip"), bits)
    below: Positions = np.bitwise_count((bits & (~bits + np.uint64(1))) - np.uint64(1)).astype(np.int64)
    return (word << 6) + below
