"""Rows between the two passes: append-only files by split, cut back to a known length when a killed run goes on."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from thresher.data.batches.split import SPLITS
from thresher.errors import FormatError

BLOCK_ROWS = 1 << 17
Columns = Mapping[str, NDArray[Any]]
"""Arrays by file name: `codes`, `labels`, `numbers`, `dense`, `weights`, `bag_<k>_lengths`; one entry per row each."""


class Staging:
    """One set of `<name>.part` files per split; all rows of a file have the same number of bytes.

    Bags are two files: `bag_<k>_lengths` has a number per row, `bag_<k>_codes` as many codes as these add up to.
    """

    def __init__(
        self, folder: Path, row_bytes: Mapping[str, int], num_bags: int, rows: list[int] | None = None
    ) -> None:
        self._folder, self._num_bags = folder, num_bags
        self.rows = rows or [0, 0, 0]
        self._files: list[dict[str, BinaryIO]] = []
        by_row = {**row_bytes, **{f"bag_{at}_lengths": 4 for at in range(num_bags)}}
        names = [*by_row, *(f"bag_{at}_codes" for at in range(num_bags))]
        for split, count in zip(SPLITS, self.rows, strict=True):
            (folder / split).mkdir(exist_ok=True)
            files: dict[str, BinaryIO] = {name: (folder / split / f"{name}.part").open("ab") for name in names}
            self._files.append(files)
            for name, num_bytes in by_row.items():
                _cut(files[name], count * num_bytes)
            for at in range(num_bags):
                lengths = read_part(folder / split, f"bag_{at}_lengths", np.int32, (count,))
                _cut(files[f"bag_{at}_codes"], sum(int(block.sum()) for block in lengths) * 4)

    def append(self, split: NDArray[np.uint8], columns: Columns, bags: list[tuple[NDArray[Any], NDArray[Any]]]) -> None:
        """Add rows; `bags` are (codes, lengths) per bag field."""
        for at, files in enumerate(self._files):
            rows = np.flatnonzero(split == at)
            self.rows[at] += len(rows)
            for name, values in columns.items():
                files[name].write(np.take(values, rows, axis=0).data)
            for bag, (codes, lengths) in enumerate(bags):
                files[f"bag_{bag}_lengths"].write(lengths[rows].astype(np.int32).data)
                chosen = np.repeat(split == at, lengths)
                files[f"bag_{bag}_codes"].write(np.ascontiguousarray(codes[chosen]).data)

    def flush(self) -> None:
        for files in self._files:
            for file in files.values():
                file.flush()

    def close(self) -> None:
        for files in self._files:
            for file in files.values():
                file.close()


def read_part(folder: Path, name: str, dtype: Any, shape: tuple[int, ...]) -> Iterator[NDArray[Any]]:
    """The rows of a part file in blocks; read, not mapped, for mapped pages would count as memory."""
    rows, width = shape[0], int(np.prod(shape[1:]))
    if not width:
        return
    with (folder / f"{name}.part").open("rb") as file:
        for start in range(0, rows, BLOCK_ROWS):
            many = min(BLOCK_ROWS, rows - start)
            yield np.fromfile(file, dtype, many * width).reshape(many, *shape[1:])


def read_bag(folder: Path, at: int, rows: int) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """(codes, lengths) of a bag field in blocks of rows."""
    with (folder / f"bag_{at}_codes.part").open("rb") as file:
        for lengths in read_part(folder, f"bag_{at}_lengths", np.int32, (rows,)):
            yield np.fromfile(file, np.int32, int(lengths.sum())), lengths


def _cut(file: BinaryIO, size: int) -> None:
    if file.tell() < size:
        raise FormatError(f"{file.name}: shorter than its journal says; delete the folder and encode again")
    file.truncate(size)
    file.seek(size)
