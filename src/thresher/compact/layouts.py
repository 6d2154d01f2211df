"""The layouts of a compact table, the exact bytes of each, and the smallest one for a mask.

- Rows with kept entries: `all` (no index), `bitmap` (one bit per row, with rank blocks), or `list8` / `list16` (rows
  grouped by 256 or 65,536, one or two bytes per non-empty row).
- Columns of a row: `full` (all), `masks` (one bit per cell) or `columns` (one column number per kept entry, and one bit
  per entry that marks the first of a row). One bit per row can mark full rows, and unused columns can be dropped.
- Values: floats of 4 or 2 bytes, or 8- or 4-bit codes with one float32 scale per block of values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

RowIndex = Literal["all", "bitmap", "list8", "list16"]
Content = Literal["full", "masks", "columns"]
ValueType = Literal["fp32", "fp16", "bf16", "int8", "int4"]
ArrayTypes = dict[str, type[np.generic]]
ArrayShapes = dict[str, tuple[type[np.generic], int]]

ROW_INDEXES: tuple[RowIndex, ...] = ("all", "bitmap", "list8", "list16")
CONTENTS: tuple[Content, ...] = ("full", "masks", "columns")
VALUE_TYPES: tuple[ValueType, ...] = ("fp32", "fp16", "bf16", "int8", "int4")
VALUE_DTYPES: dict[str, type[np.generic]] = {
    "fp32": np.float32,
    "fp16": np.float16,
    "bf16": np.uint16,
    "int8": np.int8,
    "int4": np.uint8,
}
LIST_SHIFT = {"list8": 8, "list16": 16}
SCALE_BLOCK = {"int8": 64, "int4": 32}  # values that share a scale; powers of two, so that the kernel can shift
BLOCK_BITS = 256  # of a bit vector, per uint32 that counts the ones before them
PLACEHOLDER, FIELD_STARTS = "placeholder", "field_starts"
PLACEHOLDER_ARRAYS: ArrayTypes = {PLACEHOLDER: np.float32, FIELD_STARTS: np.int64}
"""Arrays of a table whose pruned entries do not read as 0: vectors `[F · D]`, and the first row of each field `[F]`."""
SELECT_STRIDE = 32  # ones of a bit vector, per uint32 with the position of the first


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One way to store the kept entries of a table `[N, D]`."""

    row_index: RowIndex
    content: Content
    value_type: ValueType
    num_features: int
    embedding_dim: int
    width: int  # columns of a stored row; less than D if empty columns are dropped
    num_rows: int  # indexed: all N, or the non-empty ones
    num_entries: int
    num_full_rows: int  # marked as full; 0 if full rows are not marked

    @property
    def drops_columns(self) -> bool:
        return self.width < self.embedding_dim

    @property
    def partial_rows(self) -> int:
        return self.num_rows - self.num_full_rows

    @property
    def partial_entries(self) -> int:
        return self.num_entries - self.num_full_rows * self.width

    @cached_property
    def storage_bytes(self) -> int:
        return sum(np.dtype(dtype).itemsize * length for dtype, length in self.arrays().values())

    def arrays(self) -> ArrayShapes:
        """Names, dtypes and lengths of all arrays of this layout."""
        arrays: ArrayShapes = {}
        match self.row_index:
            case "bitmap":
                arrays["row_bits"] = (np.uint64, num_words(self.num_features))
                arrays["row_ranks"] = (np.uint32, num_blocks(self.num_features))
            case "list8" | "list16":
                groups = -(-self.num_features >> LIST_SHIFT[self.row_index])
                arrays["row_starts"] = (np.uint32, groups + 1)
                arrays["row_lows"] = (np.uint8 if self.row_index == "list8" else np.uint16, self.num_rows)
        if self.num_full_rows:
            arrays["full_bits"] = (np.uint64, num_words(self.num_rows))
            arrays["full_ranks"] = (np.uint32, num_blocks(self.num_rows))
        match self.content:
            case "masks":
                arrays["cell_bits"] = (np.uint64, num_words(self.partial_rows * self.width))
                arrays["cell_ranks"] = (np.uint32, num_blocks(self.partial_rows * self.width))
            case "columns":
                # one flag more than entries: it marks the end of the last row
                arrays["row_flags"] = (np.uint64, num_words(self.partial_entries + 1))
                arrays["row_samples"] = (np.uint32, -(-(self.partial_rows + 1) // SELECT_STRIDE))
                arrays["columns"] = (np.uint8 if self.width <= 256 else np.uint16, self.partial_entries)
        if self.drops_columns:
            arrays["column_map"] = (np.uint16, self.width)
        num_values = -(-self.num_entries // 2) if self.value_type == "int4" else self.num_entries
        arrays["values"] = (VALUE_DTYPES[self.value_type], num_values)
        if is_quantized(self.value_type):
            arrays["scales"] = (np.float32, num_scales(self.value_type, self.num_entries))
        return arrays


def choose_layout(
    num_features: int,
    embedding_dim: int,
    *,
    num_rows: int,
    num_columns: int,
    num_entries: int,
    num_full_rows: int = 0,
    value_type: ValueType = "fp32",
) -> Layout:
    """The smallest layout for a mask with these counts; among equals the one with the fastest lookup.

    Rows and columns count if they have a kept entry; full rows kept all `num_columns`.
    """
    used = max(num_columns, 1)  # an empty table keeps one column, so that rows have a width
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
            num_full_rows=marked,
        )
        for width in dict.fromkeys((embedding_dim, used))
        for content in CONTENTS
        for row_index in ROW_INDEXES
        for marked in dict.fromkeys((0, num_full_rows if width == used and content != "full" else 0))
        # in a list of columns a row is found by its first entry, so there are no empty rows
        if content != "columns" or row_index != "all" or num_rows == num_features
    ]
    fitting = [c for c in candidates if c.content != "full" or c.num_rows * c.width == num_entries]
    return min(fitting, key=lambda layout: layout.storage_bytes)


def layout_of_mask(mask: "Tensor | npt.NDArray[np.bool_]", value_type: ValueType = "fp32") -> Layout:
    """The layout of a table with this mask `[N, D]`, without building the table."""
    cells: Any = mask if isinstance(mask, np.ndarray) else mask.cpu().numpy()  # numpy reduces bools faster than torch
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
    """Bytes of a compact table with this mask `[N, D]` (True = kept): values and everything a lookup reads."""
    return layout_of_mask(mask, value_type).storage_bytes


def placeholder_arrays(
    shape: tuple[int, int], vectors: Any, field_sizes: Sequence[int]
) -> dict[str, npt.NDArray[np.generic]]:
    """The arrays of placeholders `[F, D]`; raise ValueError unless there is one for each field of the table."""
    placeholder = np.ascontiguousarray(vectors.detach().cpu() if hasattr(vectors, "detach") else vectors, np.float32)
    if placeholder.shape != (len(field_sizes), shape[1]) or sum(field_sizes) != shape[0]:
        raise ValueError(f"placeholder has shape {placeholder.shape}: expected [{len(field_sizes)}, {shape[1]}].")
    starts = np.cumsum([0, *field_sizes[:-1]]).astype(np.int64)
    return {PLACEHOLDER: placeholder.reshape(-1), FIELD_STARTS: starts}


def is_quantized(value_type: ValueType) -> bool:
    return value_type in SCALE_BLOCK


def num_scales(value_type: ValueType, num_values: int) -> int:
    return -(-num_values // SCALE_BLOCK[value_type])


def num_words(num_bits: int) -> int:
    return -(-num_bits // 64)


def num_blocks(num_bits: int) -> int:
    return num_bits // BLOCK_BITS + 1
