"""A sample of rows spread over whole files, to guess columns and to preview an encoding.

A file may be sorted, so its first rows say little. Plain text is read at evenly spaced positions, Parquet in evenly
spaced slices. Compressed text can only be read from its start, and is read up to a limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.config import BadRows
from thresher.data.read.column_values import as_text
from thresher.data.read.raw_files import RawChunk, compression_of, is_parquet, parse_block, read_chunks, resolve_format
from thresher.data.schema import FileFormat
from thresher.errors import DataError

SAMPLE_ROWS = 10_000
MAX_FILES = 20
TEXT_POSITIONS, PARQUET_SLICES = 100, 20
WHOLE_BYTES = 1 << 22  # text up to this size is read completely
COMPRESSED_BYTES = 1 << 26  # decompressed text that is read of a compressed file
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Sample:
    """Rows of one or several files, in their order."""

    frame: pl.DataFrame
    file: Path | None  # the first file; None if the rows come from no file
    num_rows: int | None  # of all files, estimated unless the sample is complete; None if unknown
    complete: bool  # whether these are all rows
    skipped: tuple[tuple[int, str], ...] = ()  # (line, reason) of bad rows at the start of the first file

    @property
    def description(self) -> str:
        """Which rows these are: `10,000 of about 1,200,000 rows`; empty if they are all rows."""
        if self.complete:
            return ""
        return f"{len(self.frame):,}{'' if self.num_rows is None else f' of about {self.num_rows:,}'} rows"


def sample_rows(
    paths: Sequence[Path],
    file_format: FileFormat,
    *,
    first_format: FileFormat | None = None,
    num_rows: int = SAMPLE_ROWS,
    bad_rows: BadRows = "error",
) -> Sample:
    """At most `num_rows` rows of all files; columns that the first file does not have are left out.

    A bad row at the start of a file raises, or is skipped; other bad rows are left out.

    Args:
        file_format: as in the settings; what is not set there is detected in each file.
        first_format: of the first file, if it was already detected.
    """
    chosen = _spread(paths, MAX_FILES)
    rows_each, header = -(-num_rows // len(chosen)), not file_format.columns
    parts = []
    for path in chosen:
        resolved = resolve_format(path, file_format) if first_format is None or path != paths[0] else first_format
        parts.append(_sample_file(path, resolved, header, rows_each, bad_rows))
    first = parts[0]
    if not any(len(part.frame) for part in parts):
        raise DataError("there are no rows", file=first.file)
    counts = [part.num_rows for part in parts]
    known = sum(count for count in counts if count is not None)
    total = None if None in counts else known * len(paths) // len(chosen)
    frame = _concat([part.frame for part in parts])
    complete = len(chosen) == len(paths) and all(part.complete for part in parts) and len(frame) <= num_rows
    return Sample(_thin(frame, num_rows), first.file, total, complete, first.skipped)


def _sample_file(path: Path, file_format: FileFormat, header: bool, num_rows: int, bad_rows: BadRows) -> Sample:
    if is_parquet(path):
        return _sample_parquet(path, num_rows)
    compressed, size = bool(compression_of(path)), path.stat().st_size
    block_bytes = _BLOCK_BYTES if compressed or size > WHOLE_BYTES else WHOLE_BYTES
    chunks = read_chunks(path, file_format, header=header, block_bytes=block_bytes, bad_rows=bad_rows)
    if not compressed and size > WHOLE_BYTES:
        return _sample_positions(path, file_format, next(chunks), num_rows)
    rows, skipped, done = _RandomRows(2 * num_rows), list[tuple[int, str]](), 0
    for chunk in chunks if not compressed else islice(chunks, COMPRESSED_BYTES // _BLOCK_BYTES):
        rows.add(chunk.frame)
        skipped += chunk.skipped
        done += 1
    complete = not compressed or done < COMPRESSED_BYTES // _BLOCK_BYTES
    frame = rows.frame(file_format.columns)
    return Sample(frame, path, rows.num_seen if complete else None, complete and rows.share == 1, tuple(skipped))


def _sample_positions(path: Path, file_format: FileFormat, head: RawChunk, num_rows: int) -> Sample:
    """The first rows of a plain text file, and as many at each of several positions."""
    size, rows_each = path.stat().st_size, -(-num_rows // TEXT_POSITIONS)
    frames, row_bytes = [head.frame.head(rows_each)], max(1, _BLOCK_BYTES // max(len(head.frame), 1))
    read_bytes = read_rows = 0
    with path.open("rb") as stream:
        for at in range(1, TEXT_POSITIONS):
            stream.seek(size * at // TEXT_POSITIONS)
            data = stream.read(2 * row_bytes * (rows_each + 2))
            lines = data[data.find(b"\n") + 1 : data.rfind(b"\n") + 1].splitlines(keepends=True)[:rows_each]
            frame, _, _ = parse_block(b"".join(lines), 1, file_format, path, skip=True)
            if file_format.quote and file_format.quote.encode() in data:
                # the position may lie inside a quoted value; the rest of it is no row
                frame = frame.filter(~pl.any_horizontal(pl.all().str.contains(file_format.quote, literal=True)))
            frames.append(frame)
            read_bytes, read_rows = read_bytes + sum(map(len, lines)), read_rows + len(frame)
    total = round(size * read_rows / read_bytes) if read_bytes else None
    return Sample(pl.concat(frames), path, total, False, head.skipped)


def _sample_parquet(path: Path, num_rows: int) -> Sample:
    try:
        rows = pl.scan_parquet(path, glob=False)
        total = int(rows.select(pl.len()).collect().item())
        if total <= num_rows:
            return Sample(rows.collect(), path, total, True)
        each = -(-num_rows // PARQUET_SLICES)
        starts = [(total - each) * at // (PARQUET_SLICES - 1) for at in range(PARQUET_SLICES)]
        frames = [rows.slice(start, each).collect() for start in starts]
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"the Parquet file cannot be read: {error}", file=path) from error
    return Sample(pl.concat(frames), path, total, False)


class _RandomRows:
    """At most `limit` rows of a stream of frames, each with the same chance, in their order.

    Not every n-th row: labels may alternate, and then all of these would be equal.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self.share, self.num_seen = limit, 1.0, 0
        self._generator = np.random.default_rng(0)
        self._held: list[tuple[pl.DataFrame, NDArray[np.float64]]] = []

    def add(self, frame: pl.DataFrame) -> None:
        self._held.append(_below(self.share, frame, self._generator.random(len(frame))))
        self.num_seen += len(frame)
        while sum(len(frame) for frame, _ in self._held) > self._limit:
            self.share /= 2
            self._held = [_below(self.share, *held) for held in self._held]

    def frame(self, columns: Sequence[str]) -> pl.DataFrame:
        empty = pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
        return pl.concat([frame for frame, _ in self._held]) if self._held else empty


def _below(share: float, frame: pl.DataFrame, draws: NDArray[np.float64]) -> tuple[pl.DataFrame, NDArray[np.float64]]:
    kept = draws < share
    return frame.filter(kept), draws[kept]


def _concat(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Rows of several files. A column with another type than in the first file becomes text, an absent one is null."""
    first, *others = frames
    for name in first.columns:
        if any(name in frame.columns and frame.schema[name] != first.schema[name] for frame in others):
            frames = [frame.with_columns(as_text(frame[name])) if name in frame.columns else frame for frame in frames]
    return pl.concat(frames, how="diagonal").select(first.columns)


def _thin(frame: pl.DataFrame, limit: int) -> pl.DataFrame:
    """At most `limit` random rows, in their order."""
    if len(frame) <= limit:
        return frame
    return frame[np.sort(np.random.default_rng(0).choice(len(frame), limit, replace=False))]


def _spread(paths: Sequence[Path], limit: int) -> list[Path]:
    """At most `limit` evenly spaced paths, with the first and the last."""
    if len(paths) <= limit:
        return list(paths)
    return [paths[at * (len(paths) - 1) // (limit - 1)] for at in range(limit)]
