"""TraceableEmbedding: lookup in a compact table as plain tensor operations, for export to other engines.

Gathers, sums and one scatter: no kernel, no loop, no shape that depends on values. Not every engine has bit operations
on larger types than bytes, so the arrays are a little larger than those of `CompactTable`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from thresher.compact.encoding import pack_values
from thresher.compact.layouts import FIELD_STARTS, SCALE_BLOCK, ValueType, is_quantized
from thresher.compact.table import CompactTable
from thresher.embeddings.base import FieldEmbedding

GROUP_ROWS = 256  # rows per int32 that counts the kept rows before them
GROUP_BYTES = GROUP_ROWS // 8
SIZES_BLOCK = 16  # rows whose sizes are summed to find the start of one
MASKS_BLOCK = 4  # the same with sizes counted in masks
OUTSIDE = 1 << 40  # past the end of every array, so that no engine finds another row
_BITS = (np.arange(256)[:, None] >> np.arange(8)) & 1  # [256, 8]
_ONES_BELOW = np.concatenate([np.zeros((256, 1), np.int64), _BITS.cumsum(1)], axis=1)  # [256, 9]


class TraceableEmbedding(FieldEmbedding):
    """Ids `[...]` → vectors `[..., D]` in standard operations only; frozen."""

    def __init__(self, field_sizes: Sequence[int], table: CompactTable) -> None:
        super().__init__(field_sizes, table.embedding_dim)
        self.num_kept = table.layout.num_entries
        self.value_type: ValueType = table.value_type if self.num_kept else "fp32"
        positions, values = table.entries()
        rows, columns = np.divmod(positions, self.embedding_dim)
        sizes = np.bincount(rows, minlength=self.num_features)
        kept_rows = np.flatnonzero(sizes)
        self._add("ones_below", _ONES_BELOW.reshape(-1).astype(np.uint8))
        self.rows_indexed = len(kept_rows) < self.num_features
        if self.rows_indexed:
            self._index_rows(kept_rows)
        sizes = sizes[kept_rows] if self.rows_indexed else sizes
        self.content = self._smallest(sizes)
        ranks = np.repeat(np.arange(len(sizes)), sizes)
        match self.content:
            case "dense":
                cells = np.zeros((max(len(sizes), 1), self.embedding_dim), np.float32)
                cells[ranks, columns] = values
                values = cells
            case "columns":
                self.max_size = int(sizes.max(initial=1))
                self._add("sizes", _blocks(sizes, SIZES_BLOCK).astype(_small(self.max_size)))
                self._add("starts", _block_starts(sizes, SIZES_BLOCK))
                self._add("columns", columns.astype(_small(self.embedding_dim - 1)))
            case "masks":
                row_bytes = -(-self.embedding_dim // 8)
                bits = np.zeros((len(sizes), row_bytes * 8), np.bool_)
                bits[ranks, columns] = True
                masks = np.packbits(bits, axis=1, bitorder="little").reshape(-1)
                self._add("masks", _blocks(masks, MASKS_BLOCK * row_bytes))
                self._add("starts", _block_starts(sizes, MASKS_BLOCK))
        if is_quantized(self.value_type):
            packed = {name: table.arrays[name] for name in ("values", "scales")}
        else:
            packed = pack_values(values, self.value_type)
        for name, array in packed.items():
            self._add(name, array)
        self.has_placeholder = table.placeholder is not None
        if table.placeholder is not None:
            self._add("placeholder", table.placeholder.copy())
            self._add("field_starts", table.arrays[FIELD_STARTS].copy())

    def forward(self, ids: Tensor) -> Tensor:
        flat = ids.reshape(-1).long()  # [n]
        # engines count negative places from the end, and some ids past the table are within its padding
        flat = torch.where((flat >= 0) & (flat < self.num_features), flat, OUTSIDE)
        if self.rows_indexed:
            ranks, present = self._ranks(flat)
        else:
            ranks, present = flat, None
        match self.content:
            case "dense" if not is_quantized(self.value_type):
                vectors = self.values[ranks].float()
            case "dense":
                vectors = self._values(ranks[:, None] * self.embedding_dim + self._range(self.embedding_dim))
            case "columns":
                vectors = self._from_columns(ranks)
            case _:
                vectors = self._from_masks(ranks)
        if present is not None:
            vectors = vectors * present[:, None]
        if self.has_placeholder:
            fields = (ids.reshape(-1, 1) >= self.field_starts).sum(1) - 1
            vectors = vectors + self.placeholder[fields]
        return vectors.reshape(*ids.shape, self.embedding_dim)

    def num_parameters(self) -> int:
        return self.num_kept + (self.placeholder.numel() if self.has_placeholder else 0)

    def storage_bytes(self) -> int:
        return sum(buffer.numel() * buffer.element_size() for buffer in self.buffers())

    def _ranks(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Rank of each row among the kept ones (0 for a pruned row), and 1.0 if it is kept."""
        group, within = ids // GROUP_ROWS, ids % GROUP_ROWS
        row_bits = self.row_bits[group].long()  # [n, 32]
        ranks = self.row_ranks[group].long() + self._count_below(row_bits, within)
        own = row_bits.gather(1, within[:, None] // 8)[:, 0] * 9 + within % 8
        present = self.ones_below[own + 1] - self.ones_below[own]
        return ranks * present, present.float()

    def _count_below(self, row_bits: Tensor, bit: Tensor) -> Tensor:
        """Number of ones among the first `bit` `[n]` bits of bytes `[n, m]`."""
        within = (bit[:, None] - 8 * self._range(row_bits.shape[1])).clamp(0, 8)  # bits of each byte that count
        return self.ones_below[row_bits * 9 + within].sum(1, dtype=torch.int64)

    def _from_columns(self, ranks: Tensor) -> Tensor:
        block, within = ranks // SIZES_BLOCK, ranks % SIZES_BLOCK
        sizes = self.sizes[block].long()  # [n, 16]
        start = self.starts[block].long() + (sizes * (self._range(SIZES_BLOCK) < within[:, None])).sum(1)
        size = sizes.gather(1, within[:, None])  # [n, 1]
        offsets = self._range(self.max_size)
        entries = (start[:, None] + offsets).clamp(max=max(self.num_kept - 1, 0))  # [n, S]
        inside = offsets < size
        spare = torch.full_like(entries, self.embedding_dim)  # an extra column for unused places
        columns = torch.where(inside, self.columns[entries].long(), spare)
        vectors = torch.zeros(ranks.shape[0], self.embedding_dim + 1, device=ranks.device)
        return vectors.scatter(1, columns, self._values(entries))[:, : self.embedding_dim]

    def _from_masks(self, ranks: Tensor) -> Tensor:
        block, within = ranks // MASKS_BLOCK, ranks % MASKS_BLOCK
        masks = self.masks[block].long()  # [n, 4 · bytes of a row]
        row_bytes = -(-self.embedding_dim // 8)
        start = self.starts[block].long() + self._count_below(masks, within * row_bytes * 8)
        mask = masks.gather(1, within[:, None] * row_bytes + self._range(row_bytes))  # [n, bytes of a row]
        bit = mask[:, :, None] * 9 + self._range(8)
        cells = (self.ones_below[bit + 1] - self.ones_below[bit]).reshape(-1, row_bytes * 8)
        own = cells[:, : self.embedding_dim].long()
        entries = (start[:, None] + own.cumsum(1) - own).clamp(max=max(self.num_kept - 1, 0))
        return self._values(entries) * own  # [n, D]

    def _values(self, entries: Tensor) -> Tensor:
        if not is_quantized(self.value_type):
            return self.values[entries].float()
        scales = self.scales[entries // SCALE_BLOCK[self.value_type]]
        if self.value_type == "int8":
            return self.values[entries].float() * scales
        pair = self.values[entries // 2].int()
        return (torch.where(entries % 2 == 1, pair // 16, pair % 16) - 8).float() * scales

    def _index_rows(self, kept_rows: npt.NDArray[np.int64]) -> None:
        present = np.zeros(-(-self.num_features // GROUP_ROWS) * GROUP_ROWS, np.bool_)
        present[kept_rows] = True
        counts = present.reshape(-1, GROUP_ROWS).sum(1)
        self._add("row_bits", np.packbits(present, bitorder="little").reshape(-1, GROUP_BYTES))
        self._add("row_ranks", (np.cumsum(counts) - counts).astype(np.int32))

    def _smallest(self, sizes: npt.NDArray[np.int64]) -> str:
        """The smallest content; padding values count four bytes each, whatever their type."""
        rows, entries, width = len(sizes), int(sizes.sum()), self.embedding_dim
        if not entries:
            return "dense"
        padding = rows * width - entries
        prices = {
            "dense": float("inf") if padding and is_quantized(self.value_type) else 4 * padding,
            "columns": entries * (1 if width <= 256 else 2) + rows * (1 + 4 / SIZES_BLOCK),
            "masks": rows * (-(-width // 8) + 4 / MASKS_BLOCK),
        }
        return min(prices, key=lambda content: prices[content])

    def _range(self, length: int) -> Tensor:
        return torch.arange(length, device=self.ones_below.device)

    def _add(self, name: str, array: npt.NDArray[np.generic]) -> None:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        is_bf16 = name == "values" and self.value_type == "bf16"
        self.register_buffer(name, tensor.view(torch.bfloat16) if is_bf16 else tensor)

    ones_below: Tensor
    row_bits: Tensor
    row_ranks: Tensor
    sizes: Tensor
    starts: Tensor
    columns: Tensor
    masks: Tensor
    placeholder: Tensor
    field_starts: Tensor
    values: Tensor
    scales: Tensor


def _small(largest: int) -> type[np.generic]:
    """The smallest dtype for numbers up to `largest` that every engine can gather."""
    return np.uint8 if largest < 256 else np.int16 if largest < 2**15 else np.int32


def _blocks(array: npt.NDArray[np.generic], block: int) -> npt.NDArray[np.generic]:
    """An array in rows of `block`, the last padded with zeros."""
    padded = np.zeros(-(-len(array) // block) * block, array.dtype)
    padded[: len(array)] = array
    return padded.reshape(-1, block)


def _block_starts(sizes: npt.NDArray[np.int64], block: int) -> npt.NDArray[np.int32]:
    """Start of the first row of each block."""
    return (np.cumsum(sizes) - sizes)[::block].astype(np.int32)
