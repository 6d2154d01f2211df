"""A compact table as one safetensors file: `save_table` writes it, `load_table` maps it into memory.

The reader works without torch and refuses damaged or hostile files: everything that a lookup uses as an index is
checked before the first lookup, and values on request.
"""

import hashlib
import json
import mmap
from collections.abc import Mapping
from dataclasses import asdict, fields
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher._internal.storage.documents import check_regular
from thresher._internal.storage.files import atomic_file
from thresher.compact.encoding import indexed_rows, rank_blocks, select_samples, unpack_bits
from thresher.compact.layouts import (
    CONTENTS,
    FIELD_STARTS,
    PLACEHOLDER,
    PLACEHOLDER_ARRAYS,
    ROW_INDEXES,
    VALUE_TYPES,
    ArrayShapes,
    Layout,
)
from thresher.errors import FormatError

Array = npt.NDArray[Any]
FORMAT = "thresher.compact-table"
VERSION = 2
DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
_EXPONENTS = {"float64": 0x7FF0 << 48, "float32": 0x7F80 << 16, "float16": 0x7C00, "bf16": 0x7F80}
"""The bits that are all set in NaN and infinity."""
CHUNK_NUMBERS = 1 << 16
MAX_HEADER_BYTES = 10_000_000
MAX_COUNT = 2**32


def save_table(layout: Layout, arrays: Mapping[str, Array], path: Path) -> None:
    save_arrays(path, arrays, FORMAT, layout=json.dumps(asdict(layout)))


def load_table(path: Path, *, verify: bool = True) -> tuple[Layout, dict[str, Array]]:
    metadata, arrays = load_arrays(path, FORMAT, verify=verify)
    try:
        layout = read_layout(json.loads(metadata["layout"]))
        check_arrays(layout, arrays)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"invalid compact table ({path}): {error}. Copy or export it again.") from error
    return layout, arrays


def save_arrays(path: Path, arrays: Mapping[str, Array], format_name: str, **metadata: str) -> None:
    """Write arrays as a safetensors file with the format's name and version, a checksum and other metadata."""
    from safetensors.numpy import save_file

    ordered = {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}
    metadata |= {"format": format_name, "version": str(VERSION), "sha256": checksum(ordered)}
    with atomic_file(path) as temporary:
        save_file(ordered, temporary, metadata)
        _order_metadata_(temporary)


def load_arrays(
    path: Path, format_name: str, *, verify: bool, private: bool = False
) -> tuple[dict[str, str], dict[str, Array]]:
    """Map a file of `save_arrays`; refuse other formats and versions and, if asked to `verify`, wrong checksums."""
    metadata, arrays = map_safetensors(path, private=private)
    if metadata.get("format") != format_name or metadata.get("version") != str(VERSION):
        raise FormatError(
            f"unsupported table ({path}): {metadata.get('format')!r} version {metadata.get('version')!r}. This "
            f"release reads {format_name!r} version {VERSION}. Export the table again, or upgrade thresher."
        )
    if verify and metadata.get("sha256") != checksum(arrays):
        raise FormatError(f"damaged table ({path}): the checksum does not match. Copy or export it again.")
    return metadata, arrays


def check_finite(path: Path, arrays: Mapping[str, Array], value_type: str = "fp32") -> None:
    """Raise `FormatError` if a stored value is NaN or infinite; reads every value once."""
    for name, array in arrays.items():
        exponent = _EXPONENTS.get("bf16" if name == "values" and value_type == "bf16" else array.dtype.name)
        if exponent is None:
            continue
        bits = np.ascontiguousarray(array).reshape(-1).view(f"<u{array.itemsize}")
        for first in range(0, len(bits), CHUNK_NUMBERS):
            if (bits[first : first + CHUNK_NUMBERS] & exponent).max() == exponent:
                raise FormatError(f"{path} is damaged: {name!r} has values that are NaN or infinite. Export it again.")


def _order_metadata_(path: Path) -> None:
    """Sort the metadata of a safetensors file, whose writer shuffles it, so that equal tables give equal files."""
    with path.open("r+b") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(header_bytes))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= header_bytes:  # the arrays do not move
            file.seek(8)
            file.write(text.ljust(header_bytes))


