"""Whether arrays from a file are what their layout says, so that no lookup can read outside them. Pure numpy.

Everything a kernel follows as an index is checked here against everything else. Values are not looked at, except
that a layout with holes must have as many kept cells as it claims. Costs a few passes over the index.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.compact.bits import num_words, rank_blocks, select_samples, unpack_bits
from thresher.compact.layouts import CONTENTS, LIST_SHIFT, ROW_INDEXES, Layout
from thresher.compact.value_types import VALUE_TYPES, is_quantised

Array = npt.NDArray[Any]
MAX_COUNT = 2**32


def read_layout(mapping: Any) -> Layout:
    """A layout from its JSON; raises ValueError for anything that `choose_layout` could not have made."""
    names = [field.name for field in fields(Layout)]
    if not isinstance(mapping, dict) or sorted(mapping) != sorted(names):
        raise ValueError(f"a layout has the keys {', '.join(names)}")
    for name, choices in (("row_index", ROW_INDEXES), ("content", CONTENTS), ("value_type", VALUE_TYPES)):
        if mapping[name] not in choices:
            raise ValueError(f"{name} is {mapping[name]!r}, not one of {', '.join(choices)}")
    for name in names[3:]:
        if type(mapping[name]) is not int or not 0 <= mapping[name] < MAX_COUNT:
            raise ValueError(f"{name} is {mapping[name]!r}, not a whole number below 2³²")
    layout = Layout(**mapping)
    _require(1 <= layout.width <= layout.embedding_dim <= 65536, "rows are wider than the table")
    _require(layout.num_rows <= layout.num_features, "more rows are indexed than the table has")
    _require(layout.row_index != "all" or layout.num_rows == layout.num_features, "not all rows are there")
    _require(layout.content_rows <= layout.num_rows, "more rows are stored than indexed")
    _require(layout.content_entries <= layout.num_entries, "more entries are stored than kept")
    _require(layout.has_pool or layout.content_entries == layout.num_entries, "entries are missing")
    _require(layout.content_entries <= layout.content_rows * layout.width, "more entries than cells")
    _require(layout.num_full_rows <= layout.content_rows and layout.partial_entries >= 0, "too many full rows")
    _require(not (layout.num_full_rows and layout.content == "padded"), "a padded layout marks no full rows")
    _require(not (layout.has_holes and is_quantised(layout.value_type)), "codes leave no room for holes")
    return layout


def check_arrays(layout: Layout, arrays: Mapping[str, Array]) -> None:
    """Raise ValueError unless the arrays agree with the layout and with one another."""
    expected = layout.arrays()
    _require(set(arrays) == set(expected), f"it should have the arrays {', '.join(sorted(expected))}")
    for name, (dtype, length) in expected.items():
        array = arrays[name]
        _require(array.dtype == dtype and array.shape == (length,), f"{name} should be {length} of {np.dtype(dtype)}")
    _check_row_index(layout, arrays)
    if layout.has_pool:
        pool_rows = arrays["pool_rows"]
        _require(int(pool_rows.max(initial=0)) < max(layout.content_rows, 1), "a row names one that is not in the pool")
    if layout.num_full_rows:
        ones = _check_ranks(arrays["full_bits"], arrays["full_ranks"], layout.content_rows, "full_bits")
        _require(len(ones) == layout.num_full_rows, "the count of full rows is wrong")
    _check_content(layout, arrays)
    if layout.drops_columns:
        column_map = arrays["column_map"].astype(np.int64)
        ascending = bool(np.all(np.diff(column_map) > 0))
        _require(ascending and column_map[-1] < layout.embedding_dim, "column_map does not ascend inside the table")
    if layout.has_pool:
        _require(_pooled_entries(layout, arrays) == layout.num_entries, "the count of kept entries is wrong")


def _check_row_index(layout: Layout, arrays: Mapping[str, Array]) -> None:
    match layout.row_index:
        case "all":
            pass
        case "bitmap":
            ones = _check_ranks(arrays["row_bits"], arrays["row_ranks"], layout.num_features, "row_bits")
            _require(len(ones) == layout.num_rows, "the count of rows is wrong")
        case "list8" | "list16":
            starts, lows = arrays["row_starts"].astype(np.int64), arrays["row_lows"].astype(np.int64)
            _require(starts[0] == 0 and starts[-1] == layout.num_rows, "row_starts do not span the rows")
            _require(bool(np.all(np.diff(starts) >= 0)), "row_starts do not ascend")
            rows = np.repeat(np.arange(len(starts) - 1) << LIST_SHIFT[layout.row_index], np.diff(starts)) + lows
            inside = not len(rows) or rows[-1] < layout.num_features
            _require(inside and bool(np.all(np.diff(rows) > 0)), "row_lows do not ascend inside the table")


def _check_content(layout: Layout, arrays: Mapping[str, Array]) -> None:
    match layout.content:
        case "padded":
            if layout.has_holes:
                values = arrays["values"]
                kept = np.count_nonzero(values.view(f"u{values.itemsize}"))
                _require(kept == layout.content_entries, "the count of kept entries is wrong")
        case "masks":
            num_cells = layout.partial_rows * layout.width
            ones = _check_ranks(arrays["cell_bits"], arrays["cell_ranks"], num_cells, "cell_bits")
            _require(len(ones) == layout.partial_entries, "the count of kept entries is wrong")
        case "columns":
            flags = unpack_bits(arrays["row_flags"])
            _require(len(flags) == layout.partial_rows + 1, "the count of rows that begin is wrong")
            # without entries the one flag is both the beginning and the end
            _require(flags[0] == 0 and flags[-1] == layout.partial_entries, "row_flags do not span the entries")
            _require(np.array_equal(arrays["row_samples"], select_samples(flags)), "row_samples are wrong")
            columns = arrays["columns"].astype(np.int64)
            _require(int(columns.max(initial=0)) < layout.width, "a column number is outside the row")
            rising = np.diff(columns) > 0
            rising[flags[1:-1] - 1] = True  # between two rows the columns may fall
            _require(bool(rising.all()), "the columns of a row do not ascend")


def _check_ranks(words: Array, ranks: Array, num_bits: int, name: str) -> npt.NDArray[np.int64]:
    """The ones of a bit vector whose rank blocks are right and whose last word has none past the end."""
    ones = unpack_bits(words)
    _require(not len(ones) or ones[-1] < num_bits, f"{name} has ones past its end")
    _require(
        len(words) == num_words(num_bits) and np.array_equal(ranks, rank_blocks(words, num_bits)),
        f"the ranks of {name} are wrong",
    )
    return ones


def _pooled_entries(layout: Layout, arrays: Mapping[str, Array]) -> int:
    """Kept entries of the whole table: the sizes of the pool's rows, each as often as it is named."""
    sizes = np.full(layout.content_rows, layout.width, np.int64)
    match layout.content:
        case "padded":
            if layout.has_holes:
                values = arrays["values"].view(f"u{arrays['values'].itemsize}")
                sizes = np.count_nonzero(values.reshape(-1, layout.width), axis=1)
        case "masks" | "columns":
            partial = np.ones(layout.content_rows, np.bool_)
            if layout.num_full_rows:
                partial[unpack_bits(arrays["full_bits"])] = False
            if layout.content == "masks":
                owners = unpack_bits(arrays["cell_bits"]) // layout.width
                sizes[partial] = np.bincount(owners, minlength=layout.partial_rows)
            else:
                sizes[partial] = np.diff(unpack_bits(arrays["row_flags"]))
    return int(sizes[arrays["pool_rows"]].sum())


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
