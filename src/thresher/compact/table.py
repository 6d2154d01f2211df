"""CompactTable: the kept entries of an embedding table and their positions, in the smallest layout.

Immutable; for training use `CompactEmbedding`. Lookups never build the dense table, and any number of threads may run
them. Works without torch.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt

from thresher.compact.encoding import (
    Quantized,
    decode_positions,
    encode_positions,
    pack_values,
    unpack_values,
)
from thresher.compact.layouts import (
    FIELD_STARTS,
    PLACEHOLDER,
    PLACEHOLDER_ARRAYS,
    Layout,
    ValueType,
    placeholder_arrays,
)
from thresher.compact.lookup import LookUp, choose_lookup
from thresher.compact.row_terms import RowTerms, choose_row_terms
from thresher.errors import OutsideTableError

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[Any]
OutOfRange = Literal["error", "zeros"]
Pooling = Literal["sum", "mean"]


class CompactTable:
    """Kept values of a table `[N, D]` and their positions.

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
        self.num_features, self.embedding_dim = layout.num_features, layout.embedding_dim
        self.shape = (layout.num_features, layout.embedding_dim)
        self.value_type = layout.value_type
        placeholder = self.arrays.get(PLACEHOLDER)
        self.placeholder = None if placeholder is None else placeholder.reshape(-1, layout.embedding_dim)
        """What pruned entries read as, `[F, D]`, one vector per field; None: 0."""
        # including entries whose value is zero
        self.num_parameters = layout.num_entries + (0 if placeholder is None else placeholder.size)
        self.storage_bytes = sum(array.nbytes for array in self.arrays.values())  # everything a lookup reads

    @cached_property
    def _look_up(self) -> LookUp:
        """Chosen at the first lookup: numba takes a while to load, and Python searches for a missing package anew."""
        return choose_lookup(self.layout, self.arrays)

    @cached_property
    def _row_terms(self) -> RowTerms:
        return choose_row_terms(self.layout, self.arrays)

    @classmethod
    def from_mask(cls, mask: "Tensor | Array", values: "Tensor | Array", *, value_type: ValueType = "fp32") -> Self:
        """From a dense mask `[N, D]` (True = kept) and dense values `[N, D]`."""
        mask, values = to_numpy(mask), to_numpy(values)
        if mask.ndim != 2 or mask.shape != values.shape:
            raise ValueError(f"mask has shape {mask.shape} and values {values.shape}: expected the same [N, D].")
        positions = np.flatnonzero(mask)
        return cls.from_entries(mask.shape, positions, values.reshape(-1)[positions], value_type=value_type)

    @classmethod
    def from_entries(
        cls,
        shape: tuple[int, int],
        positions: "Tensor | Array",
        values: "Tensor | Array | Quantized",
        *,
        value_type: ValueType = "fp32",
        placeholder: "tuple[Tensor | Array, Sequence[int]] | None" = None,
    ) -> Self:
        """From flat positions `row · D + column` `[K]`, ascending, and values `[K]` (or codes and scales).

        Args:
            placeholder: vectors `[F, D]` that are added to every row of their field, and the sizes of the fields. The
                values are then differences from them, so that pruned entries read as the placeholder.
        """
        positions = to_numpy(positions).astype(np.int64, copy=False)
        if not isinstance(values, Quantized):
            values = to_numpy(values).astype(np.float32, copy=False)
        check_entries(shape, positions, values.codes.shape if isinstance(values, Quantized) else values.shape)
        layout, index = encode_positions(shape, positions, value_type)
        arrays = index | pack_values(values, value_type)
        return cls(layout, arrays if placeholder is None else arrays | placeholder_arrays(shape, *placeholder))

    @overload
    def lookup(self, ids: "Tensor", *, out_of_range: OutOfRange = "error") -> "Tensor": ...
    @overload
    def lookup(self, ids: Array, *, out_of_range: OutOfRange = "error") -> npt.NDArray[np.float32]: ...
    def lookup(self, ids: "Tensor | Array", *, out_of_range: OutOfRange = "error") -> "Tensor | Array":
        """Vectors `[..., D]` of ids `[...]`; ids outside the table raise `IndexError` or give zeros."""
        if not isinstance(ids, np.ndarray):
            return _to_tensor(self.lookup(to_numpy(ids), out_of_range=out_of_range))
        flat = np.ascontiguousarray(ids, np.int64).reshape(-1)
        vectors = np.empty((len(flat), self.embedding_dim), np.float32)
        self._check_range(flat, self._look_up(flat, None, False, vectors), out_of_range)
        if self.placeholder is not None:
            vectors += self._placeholders(flat)
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

        Bag `b` has the ids (`[total]`) from `offsets[b]` to `offsets[b + 1]` (`[B + 1]`). An id outside the table
        raises `IndexError`, or counts as a vector of zeros.
        """
        if not isinstance(ids, np.ndarray):
            pooled = self.lookup_bags(to_numpy(ids), to_numpy(offsets), pooling, out_of_range=out_of_range)
            return _to_tensor(pooled)
        flat = np.ascontiguousarray(ids, np.int64)
        starts = np.ascontiguousarray(to_numpy(offsets), np.int64)
        if flat.ndim != 1 or starts.ndim != 1 or not len(starts) or starts[0] != 0 or starts[-1] != len(flat):
            raise ValueError(f"offsets must start with 0 and end with the number of ids, {len(flat)}.")
        if np.any(np.diff(starts) < 0):
            raise ValueError("offsets must not decrease.")
        pooled = np.zeros((len(starts) - 1, self.embedding_dim), np.float32)
        self._check_range(flat, self._look_up(flat, starts, pooling == "mean", pooled), out_of_range)
        if self.placeholder is not None:
            sizes = np.diff(starts)
            added = self._placeholders(flat)
            if pooling == "mean":
                added /= np.repeat(sizes, sizes).astype(np.float32)[:, None]
            np.add.at(pooled, np.repeat(np.arange(len(sizes)), sizes), added)
        return pooled

    def row_terms(
        self, ids: Array, weight: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None:
        """The FM term of the vectors of ids `[n, F]` as `[n]`, and their product with `weight [F · D, k]` as `[n, k]`.

        None if the table has placeholders or the rows keep so much that dense arrays are faster.
        """
        if len(weight) != ids.shape[1] * self.embedding_dim:
            raise ValueError(f"weight has {len(weight)} rows: expected {ids.shape[1]} × {self.embedding_dim}.")
        if self.placeholder is not None:
            return None
        return self._row_terms(np.ascontiguousarray(ids, np.int64), np.ascontiguousarray(weight, np.float32))

    def entries(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Flat positions `[K]`, ascending, and stored values `[K]` of all kept entries (`from_entries`)."""
        values = unpack_values(self.arrays, self.value_type, np.arange(self.layout.num_entries))
        return decode_positions(self.layout, self.arrays), values

    def mask(self) -> npt.NDArray[np.bool_]:
        mask = np.zeros(self.shape, np.bool_)
        mask.reshape(-1)[self.entries()[0]] = True
        return mask

    def sizes(self) -> npt.NDArray[np.int64]:
        """Kept dimensions per feature `[N]`; 0 for a dropped one."""
        return np.bincount(self.entries()[0] // self.embedding_dim, minlength=self.num_features)

    def to_dense(self) -> npt.NDArray[np.float32]:
        dense = np.zeros(self.shape, np.float32)
        positions, values = self.entries()
        dense.reshape(-1)[positions] = values
        if self.placeholder is not None:
            dense += self._placeholders(np.arange(self.num_features))
        return dense

    def to_value_type(self, value_type: ValueType) -> "CompactTable":
        if value_type == self.value_type:
            return self
        table = CompactTable.from_entries(self.shape, *self.entries(), value_type=value_type)
        kept = {name: self.arrays[name] for name in PLACEHOLDER_ARRAYS if name in self.arrays}
        return CompactTable(table.layout, table.arrays | kept)

    def check_finite(self, path: Path) -> None:
        """Raise `FormatError` if a value that was read from `path` is NaN or infinite."""
        from thresher.compact.file import check_finite

        check_finite(path, self.arrays, self.value_type)

    def save(self, path: str | Path) -> None:
        from thresher.compact.file import save_table

        save_table(self.layout, self.arrays, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, verify: bool = True) -> Self:
        """Open a saved table, memory-mapped, its index checked; `verify` also checks all values and the checksum."""
        from thresher.compact.file import load_table

        table = cls(*load_table(Path(path), verify=verify))
        if verify:
            table.check_finite(Path(path))
        return table

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.layout, self.arrays)

    def __repr__(self) -> str:
        kind = f"{self.layout.row_index} rows, {self.layout.content} content, {self.value_type}"
        return f"CompactTable({list(self.shape)}, {self.layout.num_entries} kept, {self.storage_bytes} bytes, {kind})"

    def _placeholders(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """The placeholder of each id `[n, D]`; zeros for ids outside the table."""
        assert self.placeholder is not None
        fields = np.searchsorted(self.arrays[FIELD_STARTS], ids, side="right") - 1
        vectors: npt.NDArray[np.float32] = self.placeholder[np.maximum(fields, 0)]
        vectors[(ids < 0) | (ids >= self.num_features)] = 0
        return vectors

    def _check_range(self, ids: Array, bad: int, out_of_range: OutOfRange) -> None:
        if bad >= 0 and out_of_range == "error":
            raise OutsideTableError.of(int(ids[bad]), self.num_features)


def to_numpy(values: "Tensor | Array") -> Array:
    """An array or a tensor on any device as an array."""
    if isinstance(values, np.ndarray) or not hasattr(values, "detach"):
        return np.asarray(values)
    array: Array = values.detach().cpu().numpy()
    return array


def _to_tensor(array: Array) -> "Tensor":
    import torch

    return torch.from_numpy(array)


def check_entries(shape: tuple[int, int], positions: Array, values_shape: tuple[int, ...]) -> None:
    """Raise unless positions `[K]` ascend inside the table and there is a value for each."""
    if positions.ndim != 1 or positions.shape != values_shape:
        raise ValueError(f"positions have shape {positions.shape} and values {values_shape}: expected the same [K].")
    if len(positions) and (positions[0] < 0 or positions[-1] >= shape[0] * shape[1]):
        raise ValueError(f"positions {positions[0]} to {positions[-1]} are outside a table of shape {shape}.")
    if np.any(np.diff(positions) <= 0):
        raise ValueError("positions must be ascending and distinct. Sort them together with their values.")
