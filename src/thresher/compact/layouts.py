"""How a compact table may be laid out, what each way costs to the byte, and which is the smallest for a mask.

A layout answers two questions, each in one of several ways, and every answer has an exact price:

1. *Which rows hold anything?* `all` (no index), `bitmap` (one bit a row, with rank blocks), or `list8` / `list16`
   (rows grouped by 256 or 65,536, one or two bytes for each non-empty row).
2. *Which columns does a row hold?* `padded` (every cell of the row, the pruned ones too), `masks` (one bit a cell) or
   `columns` (one column number for each kept entry, and one bit to mark where a row begins).

Columns in which nothing was kept are left out when that is smaller. `all` + `padded` is the dense table, so no table
is ever larger than that. Not here: building the arrays (`encoding`), reading them (`kernels.compact_table`).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from thresher.compact.bits import bit_vector_bytes, rank_bytes, select_bytes

RowIndex = Literal["all", "bitmap", "list8", "list16"]
Content = Literal["padded", "masks", "columns"]

ROW_INDEXES: tuple[RowIndex, ...] = ("all", "bitmap", "list8", "list16")
CONTENTS: tuple[Content, ...] = ("padded", "masks", "columns")
FLOAT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One way to store the kept entries of a table `[N, D]`.

    Attributes:
        width: columns a stored row may use; less than `D` when empty columns are left out.
        num_rows: stored rows; all `N`, or only the non-empty ones.
        num_entries: kept entries, which is `num_parameters`.
    """

    row_index: RowIndex
    content: Content
    num_features: int
    embedding_dim: int
    width: int
    num_rows: int
    num_entries: int

    @property
    def num_values(self) -> int:
        return self.num_rows * self.width if self.content == "padded" else self.num_entries

    @property
    def drops_columns(self) -> bool:
        return self.width < self.embedding_dim

    @property
    def index_bytes(self) -> int:
        column_map = 2 * self.width if self.drops_columns else 0
        return self._row_index_bytes() + self._content_bytes() + column_map

    @property
    def storage_bytes(self) -> int:
        return self.index_bytes + FLOAT_BYTES * self.num_values

    def _row_index_bytes(self) -> int:
        match self.row_index:
            case "all":
                return 0
            case "bitmap":
                return bit_vector_bytes(self.num_features) + rank_bytes(self.num_features)
            case "list8":
                return 4 * (1 + (self.num_features + 255) // 256) + self.num_rows
            case "list16":
                return 4 * (1 + (self.num_features + 65535) // 65536) + 2 * self.num_rows

    def _content_bytes(self) -> int:
        match self.content:
            case "padded":
                return 0
            case "masks":
                cells = self.num_rows * self.width
                return bit_vector_bytes(cells) + rank_bytes(cells)
            case "columns":
                # one flag more than entries: the end of the last row is found like that of any other
                flags = bit_vector_bytes(self.num_entries + 1) + select_bytes(self.num_rows)
                return flags + column_bytes(self.width) * self.num_entries


def column_bytes(width: int) -> int:
    """Bytes of one column number in a row of this width."""
    return 1 if width <= 256 else 2


def choose_layout(
    num_features: int, embedding_dim: int, *, num_rows: int, num_columns: int, num_entries: int
) -> Layout:
    """The smallest layout for a mask of which only these counts matter; among equals the one read fastest.

    Args:
        num_features: rows `N` of the table.
        embedding_dim: columns `D` of the table.
        num_rows: rows with at least one kept entry.
        num_columns: columns with at least one kept entry.
        num_entries: kept entries.
    """
    candidates = [
        Layout(
            row_index=row_index,
            content=content,
            num_features=num_features,
            embedding_dim=embedding_dim,
            width=width,
            num_rows=num_features if row_index == "all" else num_rows,
            num_entries=num_entries,
        )
        for width in dict.fromkeys((embedding_dim, max(num_columns, 1)))
        for content in CONTENTS
        for row_index in ROW_INDEXES
        # rows are told apart by their first entry, so a list of columns has no empty rows
        if not (content == "columns" and row_index == "all" and num_rows < num_features)
    ]
    return min(candidates, key=lambda layout: layout.storage_bytes)


def layout_of_mask(mask: Tensor | npt.NDArray[np.bool_]) -> Layout:
    """The layout `CompactTable.from_mask` would choose, without building anything."""
    cells = mask.cpu().numpy() if isinstance(mask, Tensor) else mask  # numpy reduces bools far faster than torch
    return choose_layout(
        *cells.shape,
        num_rows=int(np.count_nonzero(cells.any(1))),
        num_columns=int(np.count_nonzero(cells.any(0))),
        num_entries=int(np.count_nonzero(cells)),
    )


def compact_bytes(mask: Tensor | npt.NDArray[np.bool_]) -> int:
    """Bytes a table with this mask `[N, D]` (True = kept) needs: values and everything a lookup reads."""
    return layout_of_mask(mask).storage_bytes
