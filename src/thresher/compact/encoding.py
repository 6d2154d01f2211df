"""Kept entries ↔ the arrays of a layout: positions, values, and the bit vectors both use. Pure numpy.

A bit vector is little-endian 64-bit words. *rank(p)* counts the ones before bit `p`, with a uint32 count per block of
256 bits. *select(j)* finds the j-th one, with a uint32 position per 32 ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.compact.layouts import (
    BLOCK_BITS,
    LIST_SHIFT,
    SCALE_BLOCK,
    SELECT_STRIDE,
    Layout,
    ValueType,
    choose_layout,
    num_blocks,
    num_scales,
    num_words,
)

Array = npt.NDArray[Any]
Positions = npt.NDArray[np.int64]
Values = npt.NDArray[np.float32]

MAX_CODE = {"int8": 127, "int4": 7}
MAX_ENTRIES = 2**32 - 1  # positions of entries are uint32


def encode_positions(
    shape: tuple[int, int], positions: Positions, value_type: ValueType
) -> tuple[Layout, dict[str, Array]]:
    """The smallest layout for entries at flat positions `row · D + column` `[K]` (ascending), and its index arrays."""
    num_features, embedding_dim = shape
    if len(positions) > MAX_ENTRIES or not 1 <= embedding_dim <= 65536:
        raise ValueError(f"shape {shape} is too large: expected at most {MAX_ENTRIES} entries in rows of 1 to 65,536.")
    row_of_entry, columns = np.divmod(positions, embedding_dim)
    begins = np.flatnonzero(np.diff(row_of_entry, prepend=-1))
    rows, sizes = row_of_entry[begins], np.diff(begins, append=len(positions))
    used_columns = np.flatnonzero(np.bincount(columns, minlength=embedding_dim))
    layout = choose_layout(
        num_features,
        embedding_dim,
        num_rows=len(rows),
        num_columns=len(used_columns),
        num_entries=len(positions),
        num_full_rows=int((sizes == len(used_columns)).sum()),
        value_type=value_type,
    )
    arrays = _encode_row_index(layout, rows)
    if layout.drops_columns:
        arrays["column_map"] = used_columns if len(used_columns) else np.zeros(1, np.int64)
        columns = np.searchsorted(arrays["column_map"], columns)
    arrays |= _encode_content(layout, rows if layout.row_index == "all" else np.arange(len(rows)), sizes, columns)
    dtypes = layout.arrays()
    return layout, {name: array.astype(dtypes[name][0], copy=False) for name, array in arrays.items()}


def decode_positions(layout: Layout, arrays: Mapping[str, Array]) -> Positions:
    """The flat positions `[K]` of all kept entries, ascending; inverse of `encode_positions`."""
    ranks, columns = _decode_content(layout, arrays)
    if layout.drops_columns:
        columns = arrays["column_map"].astype(np.int64)[columns]
    return indexed_rows(layout, arrays)[ranks] * layout.embedding_dim + columns


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


def _encode_content(layout: Layout, ranks: Positions, sizes: Positions, columns: Positions) -> dict[str, Array]:
    """Which columns each non-empty row has, from its rank among the indexed rows, its size and its columns."""
    arrays: dict[str, Array] = {}
    if layout.num_full_rows:
        full = sizes == layout.width
        arrays["full_bits"] = pack_bits(ranks[full], layout.num_rows)
        arrays["full_ranks"] = rank_blocks(arrays["full_bits"], layout.num_rows)
        columns = columns[np.repeat(~full, sizes)]
        ranks, sizes = (ranks - np.cumsum(full))[~full], sizes[~full]  # ranks among the partial rows
    match layout.content:
        case "masks":
            num_cells = layout.partial_rows * layout.width
            arrays["cell_bits"] = pack_bits(np.repeat(ranks, sizes) * layout.width + columns, num_cells)
            arrays["cell_ranks"] = rank_blocks(arrays["cell_bits"], num_cells)
        case "columns":
            flags = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
            arrays["row_flags"] = pack_bits(flags, len(columns) + 1)
            arrays["row_samples"] = select_samples(flags)
            arrays["columns"] = columns
    return arrays


def _decode_content(layout: Layout, arrays: Mapping[str, Array]) -> tuple[Positions, Positions]:
    """Rank of the row and stored column of each entry, row after row."""
    match layout.content:
        case "full":
            ranks, columns = np.divmod(np.arange(layout.num_entries), layout.width)
        case "masks":
            ranks, columns = np.divmod(unpack_bits(arrays["cell_bits"]), layout.width)
        case "columns":
            ranks = np.repeat(np.arange(layout.partial_rows), np.diff(unpack_bits(arrays["row_flags"])))
            columns = arrays["columns"].astype(np.int64)
    if layout.num_full_rows:
        full = unpack_bits(arrays["full_bits"])
        partial = np.delete(np.arange(layout.num_rows), full)
        ranks = np.concatenate([partial[ranks], np.repeat(full, layout.width)])
        columns = np.concatenate([columns, np.tile(np.arange(layout.width), len(full))])
        order = np.argsort(ranks, kind="stable")
        ranks, columns = ranks[order], columns[order]
    return ranks, columns


def pack_bits(positions: Array, num_bits: int) -> npt.NDArray[np.uint64]:
    """The words of a bit vector with ones at these distinct positions."""
    words = np.zeros(num_words(num_bits), np.uint64)
    np.bitwise_or.at(words, positions >> 6, np.uint64(1) << (positions & 63).astype(np.uint64))
    return words


def unpack_bits(words: Array) -> Positions:
    """Positions of the ones, ascending."""
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).astype(np.int64, copy=False)


def rank_blocks(words: Array, num_bits: int) -> npt.NDArray[np.uint32]:
    """Number of ones before each block of 256 bits; the last count is for positions up to the end."""
    before = np.zeros(len(words) + 1, np.int64)
    np.cumsum(np.bitwise_count(words), out=before[1:], dtype=np.int64)
    return before[:: BLOCK_BITS // 64][: num_blocks(num_bits)].astype(np.uint32)


def select_samples(positions: Array) -> npt.NDArray[np.uint32]:
    """Position of every 32nd one, from the ascending positions of all ones."""
    return positions[::SELECT_STRIDE].astype(np.uint32)


@dataclass(frozen=True)
class Quantized:
    """Codes `[K]` (−127 … 127 for int8, −7 … 7 for int4) and one scale per block of them."""

    codes: npt.NDArray[np.int8]
    scales: Values


def pack_values(values: Values | Quantized, value_type: ValueType) -> dict[str, Array]:
    """The arrays that store values `[K]`, rounded to the nearest."""
    if isinstance(values, Quantized):
        return _pack_codes(values, value_type)
    match value_type:
        case "fp32":
            return {"values": np.ascontiguousarray(values, np.float32)}
        case "fp16":
            _check_finite(values, value_type)  # the kernels would read NaN as a number
            largest = float(np.abs(values).max(initial=0))
            if largest > 65504:
                raise ValueError(f"value {largest:g} does not fit in fp16, whose largest value is 65504. Use bf16.")
            return {"values": values.astype(np.float16)}
        case "bf16":
            bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
            nearest_even = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
            return {"values": nearest_even.astype(np.uint16)}
        case "int8" | "int4":
            return _pack_codes(quantize(values, value_type), value_type)


def _pack_codes(quantized: Quantized, value_type: ValueType) -> dict[str, Array]:
    codes, scales = quantized.codes, np.ascontiguousarray(quantized.scales, np.float32)
    if value_type == "int8":
        return {"values": np.ascontiguousarray(codes, np.int8), "scales": scales}
    nibbles = np.zeros(len(codes) + len(codes) % 2, np.uint8)
    nibbles[: len(codes)] = codes + 8
    return {"values": nibbles[::2] | (nibbles[1::2] << 4), "scales": scales}


def unpack_values(arrays: Mapping[str, Array], value_type: ValueType, entries: Positions) -> Values:
    """The stored values at `entries` `[n]` as float32 `[n]`."""
    stored = arrays["values"]
    match value_type:
        case "fp32" | "fp16":
            return stored[entries].astype(np.float32)
        case "bf16":
            return (stored[entries].astype(np.uint32) << 16).view(np.float32)
        case "int8":
            codes = stored[entries].astype(np.float32)
        case "int4":
            nibbles = (stored[entries >> 1] >> (4 * (entries & 1)).astype(np.uint8)) & 15
            codes = nibbles.astype(np.float32) - 8
    scaled: Values = codes * arrays["scales"][entries // SCALE_BLOCK[value_type]]
    return scaled


def quantize(values: Values, value_type: ValueType) -> Quantized:
    """Codes and scales with the least squared error per block; at 4 bits it can pay to clip the largest values."""
    _check_finite(values, value_type)
    block, largest_code = SCALE_BLOCK[value_type], MAX_CODE[value_type]
    padded = np.zeros((num_scales(value_type, len(values)), block), np.float32)
    padded.reshape(-1)[: len(values)] = values
    widest = np.abs(padded).max(axis=1, initial=0) / largest_code
    best, least = widest, np.full(len(widest), np.inf, np.float32)
    for share in np.linspace(1.0, 0.6, 9 if value_type == "int4" else 1, dtype=np.float32):
        scales = widest * share
        error = np.square(padded - _to_codes(padded, scales[:, None], largest_code) * scales[:, None]).sum(axis=1)
        best, least = np.where(error < least, scales, best), np.minimum(error, least)
    codes = _to_codes(padded, best[:, None], largest_code).astype(np.int8).reshape(-1)[: len(values)]
    return Quantized(codes, best.astype(np.float32))


def _to_codes(values: Array, scales: Array, largest_code: int) -> Array:
    return np.clip(np.rint(values / np.where(scales > 0, scales, 1)), -largest_code, largest_code)


def _check_finite(values: Values, value_type: ValueType) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"some values are NaN or infinite and cannot be stored as {value_type}.")
