"""Rows between the two passes of `encode`: plain append-only files by split, then the table's memory-mapped arrays."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from thresher.data.schema import DenseColumn
from thresher.data.split import SPLITS

BLOCK_ROWS = 262_144


class Staging:
    """Provisional codes, labels, dense values and weights of the rows read so far, one set of files per split."""

    def __init__(self, folder: Path, num_fields: int, num_dense: int, *, weighted: bool) -> None:
        self._folder, self._num_fields, self._num_dense = folder, num_fields, num_dense
        self.split_rows = [0, 0, 0]
        kinds = ["codes", "labels", *(["dense"] if num_dense else []), *(["weights"] if weighted else [])]
        self._files: list[dict[str, BinaryIO]] = []
        for name in SPLITS:
            (folder / name).mkdir()
            self._files.append({kind: (folder / name / f"{kind}.part").open("wb") for kind in kinds})

    @property
    def num_rows(self) -> int:
        return sum(self.split_rows)

    def append(
        self,
        split: NDArray[np.uint8],
        codes: NDArray[np.int32],
        labels: NDArray[np.uint8],
        dense: NDArray[np.float32] | None,
        weights: NDArray[np.float32] | None,
    ) -> None:
        columns: dict[str, NDArray[Any] | None] = {"codes": codes, "labels": labels, "dense": dense, "weights": weights}
        for at, files in enumerate(self._files):
            rows = np.flatnonzero(split == at)
            self.split_rows[at] += len(rows)
            for kind, file in files.items():
                values = columns[kind]
                assert values is not None
                file.write(np.take(values, rows, axis=0).data)

    def close(self) -> None:
        for files in self._files:
            for file in files.values():
                file.close()

    def write_splits(
        self,
        to_ids: Sequence[NDArray[np.int32]],
        dense: Sequence[DenseColumn],
        progress: Callable[[int, int | None, str], None],
    ) -> None:
        """The second pass: codes → feature ids by the table of each field; each finished file replaces its parts."""
        done, total = 0, self.num_rows
        for name, rows in zip(SPLITS, self.split_rows, strict=True):
            folder = self._folder / name
            codes = np.memmap(folder / "codes.part", np.int32, "r", shape=(rows, self._num_fields))
            with (folder / "ids.npy").open("wb") as file:
                _write_header(file, np.int32, (rows, self._num_fields))
                for start in range(0, rows, BLOCK_ROWS):
                    block = np.array(codes[start : start + BLOCK_ROWS])
                    for at, table in enumerate(to_ids):
                        block[:, at] = table[block[:, at]]
                    file.write(block.data)
                    done += len(block)
                    progress(done, total, "encoding")
            del codes
            (folder / "codes.part").unlink()
            _wrap(folder, "labels", np.uint8, (rows,))
            if dense:
                scale = np.array([column.scale for column in dense], np.float32)
                mean = np.array([column.mean for column in dense], np.float32)
                values = np.memmap(folder / "dense.part", np.float32, "r", shape=(rows, len(dense)))
                with (folder / "dense.npy").open("wb") as file:
                    _write_header(file, np.float32, (rows, len(dense)))
                    for start in range(0, rows, BLOCK_ROWS):
                        block = np.nan_to_num((values[start : start + BLOCK_ROWS] - mean) / scale)
                        file.write(np.ascontiguousarray(block, np.float32).data)
                del values
                (folder / "dense.part").unlink()
            if (folder / "weights.part").exists():
                _wrap(folder, "weights", np.float32, (rows,))


def _wrap(folder: Path, kind: str, dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    """Raw values → .npy, in blocks."""
    with (folder / f"{kind}.part").open("rb") as source, (folder / f"{kind}.npy").open("wb") as target:
        _write_header(target, dtype, shape)
        while block := source.read(1 << 24):
            target.write(block)
    (folder / f"{kind}.part").unlink()


def _write_header(file: BinaryIO, dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
