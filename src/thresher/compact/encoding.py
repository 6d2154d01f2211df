"""Kept entries ↔ the arrays of a layout. Works on the entries, never on the dense table.

In a `padded` layout a pruned cell is +0.0 and a kept entry that happens to be zero is −0.0: equal in every sum, yet
told apart, so that the mask survives without a bit of its own.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.compact.bits import pack_bits, rank_blocks, select_samples, unpack_bits
from thresher.compact.layouts import Layout, choose_layout, column_bytes

Array = npt.NDArray[Any]
Positions = npt.NDArray[np.int64]
Values = npt.NDArray[np.float32]
LIST_SHIFT = {"list8": 8, "list16": 16}


def encode(shape: tuple[int, int], positions: Positions, values: Values) -> tuple[Layout, dict[str, Array]]:
    """Lay out the entries at these flat positions `[K]` (ascending) of a table `[N, D]` in the fewest bytes."""
    num_features, embedding_dim = shape
    row_of_entry, column_of_entry = np.divmod(positions, embedding_dim)
    begins = np.flatnonzero(np.diff(row_of_entry, prepend=-1))  # first entry of each non-empty row
    used_columns = np.flatnonzero(np.bincount(column_of_entry, minlength=embedding_dim))
    layout = choose_layout(
        num_features, embedding_dim, num_rows=len(begins), num_columns=len(used_columns), num_entries=len(positions)
    )
    arrays: dict[str, Array] = {}
    if layout.drops_columns:
        # a table without any entry keeps one column, so that a row has a width
        column_map = used_columns if len(used_columns) else np.zeros(1, np.int64)
        arrays["column_map"] = column_map.astype(np.uint16)
        column_of_entry = np.searchsorted(column_map, column_of_entry)

    arrays |= _encode_row_index(layout, row_of_entry[begins])
    if layout.row_index == "all":
        rank_of_entry = row_of_entry
    else:
        rank_of_entry = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(positions)))

    cells = rank_of_entry * layout.width + column_of_entry
    match layout.content:
        case "padded":
            arrays["values"] = np.zeros(layout.num_values, np.float32)
            arrays["values"][cells] = np.where(values == 0, np.float32(-0.0), values)
        case "masks":
            arrays["cell_bits"] = pack_bits(cells, layout.num_rows * layout.width)
            arrays["cell_ranks"] = rank_blocks(arrays["cell_bits"])
        case "columns":
            arrays["row_flags"] = pack_bits(np.append(begins, len(positions)), len(positions) + 1)
            arrays["row_samples"] = select_samples(begins)
            arrays["columns"] = column_of_entry.astype(np.uint8 if column_bytes(layout.width) == 1 else np.uint16)
    arrays.setdefault("values", np.ascontiguousarray(values, np.float32))
    return layout, arrays


def decode(layout: Layout, arrays: Mapping[str, Array]) -> tuple[Positions, Values]:
    """The flat positions `[K]`, ascending, and values `[K]` of all kept entries; inverse of `encode`."""
    rows = kept_rows(layout, arrays)
    match layout.content:
        case "padded":
            cells = np.flatnonzero(arrays["values"].view(np.uint32))  # by bit pattern: −0.0 is a kept entry
            values = arrays["values"][cells]
            rank_of_entry, column_of_entry = np.divmod(cells, layout.width)
        case "masks":
            rank_of_entry, column_of_entry = np.divmod(unpack_bits(arrays["cell_bits"]), layout.width)
            values = arrays["values"]
        case "columns":
            row_ends = unpack_bits(arrays["row_flags"])
            rank_of_entry = np.repeat(np.arange(layout.num_rows), np.diff(row_ends))
            column_of_entry = arrays["columns"].astype(np.int64)
            values = arrays["values"]
    if layout.drops_columns:
        column_of_entry = arrays["column_map"].astype(np.int64)[column_of_entry]
    return rows[rank_of_entry] * layout.embedding_dim + column_of_entry, np.array(values)


def kept_rows(layout: Layout, arrays: Mapping[str, Array]) -> Positions:
    """Feature ids of the stored rows, ascending."""
    match layout.row_index:
        case "all":
            return np.arange(layout.num_features)
        case "bitmap":
            return unpack_bits(arrays["row_bits"])
        case "list8" | "list16":
            starts: Positions = arrays["row_starts"].astype(np.int64)
            groups = np.repeat(np.arange(len(starts) - 1), starts[1:] - starts[:-1])
            return (groups << LIST_SHIFT[layout.row_index]) + arrays["row_lows"]


def _encode_row_index(layout: Layout, rows: Positions) -> dict[str, Array]:
    match layout.row_index:
        case "all":
            return {}
        case "bitmap":
            words = pack_bits(rows, layout.num_features)
            return {"row_bits": words, "row_ranks": rank_blocks(words)}
        case "list8" | "list16":
            shift = LIST_SHIFT[layout.row_index]
            num_groups = -(-layout.num_features >> shift)
            starts = np.searchsorted(rows, np.arange(num_groups + 1) << shift)
            lows = rows & ((1 << shift) - 1)
            return {
                "row_starts": starts.astype(np.uint32),
                "row_lows": lows.astype(np.uint8 if shift == 8 else np.uint16),
            }
