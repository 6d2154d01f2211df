"""CompactTable: the kept entries of an embedding table and where they belong, in the fewest bytes.

Immutable and frozen: for training see `CompactEmbedding`. Lookups never build the dense table and are safe under any
number of threads. `storage_bytes` is the sum of the arrays' bytes, which is also what the file holds beside its header.
Works without torch.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt

from thresher.compact.encoding import decode, encode
from thresher.compact.layouts import Layout
from thresher.compact.lookup import look_up
from thresher.compact.value_types import Quantised, ValueType

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[Any]
OutOfRange = Literal["error", "zeros"]
Pooling = Literal["sum", "mean"]
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
        self._look_up = look_up(layout, self.arrays)

    @classmethod
    def from_mask(cls, mask: "Tensor | Array", values: "Tensor | Array", *, value_type: ValueType = "fp32") -> Self:
        """From a dense mask `[N, D]` (True = kept) and dense values `[N, D]`."""
        mask, values = to_numpy(mask), to_numpy(values)
        if mask.ndim != 2 or mask.shape != values.shape:
            raise ValueError(f"mask {mask.shape} and values {values.shape} must have one shape [N, D]")
        positions = np.flatnonzero(mask)
        shape = (mask.shape[0], mask.shape[1])
        return cls.from_entries(shape, positions, values.reshape(-1)[positions], value_type=value_type)

    @classmethod
    def from_entries(
        cls,
        shape: tuple[int, int],
        positions: "Tensor | Array",
        values: "Tensor | Array",
        *,
        value_type: ValueType = "fp32",
    ) -> Self:
        """From the kept entries alone: flat positions `row · D + column`, ascending, and their values, both `[K]`."""
        positions = to_numpy(positions).astype(np.int64, copy=False)
        values = to_numpy(values).astype(np.float32, copy=False)
        _check_entries(shape, positions, values)
        return cls(*encode(shape, positions, values, value_type))

    @classmethod
    def from_quantised(
        cls, shape: tuple[int, int], positions: "Tensor | Array", quantised: Quantised, *, value_type: ValueType
    ) -> Self:
        """From entries whose codes and scales are already chosen, as quantisation-aware training ends with."""
        positions = to_numpy(positions).astype(np.int64, copy=False)
        values = quantised.values(value_type)
        _check_entries(shape, positions, values)
        return cls(*encode(shape, positions, values, value_type, quantised))

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
    def value_type(self) -> ValueType:
        return self.layout.value_type

    @property
    def num_parameters(self) -> int:
        """Kept entries, those that happen to be zero included."""
        return self.layout.num_entries

    @property
    def storage_bytes(self) -> int:
        """Bytes of all arrays: values and everything a lookup reads."""
        return sum(array.nbytes for array in self.arrays.values())

    @overload
    def lookup(self, ids: "Tensor", *, out_of_range: OutOfRange = "error") -> "Tensor": ...
    @overload
    def lookup(self, ids: Array, *, out_of_range: OutOfRange = "error") -> npt.NDArray[np.float32]: ...
    def lookup(self, ids: "Tensor | Array", *, out_of_range: OutOfRange = "error") -> "Tensor | Array":
        """Vectors `[..., D]` of ids `[...]`; zeros where a row was pruned away.

        Args:
            ids: feature ids, an array or a CPU tensor; the answer is of the same kind.
            out_of_range: whether an id outside the table is an `IndexError` or a vector of zeros.
        """
        if not isinstance(ids, np.ndarray):
            return _like_tensor(self.lookup(to_numpy(ids), out_of_range=out_of_range))
        flat = np.ascontiguousarray(ids, np.int64).reshape(-1)
        vectors = np.empty((len(flat), self.embedding_dim), np.float32)
        self._check_range(flat, self._look_up(flat, None, False, vectors), out_of_range)
        return vectors.reshape(*ids.shape, self.embedding_dim)

    @overload
    def lookup_bags(
        self, ids: "Tensor", offsets: "Tensor", pooling: Pooling = "mean", *, out_of_range: OutOfRange = "error"
    ) -> "Tensor": ...
    @overload
    def lookup_bags(
        self, ids: Array, offsets: Array, pooling: Pooling = "mean", *, out_of_range: OutOfRange = "error"
    ) -> npt.NDArray[np.float32]: ...
    def lookup_bags(
        self,
        ids: "Tensor | Array",
        offsets: "Tensor | Array",
        pooling: Pooling = "mean",
        *,
        out_of_range: OutOfRange = "error",
    ) -> "Tensor | Array":
        """One vector per bag `[B, D]`: the sum or mean over its ids; zeros for an empty bag.

        Args:
            ids: the ids of all bags one after the other, `[total]`.
            offsets: where each bag starts, and where the last one ends, `[B + 1]`.
            pooling: `sum` or `mean`; an id outside the table counts in the mean as a vector of zeros.
            out_of_range: as in `lookup`.
        """
        if not isinstance(ids, np.ndarray):
            pooled = self.lookup_bags(to_numpy(ids), to_numpy(offsets), pooling, out_of_range=out_of_range)
            return _like_tensor(pooled)
        flat = np.ascontiguousarray(ids, np.int64)
        starts = np.ascontiguousarray(to_numpy(offsets), np.int64)
        if flat.ndim != 1 or starts.ndim != 1 or not len(starts) or starts[0] != 0 or starts[-1] != len(flat):
            raise ValueError(f"offsets must begin with 0 and end with the number of ids, {len(flat)}")
        if np.any(np.diff(starts) < 0):
            raise ValueError("offsets must ascend")
        pooled = np.zeros((len(starts) - 1, self.embedding_dim), np.float32)
        self._check_range(flat, self._look_up(flat, starts, pooling == "mean", pooled), out_of_range)
        return pooled

    def entries(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Flat positions `[K]`, ascending, and values `[K]` of all kept entries."""
        return decode(self.layout, self.arrays)

    def mask(self) -> npt.NDArray[np.bool_]:
        """The dense mask `[N, D]`, True = kept."""
        mask = np.zeros(self.shape, np.bool_)
        mask.reshape(-1)[self.entries()[0]] = True
        return mask

    def sizes(self) -> npt.NDArray[np.int64]:
        """Kept dimensions per feature `[N]`; 0 for a dropped one."""
        return np.bincount(self.entries()[0] // self.embedding_dim, minlength=self.num_features)

    def to_dense(self) -> npt.NDArray[np.float32]:
        """The dense table `[N, D]`, for people who need it; lookups do not."""
        dense = np.zeros(self.shape, np.float32)
        positions, values = self.entries()
        dense.reshape(-1)[positions] = values
        return dense

    def to_value_type(self, value_type: ValueType) -> "CompactTable":
        """The same entries with their values stored as another type, rounded."""
        if value_type == self.value_type:
            return self
        return CompactTable.from_entries(self.shape, *self.entries(), value_type=value_type)

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, atomically."""
        from thresher.compact.file import save_table

        save_table(self.layout, self.arrays, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, verify: bool = True) -> Self:
        """Open a saved table, memory-mapped: pages are read when a lookup needs them, and shared between processes.

        Args:
            path: a file `save` wrote.
            verify: compare the checksum, which reads the whole file once; the index is checked in any case.
        """
        from thresher.compact.file import load_table

        return cls(*load_table(Path(path), verify=verify))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.layout, self.arrays)

    def __repr__(self) -> str:
        N, D = self.shape
        kind = f"{self.layout.row_index} rows, {self.layout.content} content, {self.value_type}"
        return f"CompactTable([{N}, {D}], {self.num_parameters} kept, {self.storage_bytes} bytes, {kind})"

    def _check_range(self, ids: Array, bad: int, out_of_range: OutOfRange) -> None:
        if bad >= 0 and out_of_range == "error":
            raise IndexError(f"id {ids[bad]} is outside a table of {self.num_features} rows")


def to_numpy(values: "Tensor | Array") -> Array:
    """An array or a tensor of any device as an array."""
    if isinstance(values, np.ndarray):
        return values
    tensor: Any = values
    array: Array = tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else np.asarray(tensor)
    return array


def _like_tensor(array: Array) -> "Tensor":
    import torch

    return torch.from_numpy(array)


def _check_entries(shape: tuple[int, int], positions: Array, values: Array) -> None:
    if positions.ndim != 1 or positions.shape != values.shape:
        raise ValueError(f"positions {positions.shape} and values {values.shape} must have one shape [K]")
    if len(positions) and (positions[0] < 0 or positions[-1] >= shape[0] * shape[1]):
        raise ValueError(f"positions reach from {positions[0]} to {positions[-1]}, outside a table of shape {shape}")
    if np.any(np.diff(positions) <= 0):
        raise ValueError("positions must be ascending and distinct; sort them together with their values")
    if len(positions) > MAX_ENTRIES or not 1 <= shape[1] <= 65536:
        raise ValueError(f"a compact table holds up to {MAX_ENTRIES} entries in rows of 1 to 65,536; got {shape}")
