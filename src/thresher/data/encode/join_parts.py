"""join_parts: the arrays of encoded parts, one after the other, as one `EncodedTable`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thresher.data.encode.codes_to_ids import write_array
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.schema import SPLITS

BLOCK_ROWS = 1 << 20
SMALL_FILE = 1 << 20  # read at once: an empty array cannot be memory-mapped


def join_parts(parts: Sequence[Path], folder: Path, encoder: RowEncoder) -> None:
    """Write the arrays of all splits, the feature counts, the schema and the vocabularies to `folder`."""
    encoder.save(folder)
    np.save(folder / "feature_counts.npy", np.sum([np.load(part / "feature_counts.npy") for part in parts], axis=0))
    for split in SPLITS:
        (folder / split).mkdir()
        for name in sorted(path.name for path in (parts[0] / split).glob("*.npy")):
            arrays = [_load(part / split / name) for part in parts]
            is_offsets = name.endswith("_offsets.npy")
            rows = sum(len(array) for array in arrays) - (len(arrays) - 1 if is_offsets else 0)
            blocks = _offsets(arrays) if is_offsets else _blocks(arrays)
            write_array(folder / split / name, arrays[0].dtype, (rows, *arrays[0].shape[1:]), blocks)


def _load(path: Path) -> NDArray[Any]:
    array: NDArray[Any] = np.load(path, mmap_mode="r" if path.stat().st_size > SMALL_FILE else None)
    return array


def _blocks(arrays: Sequence[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    for array in arrays:
        for start in range(0, len(array), BLOCK_ROWS):
            yield array[start : start + BLOCK_ROWS]


def _offsets(arrays: Sequence[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Offsets of all rows; each part's start at the end of the part before it."""
    yield np.zeros(1, np.int64)
    end = 0
    for array in arrays:
        yield array[1:] + end
        end += int(array[-1])
