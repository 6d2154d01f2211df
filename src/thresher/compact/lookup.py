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
    inside = (ids >= 0) & (ids < layout.num_features)
    places = np.flatnonzero(inside)
    ranks, found = _ranks(layout, arrays, ids[places])
    places, ranks = places[found], ranks[found]
    which, columns, entries = _entries(layout, arrays, ranks)
    if layout.drops_columns:
        columns = arrays["column_map"][columns].astype(np.int64)
    values = unpack_values(arrays, layout.value_type, entries)
    if bag_starts is None:
        out[:] = 0
        out[places[which], columns] = values
    else:
        bags = np.repeat(np.arange(len(bag_starts) - 1), np.diff(bag_starts))[places[which]]
        if mean:
            values = values / np.diff(bag_starts).astype(np.float32)[bags]
        np.add.at(out, (bags, columns), values)
    return -1 if inside.all() else int(np.flatnonzero(~inside)[0])


def _ranks(layout: Layout, arrays: Mapping[str, Array], rows: Positions) -> tuple[Positions, npt.NDArray[np.bool_]]:
    """Rank of each row among the indexed ones, and whether it is indexed."""
    match layout.row_index:
        case "all":
            return rows, np.ones(len(rows), np.bool_)
        case "bitmap":
            return _rank(arrays["row_bits"], arrays["row_ranks"], rows), _bit(arrays["row_bits"], rows)
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
            return first, found


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
        sizes[~full] = _select(arrays["row_flags"], arrays["row_samples"], ranks[~full] + 1) - starts[~full]
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
    count = blocks[positions // BLOCK_BITS].astype(np.int64)
    first = positions // BLOCK_BITS * (BLOCK_BITS // 64)
    last = positions >> 6
    for offset in range(BLOCK_BITS // 64):
        whole = first + offset < last
        count[whole] += np.bitwise_count(words[first[whole] + offset])
    rest = (positions & 63) > 0  # at the end of the vector there may be no last word
    low = ~(ALL_ONES << (positions[rest] & 63).astype(np.uint64))
    count[rest] += np.bitwise_count(words[last[rest]] & low)
    return count


def _select(words: Array, samples: Array, indices: Positions) -> Positions:
    """Position of the one with each index."""
    position = samples[indices // SELECT_STRIDE].astype(np.int64)
    left = indices % SELECT_STRIDE
    word = position >> 6
    bits = words[word] & (ALL_ONES << (position & 63).astype(np.uint64))
    ones = np.bitwise_count(bits).astype(np.int64)
    while np.any(further := ones <= left):
        left = np.where(further, left - ones, left)
        word = word + further
        bits = np.where(further, np.take(words, word, mode="clip"), bits)
        ones = np.where(further, np.bitwise_count(bits), ones).astype(np.int64)
    for step in range(SELECT_STRIDE):
        bits = np.where(left > step, bits & (bits - np.uint64(1)), bits)
    lowest = bits & (~bits + np.uint64(1))
    below: Positions = np.bitwise_count(lowest - np.uint64(1)).astype(np.int64)
    return (word << 6) + below
