"""Kept entries ↔ the arrays of a layout. Works on the entries, never on the dense table.

In a `padded` layout a pruned cell is +0.0 and a kept entry that happens to be zero is −0.0: equal in every sum, yet
told apart, so that the mask survives without a bit of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from thresher.compact.bits import pack_bits, rank_blocks, select_samples, unpack_bits
from thresher.compact.layouts import LIST_SHIFT, Layout, Pool, choose_layout
from thresher.compact.repeats import distinct_rows
from thresher.compact.value_types import Quantised, ValueType, pack_codes, pack_values, unpack_values

Array = npt.NDArray[Any]
Positions = npt.NDArray[np.int64]
Values = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Entries:
    """Kept entries row after row: where each non-empty row begins `[R]`, and each entry's column and value `[K]`."""

    begins: Positions
    columns: Positions
    values: Values

    @property
    def sizes(self) -> Positions:
        return np.diff(self.begins, append=len(self.columns))

    def only(self, rows: Positions) -> Self:
        chosen = np.zeros(len(self.begins), np.bool_)
        chosen[rows] = True
        entries = np.repeat(chosen, self.sizes)
        ends = np.cumsum(self.sizes[chosen])
        return type(self)(ends - self.sizes[chosen], self.columns[entries], self.values[entries])


def encode(
    shape: tuple[int, int],
    positions: Positions,
    values: Values,
    value_type: ValueType = "fp32",
    quantised: Quantised | None = None,
) -> tuple[Layout, dict[str, Array]]:
    """Lay out the entries at these flat positions `[K]` (ascending) of a table `[N, D]` in the fewest bytes.

    Args:
        shape: `(N, D)`.
        positions: `row · D + column` of each entry.
        values: their values.
        value_type: how they are to be stored.
        quantised: codes and scales already chosen; rows then share no pool, since scales follow the entries.
    """
    num_features, embedding_dim = shape
    row_of_entry, column_of_entry = np.divmod(positions, embedding_dim)
    entries = Entries(np.flatnonzero(np.diff(row_of_entry, prepend=-1)), column_of_entry, values)
    rows = row_of_entry[entries.begins]
    used_columns = np.flatnonzero(np.bincount(column_of_entry, minlength=embedding_dim))
    full = entries.sizes == len(used_columns)
    same_as = distinct_rows(entries.begins, entries.columns, values) if quantised is None else None
    if same_as is None:
        distinct, pool = np.zeros(0, np.int64), None
    else:
        distinct, pool_rows = np.unique(same_as, return_inverse=True)
        pool = Pool(
            num_rows=len(distinct),
            num_full_rows=int(full[distinct].sum()),
            num_entries=int(entries.sizes[distinct].sum()),
        )
    layout = choose_layout(
        num_features,
        embedding_dim,
        num_rows=len(rows),
        num_columns=len(used_columns),
        num_entries=len(positions),
        num_full_rows=int(full.sum()),
        pool=pool,
        value_type=value_type,
    )
    arrays = _encode_row_index(layout, rows)
    if layout.has_pool:
        arrays["pool_rows"] = pool_rows
        entries, rows = entries.only(distinct), np.arange(len(distinct))
    elif layout.row_index != "all":
        rows = np.arange(len(rows))
    if layout.drops_columns:
        arrays["column_map"] = used_columns if len(used_columns) else np.zeros(1, np.int64)
        entries = Entries(entries.begins, np.searchsorted(arrays["column_map"], entries.columns), entries.values)
    arrays |= _encode_content(layout, rows, entries)
    if layout.content != "padded" or quantised is not None:
        packed = pack_values(entries.values, value_type) if quantised is None else pack_codes(quantised, value_type)
        arrays |= packed
    return layout, {name: arrays[name].astype(dtype, copy=False) for name, (dtype, _) in layout.arrays().items()}


