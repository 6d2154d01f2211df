"""A compact table as one safetensors file: `save_table` writes it, `load_table` maps it into memory.

The header's metadata holds the format's name and version and the layout as JSON. The reader is our own few lines
(length, JSON header, arrays at their offsets) because it must map instead of copy and must refuse damaged files.
"""

import json
import mmap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from thresher.compact.layouts import Layout
from thresher.errors import FormatError
from thresher.files import replacing_file

if TYPE_CHECKING:
    from thresher.compact.table import CompactTable

FORMAT = "thresher-compact-table"
VERSION = 1
DTYPES = {"F32": np.float32, "U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "U64": np.uint64}
MAX_HEADER_BYTES = 1_000_000


def save_table(table: "CompactTable", path: Path) -> None:
    metadata = {"format": FORMAT, "version": str(VERSION), "layout": json.dumps(asdict(table.layout))}
    with replacing_file(path) as beside:
        save_file({name: np.ascontiguousarray(array) for name, array in table.arrays.items()}, beside, metadata)


def load_table(path: Path) -> tuple[Layout, dict[str, npt.NDArray[Any]]]:
    metadata, arrays = map_safetensors(path)
    if metadata.get("format") != FORMAT:
        raise FormatError(f"{path}: not a compact table; its format is {metadata.get('format')!r}, not {FORMAT!r}")
    if metadata.get("version") != str(VERSION):
        raise FormatError(
            f"{path}: a compact table of version {metadata.get('version')!r}; "
            f"this release reads version {VERSION}; upgrade thresher"
        )
    try:
        layout = Layout(**json.loads(metadata["layout"]))
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"{path}: the layout in the header cannot be read ({error}); write the table again"
        ) from error
    return layout, arrays


def map_safetensors(path: Path) -> tuple[dict[str, str], dict[str, npt.NDArray[Any]]]:
    """Metadata and arrays of a safetensors file, mapped read-only; nothing is read but the header."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError as error:  # an empty file cannot be mapped
        raise FormatError(f"{path}: the file is empty; write it again") from error
    header_bytes = int.from_bytes(mapped[:8], "little")
    if len(mapped) < 8 or header_bytes > min(MAX_HEADER_BYTES, len(mapped) - 8):
        raise FormatError(f"{path}: the header is cut off or absurdly long; this is not a whole safetensors file")
    try:
        header = json.loads(mapped[8 : 8 + header_bytes])
        metadata = dict(header.pop("__metadata__", {}))
        arrays = {name: _map_array(mapped, 8 + header_bytes, entry) for name, entry in header.items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise FormatError(f"{path}: the header is damaged ({error}); write the file again") from error
    return metadata, arrays


def _map_array(mapped: mmap.mmap, data_start: int, entry: dict[str, Any]) -> npt.NDArray[Any]:
    dtype = np.dtype(DTYPES[entry["dtype"]]).newbyteorder("<")
    first, last = entry["data_offsets"]
    (length,) = entry["shape"]
    if not 0 <= first <= last <= len(mapped) - data_start or last - first != length * dtype.itemsize:
        raise ValueError(f"an array of {length} values claims bytes {first} to {last} of {len(mapped) - data_start}")
    array = np.frombuffer(mapped, dtype, count=length, offset=data_start + first)
    return array if array.flags.aligned else array.copy()
