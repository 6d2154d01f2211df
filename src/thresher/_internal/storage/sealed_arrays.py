"""Single arrays of a run as `.npy` files with a checksum behind the data, compared when they are opened.

numpy reads such a file as any other: what follows the data is not part of the array. Files of earlier releases have no
checksum and are accepted.
"""

import hashlib
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thresher._internal.storage.documents import check_regular, damaged_file
from thresher._internal.storage.files import atomic_file

MARK = b"thresher-sha256:"
SEAL_BYTES = len(MARK) + 32


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array atomically."""
    with atomic_file(path) as temporary, temporary.open("w+b") as file:
        np.save(file, array, allow_pickle=False)
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            seal = _seal(path, content, len(content))
        file.write(seal)


def load_array(path: Path, remedy: str) -> NDArray[np.float32]:
    """Map a one-dimensional float32 array; a damaged file, or one of another type, is a `FormatError`."""
    check_regular(path)
    with damaged_file(str(path), remedy):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.memmap) or array.dtype != np.float32 or array.ndim != 1:
            raise ValueError("expected float32 numbers in one dimension")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            end = array.offset + array.nbytes
            has_seal = len(content) != end or content[-SEAL_BYTES:].startswith(MARK)
            if has_seal and content[end : end + SEAL_BYTES + 1] != _seal(path, content, end):
                raise ValueError("its checksum differs")
    return array


def _seal(path: Path, content: mmap.mmap, end: int) -> bytes:
    """The checksum of the first bytes and of the file's name: two files with exchanged contents are damaged."""
    digest = hashlib.sha256(path.name.encode())
    with memoryview(content) as view, view[:end] as part:
        digest.update(part)
    return MARK + digest.digest()