def decode(layout: Layout, arrays: Mapping[str, Array]) -> tuple[Positions, Values]:
    """The flat positions `[K]`, ascending, and values `[K]` of all kept entries; inverse of `encode`."""
    ranks, columns, values = _decode_content(layout, arrays)
    if layout.has_pool:
        starts = np.searchsorted(ranks, np.arange(layout.content_rows + 1))
        pool = arrays["pool_rows"].astype(np.int64)
        sizes = (starts[1:] - starts[:-1])[pool]
        ends = np.cumsum(sizes)
        entries = np.arange(layout.num_entries) + np.repeat(starts[pool] - (ends - sizes), sizes)
        ranks, columns, values = np.repeat(np.arange(layout.num_rows), sizes), columns[entries], values[entries]
    if layout.drops_columns:
        columns = arrays["column_map"].astype(np.int64)[columns]
    return indexed_rows(layout, arrays)[ranks] * layout.embedding_dim + columns, values


def indexed_rows(layout: Layout, arrays: Mapping[str, Array]) -> Positions:
    """Feature ids of the indexed rows, ascending."""
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
            return {"row_bits": words, "row_ranks": rank_blocks(words, layout.num_features)}
        case "list8" | "list16":
            shift = LIST_SHIFT[layout.row_index]
            num_groups = -(-layout.num_features >> shift)
            starts = np.searchsorted(rows, np.arange(num_groups + 1) << shift)
            return {"row_starts": starts, "row_lows": rows & ((1 << shift) - 1)}


def _encode_content(layout: Layout, rows: Positions, entries: Entries) -> dict[str, Array]:
    """The arrays that say which columns the rows at these ranks hold; for `padded` that is the values themselves."""
    arrays: dict[str, Array] = {}
    sizes = entries.sizes
    if layout.num_full_rows:
        full = sizes == layout.width
        arrays["full_bits"] = pack_bits(rows[full], layout.content_rows)
        arrays["full_ranks"] = rank_blocks(arrays["full_bits"], layout.content_rows)
        entries = entries.only(np.flatnonzero(~full))
        rows, sizes = rows[~full] - np.cumsum(full)[~full], entries.sizes  # ranks among the partial rows
    cells = np.repeat(rows, sizes) * layout.width + entries.columns
    match layout.content:
        case "padded":
            packed = pack_values(entries.values, layout.value_type)
            if not layout.has_holes:
                return arrays | packed
            kept = packed["values"]
            unsigned = kept.view(f"u{kept.itemsize}")
            minus_zero = 1 << (8 * kept.itemsize - 1)
            values = np.zeros(layout.num_values, unsigned.dtype)
            values[cells] = np.where(unsigned == 0, minus_zero, unsigned)
            arrays["values"] = values.view(kept.dtype)
        case "masks":
            num_cells = layout.partial_rows * layout.width
            arrays["cell_bits"] = pack_bits(cells, num_cells)
            arrays["cell_ranks"] = rank_blocks(arrays["cell_bits"], num_cells)
        case "columns":
            flags = np.append(entries.begins, len(entries.columns))
            arrays["row_flags"] = pack_bits(flags, len(entries.columns) + 1)
            arrays["row_samples"] = select_samples(flags)
            arrays["columns"] = entries.columns
    return arrays


def _decode_content(layout: Layout, arrays: Mapping[str, Array]) -> tuple[Positions, Positions, Values]:
    """Rank among the content's rows, column and value of each of its entries, row after row."""
    values = unpack_values(arrays, layout.value_type, layout.num_values)
    match layout.content:
        case "padded":
            stored = arrays["values"]
            if layout.has_holes:
                cells = np.flatnonzero(stored.view(f"u{stored.itemsize}"))  # by bit pattern: −0.0 is a kept entry
            else:
                cells = np.arange(layout.num_values)
            return cells // layout.width, cells % layout.width, values[cells]
        case "masks":
            cells = unpack_bits(arrays["cell_bits"])
            ranks, columns = cells // layout.width, cells % layout.width
        case "columns":
            ranks = np.repeat(np.arange(layout.partial_rows), np.diff(unpack_bits(arrays["row_flags"])))
            columns = arrays["columns"].astype(np.int64)
    if layout.num_full_rows:
        full = unpack_bits(arrays["full_bits"])
        partial = np.delete(np.arange(layout.content_rows), full)
        ranks = np.concatenate([partial[ranks], np.repeat(full, layout.width)])
        columns = np.concatenate([columns, np.tile(np.arange(layout.width), len(full))])
        order = np.argsort(ranks, kind="stable")
        ranks, columns = ranks[order], columns[order]
    return ranks, columns, values
