"""CompactTable: the kept entries of an embedding table and where they belong, in the fewest bytes.

Immutable and frozen: for training see `CompactEmbedding`. Lookups never build the dense table and are safe under any
number of threads. `storage_bytes` is the sum of the arrays' bytes, which is also what the file holds beside its header.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from thresher.compact.encoding import decode, encode
from thresher.compact.layouts import Layout

Array = npt.NDArray[Any]
OutOfRange = Literal["error", "zeros"]
MAX_ENTRIES = 2**32 - 1  # positions of entries are uint32


class CompactTable:
    """Kept values of a table `[N, D]` + where they belong.

    >>> import numpy as np
    >>> mask = np.array([[True, False], [False, False], [True, True]])
    >>> table = CompactTable.from_mask(mask, np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    >>> table.num_parameters
    3
    >>> table.lookup(np.array([2, 1])).tolist()
    [[5.0, 6.0], [0.0, 0.0]]
    """

    def __init__(self, layout: Layout, arrays: Mapping[str, Array]) -> None:
        self.layout = layout
        self.arrays = dict(arrays)
        self._kernel_arrays: Any = None

    @classmethod
    def from_mask(cls, mask: Tensor | Array, values: Tensor | Array) -> Self:
        """From a dense mask `[N, D]` (True = kept) and dense values `[N, D]`."""
        mask, values = _to_numpy(mask), _to_numpy(values)
        if mask.ndim != 2 or mask.shape != values.shape:
            raise ValueError(f"mask {mask.shape} and values {values.shape} must have one shape [N, D]")
        positions = np.flatnonzero(mask)
        return cls.from_entries((mask.shape[0], mask.shape[1]), positions, values.reshape(-1)[positions])

    @classmethod
    def from_entries(cls, shape: tuple[int, int], positions: Tensor | Array, values: Tensor | Array) -> Self:
        """From the kept entries alone: flat positions `row · D + column`, ascending, and their values, both `[K]`."""
        positions = _to_numpy(positions).astype(np.int64, copy=False)
        values = _to_numpy(values).astype(np.float32, copy=False)
        if positions.ndim != 1 or positions.shape != values.shape:
            raise ValueError(f"positions {positions.shape} and values {values.shape} must have one shape [K]")
        if len(positions) and (positions[0] < 0 or positions[-1] >= shape[0] * shape[1]):
            raise ValueError(
                f"positions reach from {positions[0]} to {positions[-1]}, outside a table of shape {shape}"
            )
        if np.any(np.diff(positions) <= 0):
            raise ValueError("positions must be ascending and distinct; sort them together with their values")
        if len(positions) > MAX_ENTRIES or not 1 <= shape[1] <= 65536:
            raise ValueError(f"a compact table holds up to {MAX_ENTRIES} entries in rows of 1 to 65,536; got {shape}")
        return cls(*encode(shape, positions, values))

    @property
    def shape(self) -> tuple[int, int]:
        return self.layout.num_features, self.layout.embedding_dim

    @property
    def num_features(self) -> int:
        return self.layout.num_features

    @property
    def embedding_dim(self) -> int:
        return self.layout.embedding_dim

    @property
    def num_parameters(self) -> int:
        """Kept entries, those that happen to be zero included."""
        return self.layout.num_entries

    @property
    def storage_bytes(self) -> int:
        """Bytes of all arrays: values and everything a lookup reads."""
        return sum(array.nbytes for array in self.arrays.values())

    @overload
    def lookup(self, ids: Tensor, *, out_of_range: OutOfRange = "error") -> Tensor: ...
    @overload
    def lookup(self, ids: Array, *, out_of_range: OutOfRange = "error") -> npt.NDArray[np.float32]: ...
    def lookup(self, ids: Tensor | Array, *, out_of_range: OutOfRange = "error") -> Tensor | Array:
        """Vectors `[..., D]` of ids `[...]`; zeros where a row was pruned away.

        Args:
            ids: feature ids, an array or a CPU tensor; the answer is of the same kind.
            out_of_range: whether an id outside the table is an `IndexError` or a vector of zeros.
        """
        from thresher.kernels.compact_table import look_up_rows

        if isinstance(ids, Tensor):
            return torch.from_numpy(self.lookup(ids.numpy(), out_of_range=out_of_range))
        flat = np.ascontiguousarray(ids, np.int64).reshape(-1)
        vectors = np.zeros((len(flat), self.embedding_dim), np.float32)
        bad = look_up_rows(self._kernel_view(), flat, vectors)
        if bad >= 0 and out_of_range == "error":
            raise IndexError(f"id {flat[bad]} is outside a table of {self.num_features} rows")
        return vectors.reshape(*ids.shape, self.embedding_dim)

    def entries(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Flat positions `[K]`, ascending, and values `[K]` of all kept entries."""
        return decode(self.layout, self.arrays)

    def mask(self) -> npt.NDArray[np.bool_]:
        """The dense mask `[N, D]`, True = kept."""
        mask = np.zeros(self.shape, np.bool_)
        mask.reshape(-1)[self.entries()[0]] = True
        return mask

    def to_dense(self) -> npt.NDArray[np.float32]:
        """The dense table `[N, D]`, for people who need it; lookups do not."""
        dense = np.zeros(self.shape, np.float32)
        positions, values = self.entries()
        dense.reshape(-1)[positions] = values
        return dense

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, atomically."""
        from thresher.compact.file import save_table

        save_table(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Open a saved table, memory-mapped: pages are read when a lookup needs them, and shared between processes."""
        from thresher.compact.file import load_table

        return cls(*load_table(Path(path)))

    def __repr__(self) -> str:
        N, D = self.shape
        kind = f"{self.layout.row_index} rows, {self.layout.content} content"
        return f"CompactTable([{N}, {D}], {self.num_parameters} kept, {self.storage_bytes} bytes, {kind})"

    def _kernel_view(self) -> Any:
        if self._kernel_arrays is None:
            self._kernel_arrays = _kernel_arrays(self.layout, self.arrays)
        return self._kernel_arrays


def _kernel_arrays(layout: Layout, arrays: Mapping[str, Array]) -> Any:
    from thresher.kernels.compact_table import CONTENT_CODES, ROW_INDEX_CODES, TableArrays

    def array(name: str, dtype: type[np.generic]) -> Array:
        found = arrays.get(name)
        return found if found is not None and found.dtype == dtype else np.zeros(0, dtype)

    column_map = array("column_map", np.uint16) if layout.drops_columns else np.arange(layout.width, dtype=np.uint16)
    return TableArrays(
        row_index=ROW_INDEX_CODES[layout.row_index],
        content=CONTENT_CODES[layout.content],
        num_features=layout.num_features,
        width=layout.width,
        row_bits=array("row_bits", np.uint64),
        row_ranks=array("row_ranks", np.uint32),
        row_starts=array("row_starts", np.uint32),
        row_lows8=array("row_lows", np.uint8),
        row_lows16=array("row_lows", np.uint16),
        cell_bits=array("cell_bits", np.uint64),
        cell_ranks=array("cell_ranks", np.uint32),
        row_flags=array("row_flags", np.uint64),
        row_samples=array("row_samples", np.uint32),
        columns8=array("columns", np.uint8),
        columns16=array("columns", np.uint16),
        column_map=column_map,
        values=arrays["values"],
    )


def _to_numpy(values: Tensor | Array) -> Array:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
