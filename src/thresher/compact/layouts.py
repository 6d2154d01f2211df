"""How a compact table may be laid out, what each way costs to the byte, and which is the smallest for a mask.

A layout answers a few questions, each in one of several ways, and every answer has an exact price:

1. *Which rows hold anything?* `all` (no index), `bitmap` (one bit a row, with rank blocks), or `list8` / `list16`
   (rows grouped by 256 or 65,536, one or two bytes for each non-empty row).
2. *Which columns does a row hold?* `padded` (every cell of the row, the pruned ones too), `masks` (one bit a cell) or
   `columns` (one column number for each kept entry, and one bit to mark where a row begins).
3. *Are some rows full?* Then one bit a row can say so, and full rows need no masks or column numbers.
4. *Do rows repeat?* Then each distinct row is stored once in a pool, and every row says which one it is.

Columns in which nothing was kept are left out when that is smaller. `all` + `padded` is the dense table, so no table
is ever larger than that. Not here: building the arrays (`encoding`), reading them (`kernels.compact_table`).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from thresher.compact.bits import num_blocks, num_samples, num_words
from thresher.compact.value_types import ValueType, is_quantised, value_arrays

if TYPE_CHECKING:
    from torch import Tensor

RowIndex = Literal["all", "bitmap", "list8", "list16"]
Content = Literal["padded", "masks", "columns"]
ArrayShapes = dict[str, tuple[type[np.generic], int]]

ROW_INDEXES: tuple[RowIndex, ...] = ("all", "bitmap", "list8", "list16")
CONTENTS: tuple[Content, ...] = ("padded", "masks", "columns")
LIST_SHIFT = {"list8": 8, "list16": 16}


@dataclass(frozen=True, kw_only=True)
class Pool:
    """What is left of a table's rows when each distinct one is counted once."""

    num_rows: int
    num_full_rows: int
    num_entries: int


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One way to store the kept entries of a table `[N, D]`.

    Attributes:
        width: columns a stored row may use; less than `D` when empty columns are left out.
        num_rows: indexed rows; all `N`, or only the non-empty ones.
        num_entries: kept entries, which is `num_parameters`.
        content_rows: rows whose content is stored; fewer than `num_rows` when rows share a pool.
        content_entries: entries in them.
        num_full_rows: those of them marked as full, 0 when none is marked.
    """

    row_index: RowIndex
    content: Content
    value_type: ValueType
    num_features: int
    embedding_dim: int
    width: int
    num_rows: int
    num_entries: int
    content_rows: int
    content_entries: int
    num_full_rows: int

    @property
    def drops_columns(self) -> bool:
        return self.width < self.embedding_dim

    @property
    def has_pool(self) -> bool:
        return self.content_rows < self.num_rows

    @property
    def num_values(self) -> int:
        return self.content_rows * self.width if self.content == "padded" else self.content_entries

    @property
    def partial_rows(self) -> int:
        return self.content_rows - self.num_full_rows

    @property
    def partial_entries(self) -> int:
        return self.content_entries - self.num_full_rows * self.width

    @property
    def has_holes(self) -> bool:
        """Whether pruned cells lie among the values."""
        return self.num_values > self.content_entries

    @cached_property
    def storage_bytes(self) -> int:
        return sum(np.dtype(dtype).itemsize * length for dtype, length in self.arrays().values())

    def arrays(self) -> ArrayShapes:
        """Names, types and lengths of all arrays of this layout."""
        arrays: ArrayShapes = {}
        match self.row_index:
            case "all":
                pass
            case "bitmap":
                arrays["row_bits"] = (np.uint64, num_words(self.num_features))
                arrays["row_ranks"] = (np.uint32, num_blocks(self.num_features))
            case "list8" | "list16":
                groups = -(-self.num_features >> LIST_SHIFT[self.row_index])
                arrays["row_starts"] = (np.uint32, groups + 1)
                arrays["row_lows"] = (np.uint8 if self.row_index == "list8" else np.uint16, self.num_rows)
        if self.has_pool:
            arrays["pool_rows"] = (np.uint16 if self.content_rows <= 65536 else np.uint32, self.num_rows)
        if self.num_full_rows:
            arrays["full_bits"] = (np.uint64, num_words(self.content_rows))
            arrays["full_ranks"] = (np.uint32, num_blocks(self.content_rows))
        match self.content:
            case "padded":
                pass
            case "masks":
                arrays["cell_bits"] = (np.uint64, num_words(self.partial_rows * self.width))
                arrays["cell_ranks"] = (np.uint32, num_blocks(self.partial_rows * self.width))
            case "columns":
                # one flag more than entries: the end of the last row is found like that of any other
                arrays["row_flags"] = (np.uint64, num_words(self.partial_entries + 1))
                arrays["row_samples"] = (np.uint32, num_samples(self.partial_rows + 1))
                arrays["columns"] = (np.uint8 if self.width <= 256 else np.uint16, self.partial_entries)
        if self.drops_columns:
            arrays["column_map"] = (np.uint16, self.width)
        return arrays | value_arrays(self.value_type, self.num_values)


def choose_layout(
    num_features: int,
    embedding_dim: int,
    *,
    num_rows: int,
    num_columns: int,
    num_entries: int,
    num_full_rows: int = 0,
    pool: Pool | None = None,
    value_type: ValueType = "fp32",
) -> Layout:
    """The smallest layout for a mask of which only these counts matter; among equals the one read fastest.

    Args:
        num_features: rows `N` of the table.
        embedding_dim: columns `D` of the table.
        num_rows: rows with at least one kept entry.
        num_columns: columns with at least one kept entry.
        num_entries: kept entries.
        num_full_rows: rows that kept all `num_columns`.
        pool: the same counts over distinct rows, when rows repeat.
        value_type: how values are stored.
    """
    own = Pool(num_rows=num_rows, num_full_rows=num_full_rows, num_entries=num_entries)
    columns_used = max(num_columns, 1)  # a table without any entry keeps one column, so that a row has a width
    candidates = [
        Layout(
            row_index=row_index,
            content=content,
            value_type=value_type,
            num_features=num_features,
            embedding_dim=embedding_dim,
            width=width,
            num_rows=num_features if row_index == "all" else num_rows,
            num_entries=num_entries,
            content_rows=num_features if row_index == "all" and rows is own else rows.num_rows,
            content_entries=rows.num_entries,
            num_full_rows=marked,
        )
        for width in dict.fromkeys((embedding_dim, columns_used))
        for content in CONTENTS
        for row_index in ROW_INDEXES
        for rows in ((own,) if pool is None else (own, pool))
        for marked in dict.fromkeys((0, rows.num_full_rows if width == columns_used and content != "padded" else 0))
        # a pool has no empty row, and in a list of columns a row is told by its first entry
        if row_index != "all" or num_rows == num_features or (content != "columns" and rows is own)
    ]
    # codes have no second zero to tell a kept zero from a hole
    readable = [layout for layout in candidates if not (layout.has_holes and is_quantised(value_type))]
    return min(readable, key=lambda layout: layout.storage_bytes)


def layout_of_mask(mask: "Tensor | npt.NDArray[np.bool_]", value_type: ValueType = "fp32") -> Layout:
    """The layout of a table with this mask in which no rows repeat, without building anything."""
    foreign: Any = mask
    cells = mask if isinstance(mask, np.ndarray) else foreign.cpu().numpy()  # numpy reduces bools faster than torch
    used = cells.any(0)
    full = cells.all(1) if used.all() else cells[:, used].all(1)
    return choose_layout(
        *cells.shape,
        num_rows=int(np.count_nonzero(cells.any(1))),
        num_columns=int(np.count_nonzero(used)),
        num_entries=int(np.count_nonzero(cells)),
        num_full_rows=int(np.count_nonzero(full)) if used.any() else 0,
        value_type=value_type,
    )


def compact_bytes(mask: "Tensor | npt.NDArray[np.bool_]", value_type: ValueType = "fp32") -> int:
    """Bytes a table with this mask `[N, D]` (True = kept) needs: values and everything a lookup reads."""
    return layout_of_mask(mask, value_type).storage_bytes