def checksum(arrays: Mapping[str, Array]) -> str:
    """SHA-256 over the arrays' bytes in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()


def map_safetensors(path: Path, *, private: bool = False) -> tuple[dict[str, str], dict[str, Array]]:
    """Metadata and arrays of a safetensors file, mapped into memory (`private`: copy-on-write, as torch requires)."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY if private else mmap.ACCESS_READ)
    except FileNotFoundError:
        raise FormatError(f"file {path} does not exist.") from None
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise FormatError(f"cannot read {path}: {error}. Copy or export it again.") from error
    header_bytes = int.from_bytes(mapped[:8], "little")
    if len(mapped) < 8 or header_bytes > min(MAX_HEADER_BYTES, len(mapped) - 8):
        raise FormatError(f"not a complete safetensors file ({path}): the header is truncated or too long.")
    try:
        header = json.loads(mapped[8 : 8 + header_bytes])
        metadata = {str(key): str(value) for key, value in header.pop("__metadata__", {}).items()}
        arrays = {name: _map_array(mapped, 8 + header_bytes, entry) for name, entry in header.items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise FormatError(f"damaged header ({path}): {error}. Copy or export it again.") from error
    return metadata, arrays


def _map_array(mapped: mmap.mmap, data_start: int, entry: Any) -> Array:
    dtype = np.dtype(DTYPES[entry["dtype"]]).newbyteorder("<")
    first, last = entry["data_offsets"]
    shape = entry["shape"]
    if not all(type(number) is int and number >= 0 for number in [first, last, *shape]):
        raise ValueError("sizes and offsets must be non-negative integers")
    length = prod(shape)
    if not first <= last <= len(mapped) - data_start or last - first != length * dtype.itemsize:
        raise ValueError(f"bytes {first} to {last} of {len(mapped) - data_start} do not fit an array of shape {shape}")
    if length == 0:
        return np.zeros(shape, dtype)
    array = np.frombuffer(mapped, dtype, count=length, offset=data_start + first).reshape(shape)
    return array if array.flags.aligned else array.copy()


def read_layout(mapping: Any) -> Layout:
    """A layout from its JSON; raises ValueError for a layout that `choose_layout` could not return."""
    names = [field.name for field in fields(Layout)]
    if not isinstance(mapping, dict) or sorted(mapping) != sorted(names):
        raise ValueError(f"a layout must have the keys {', '.join(names)}")
    for name, choices in (("row_index", ROW_INDEXES), ("content", CONTENTS), ("value_type", VALUE_TYPES)):
        if mapping[name] not in choices:
            raise ValueError(f"{name} is {mapping[name]!r}, not one of {', '.join(choices)}")
    for name in names[3:]:
        if type(mapping[name]) is not int or not 0 <= mapping[name] < MAX_COUNT:
            raise ValueError(f"{name} is {mapping[name]!r}, not an integer from 0 to 2³² − 1")
    layout = Layout(**mapping)
    _require(1 <= layout.width <= layout.embedding_dim <= 65536, "rows are wider than the table")
    num_cells = layout.num_rows * layout.width
    _require(layout.num_rows <= layout.num_features, "more rows are indexed than the table has")
    _require(layout.row_index != "all" or layout.num_rows == layout.num_features, "rows are missing")
    _require(layout.num_entries <= num_cells, "there are more entries than cells")
    _require(layout.num_full_rows <= layout.num_rows and layout.partial_entries >= 0, "there are too many full rows")
    if layout.content == "full":
        _require(layout.num_entries == num_cells and not layout.num_full_rows, "a full layout has all cells")
    return layout


def check_arrays(layout: Layout, arrays: Mapping[str, Array]) -> None:
    """Raise ValueError unless the arrays agree with the layout and with one another."""
    expected = layout.arrays()
    if arrays.keys() & PLACEHOLDER_ARRAYS.keys():
        expected |= _placeholder_shapes(layout, arrays)
    _require(set(arrays) == set(expected), f"it must have the arrays {', '.join(sorted(expected))}")
    for name, (dtype, length) in expected.items():
        array = arrays[name]
        _require(array.dtype == dtype and array.shape == (length,), f"{name} must be {np.dtype(dtype)} [{length}]")
    _check_row_index(layout, arrays)
    if layout.num_full_rows:
        ones = _check_ranks(arrays["full_bits"], arrays["full_ranks"], layout.num_rows, "full_bits")
        _require(len(ones) == layout.num_full_rows, "the count of full rows is wrong")
    _check_content(layout, arrays)
    if layout.drops_columns:
        column_map = arrays["column_map"].astype(np.int64)
        ascending = bool(np.all(np.diff(column_map) > 0))
        _require(ascending and column_map[-1] < layout.embedding_dim, "column_map does not ascend inside the table")


def _placeholder_shapes(layout: Layout, arrays: Mapping[str, Array]) -> ArrayShapes:
    """Types and lengths of the arrays of placeholders; raise ValueError unless there is one for each field."""
    starts = arrays.get(FIELD_STARTS, np.zeros(0, np.int64))
    known = starts.dtype == np.int64 and starts.ndim == 1 and len(starts) > 0
    _require(known and starts[0] == 0 and bool(np.all(np.diff(starts) >= 0)), "field_starts do not ascend from 0")
    _require(bool(starts[-1] <= layout.num_features), "a field starts outside the table")
    lengths = {PLACEHOLDER: len(starts) * layout.embedding_dim, FIELD_STARTS: len(starts)}
    return {name: (PLACEHOLDER_ARRAYS[name], length) for name, length in lengths.items()}


def _check_row_index(layout: Layout, arrays: Mapping[str, Array]) -> None:
    match layout.row_index:
        case "bitmap":
            ones = _check_ranks(arrays["row_bits"], arrays["row_ranks"], layout.num_features, "row_bits")
            _require(len(ones) == layout.num_rows, "the count of rows is wrong")
        case "list8" | "list16":
            starts = arrays["row_starts"].astype(np.int64)
            _require(starts[0] == 0 and starts[-1] == layout.num_rows, "row_starts do not span the rows")
            _require(bool(np.all(np.diff(starts) >= 0)), "row_starts do not ascend")
            rows = indexed_rows(layout, arrays)
            inside = not len(rows) or rows[-1] < layout.num_features
            _require(inside and bool(np.all(np.diff(rows) > 0)), "row_lows do not ascend inside the table")


def _check_content(layout: Layout, arrays: Mapping[str, Array]) -> None:
    match layout.content:
        case "masks":
            num_cells = layout.partial_rows * layout.width
            ones = _check_ranks(arrays["cell_bits"], arrays["cell_ranks"], num_cells, "cell_bits")
            _require(len(ones) == layout.partial_entries, "the count of kept entries is wrong")
        case "columns":
            flags = unpack_bits(arrays["row_flags"])
            _require(len(flags) == layout.partial_rows + 1, "the count of rows is wrong")
            # without entries, one flag is the beginning and the end
            _require(flags[0] == 0 and flags[-1] == layout.partial_entries, "row_flags do not span the entries")
            _require(np.array_equal(arrays["row_samples"], select_samples(flags)), "row_samples are wrong")
            columns = arrays["columns"].astype(np.int64)
            _require(int(columns.max(initial=0)) < layout.width, "a column number is outside the row")
            rising = np.diff(columns) > 0
            rising[flags[1:-1] - 1] = True  # columns ascend only within a row
            _require(bool(rising.all()), "the columns of a row do not ascend")


def _check_ranks(words: Array, ranks: Array, num_bits: int, name: str) -> npt.NDArray[np.int64]:
    """Positions of the ones of a bit vector, after a check of its rank blocks and of the bits past its end."""
    ones = unpack_bits(words)
    _require(not len(ones) or ones[-1] < num_bits, f"{name} has ones past its end")
    _require(np.array_equal(ranks, rank_blocks(words, num_bits)), f"the ranks of {name} are wrong")
    return ones


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
