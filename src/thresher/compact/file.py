"""A compact table as one safetensors file: `save_table` writes it, `load_table` maps it into memory.

The header's metadata holds the format's name and version, the layout as JSON, and a checksum of all array bytes. The
reader is our own few lines (length, JSON header, arrays at their offsets) because it must map instead of copy, must
work without torch, and must refuse damaged or hostile files instead of reading outside them.
"""

import hashlib
import json
import mmap
from collections.abc import Mapping
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher._internal.files import atomic_file
from thresher.compact.check import check_arrays, read_layout
from thresher.compact.layouts import Layout
from thresher.errors import FormatError

Array = npt.NDArray[Any]
FORMAT = "thresher.compact-table"
VERSION = 1
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
MAX_HEADER_BYTES = 10_000_000


def save_table(layout: Layout, arrays: Mapping[str, Array], path: Path) -> None:
    from safetensors.numpy import save_file

    ordered = {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "layout": json.dumps(asdict(layout)),
        "sha256": checksum(ordered),
    }
    with atomic_file(path) as beside:
        save_file(ordered, beside, metadata)
        order_metadata_(beside)


def load_table(path: Path, *, verify: bool = True) -> tuple[Layout, dict[str, Array]]:
    metadata, arrays = map_safetensors(path)
    if metadata.get("format") != FORMAT:
        raise FormatError(f"{path}: not a compact table; its format is {metadata.get('format')!r}, not {FORMAT!r}")
    if metadata.get("version") != str(VERSION):
        raise FormatError(
            f"{path}: a compact table of version {metadata.get('version')!r}; "
            f"this release reads version {VERSION}; upgrade thresher"
        )
    if verify and metadata.get("sha256") != checksum(arrays):
        raise FormatError(f"{path}: damaged: its checksum is not the one it was written with; copy or export it again")
    try:
        layout = read_layout(json.loads(metadata["layout"]))
        check_arrays(layout, arrays)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not a compact table: {error}; copy or export it again") from error
    return layout, arrays


def order_metadata_(path: Path) -> None:
    """Put the metadata of a safetensors file in order, which its writer draws: equal tables are equal files."""
    with path.open("r+b") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(header_bytes))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= header_bytes:  # arrays begin where they did
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
    """Metadata and arrays of a safetensors file, mapped into memory; nothing is read but the header.

    Args:
        path: the file.
        private: arrays that may be written to, as torch wants its memory, with the file left as it is; else read-only.
    """
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY if private else mmap.ACCESS_READ)
    except FileNotFoundError:
        raise FormatError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise FormatError(f"{path}: cannot be read ({error}); copy or export it again") from error
    header_bytes = int.from_bytes(mapped[:8], "little")
    if len(mapped) < 8 or header_bytes > min(MAX_HEADER_BYTES, len(mapped) - 8):
        raise FormatError(f"{path}: the header is cut off or absurdly long; this is not a whole safetensors file")
    try:
        header = json.loads(mapped[8 : 8 + header_bytes])
        metadata = {str(key): str(value) for key, value in header.pop("__metadata__", {}).items()}
        arrays = {name: _map_array(mapped, 8 + header_bytes, entry) for name, entry in header.items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise FormatError(f"{path}: the header is damaged ({error}); copy or export it again") from error
    return metadata, arrays


def _map_array(mapped: mmap.mmap, data_start: int, entry: Any) -> Array:
    dtype = np.dtype(DTYPES[entry["dtype"]]).newbyteorder("<")
    first, last = entry["data_offsets"]
    shape = entry["shape"]
    if not all(type(number) is int and number >= 0 for number in [first, last, *shape]):
        raise ValueError("sizes and offsets must be whole numbers")
    length = prod(shape)
    if not first <= last <= len(mapped) - data_start or last - first != length * dtype.itemsize:
        raise ValueError(f"an array of shape {shape} claims bytes {first} to {last} of {len(mapped) - data_start}")
    if length == 0:
        return np.zeros(shape, dtype)
    array = np.frombuffer(mapped, dtype, count=length, offset=data_start + first).reshape(shape)
    return array if array.flags.aligned else array.copy()
