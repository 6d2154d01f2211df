"""The second pass: staged codes → feature ids and the other arrays of the table, split by split, block by block."""

from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from thresher.data.batches.split import SPLITS
from thresher.data.encode.first_pass import FirstPass
from thresher.data.encode.staging import read_bag, read_part
from thresher.data.encode.transforms import scale_dense
from thresher.data.encode.value_coder import replace_codes
from thresher.data.encode.vocabularies import Fitted, bucket_codes


def write_table(
    first: FirstPass, fitted: Fitted, folder: Path, progress: Callable[[int, int | None, str], None]
) -> None:
    """Write all splits. The part files are left for the caller to delete, so that this can be done again."""
    offsets = list(accumulate((v.size for v in fitted.vocabularies), initial=0))
    tables = [ids + np.int32(offset) for ids, offset in zip(fitted.local_ids, offsets, strict=False)]
    singles = [at for at, field in enumerate(fitted.fields) if field.pooling is None]
    bags = [at for at, field in enumerate(fitted.fields) if field.pooling is not None]
    done, total = 0, sum(first.journal.rows)
    for name, rows in zip(SPLITS, first.journal.rows, strict=True):
        where = folder / name
        write_array(where / "ids.npy", np.int32, (rows, len(singles)), _ids(fitted, where, rows, tables, singles))
        write_array(where / "labels.npy", np.uint8, (rows,), read_part(where, "labels", np.uint8, (rows,)))
        if fitted.dense:
            write_array(where / "dense.npy", np.float32, (rows, len(fitted.dense)), _dense(fitted, where, rows))
        if first.plan.weight:
            write_array(where / "weights.npy", np.float32, (rows,), read_part(where, "weights", np.float32, (rows,)))
        for at, field in enumerate(bags):
            _write_bag(where, at, rows, tables[field])
        done += rows
        progress(done, total, "encoding")


def write_array(path: Path, dtype: Any, shape: tuple[int, ...], blocks: Iterator[NDArray[Any]]) -> None:
    """A .npy file from blocks of rows."""
    with path.open("wb") as file:
        _write_header(file, dtype, shape)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype).data)


def _ids(
    fitted: Fitted, where: Path, rows: int, tables: list[NDArray[np.int32]], singles: list[int]
) -> Iterator[NDArray[np.int32]]:
    if not singles:  # every field is multi-valued
        return
    quantiles = [(at, fitted.fields[f]) for at, f in enumerate(singles) if fitted.fields[f].transform == "quantiles"]
    numbers = read_part(where, "numbers", np.float64, (rows, len(quantiles)))
    flat = np.concatenate([tables[field] for field in singles])
    starts = np.array(list(accumulate((len(tables[field]) for field in singles), initial=0))[:-1], np.int64)
    for codes in read_part(where, "codes", np.int32, (rows, len(singles))):
        if quantiles:
            raw = next(numbers)
            for column, (at, field) in enumerate(quantiles):
                codes[:, at] = bucket_codes(raw[:, column], field.edges)
        replace_codes(codes, flat, starts)
        yield codes


def _dense(fitted: Fitted, where: Path, rows: int) -> Iterator[NDArray[np.float32]]:
    for block in read_part(where, "dense", np.float32, (rows, len(fitted.dense))):
        yield scale_dense(fitted.dense, block)


def _write_bag(where: Path, at: int, rows: int, table: NDArray[np.int32]) -> None:
    ends = np.zeros(1, np.int64)

    def offsets() -> Iterator[NDArray[np.int64]]:
        yield np.zeros(1, np.int64)
        for lengths in read_part(where, f"bag_{at}_lengths", np.int32, (rows,)):
            found = ends + np.cumsum(lengths, dtype=np.int64)
            ends[0] = found[-1]
            yield found

    write_array(where / f"bag_{at}_offsets.npy", np.int64, (rows + 1,), offsets())
    values = (table[codes] for codes, _ in read_bag(where, at, rows))
    write_array(where / f"bag_{at}_values.npy", np.int32, (int(ends[0]),), values)


def _write_header(file: BinaryIO, dtype: Any, shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
