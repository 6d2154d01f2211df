"""CSV, TSV and Parquet files → chunks of raw columns, with line numbers for error messages.

The columns of text files stay text: a zip code keeps its leading zero.
"""

import csv
import glob
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from thresher.data.config import BadRows
from thresher.data.read.text_blocks import BLOCK_BYTES, LATIN_1_HINT, compression_of, read_blocks
from thresher.data.read.text_rows import parse_rows
from thresher.data.schema import FileFormat, SplitName
from thresher.errors import DataError, FileFormatError

CELL_BYTES = 8
"""Minimum size of a Parquet cell when counting the bytes of a chunk: encoded it takes this much."""
_COMPRESSIONS = (".gz", ".gzip", ".zst", ".zstd")


@dataclass(frozen=True)
class RawChunk:
    """Consecutive rows of one file."""

    frame: pl.DataFrame
    file: Path | None = None
    line_of: Callable[[int], int] | None = None
    """The line number (Parquet: row number, from 1) of a row of the frame."""
    skipped: tuple[tuple[int, str], ...] = ()
    """(line, reason) of the bad rows that were skipped."""
    split: SplitName | None = None
    """The split of all these rows, if the source decides it."""
    bytes_done: int | None = None
    """Bytes of the source read so far, for the progress display; None if unknown."""

    def line(self, row: int) -> int | None:
        return None if self.line_of is None else self.line_of(row)


def expand_paths(paths: Sequence[str | Path]) -> tuple[Path, ...]:
    """Files and globs → existing files; the matches of a glob are sorted by name."""
    found: list[Path] = []
    for path in paths:
        if any(char in str(path) for char in "*?[") and not Path(path).exists():
            matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - the pattern may be absolute
            if not matches:
                raise DataError("no file matches this pattern", file=path)
            found += [Path(match) for match in matches]
        else:
            found.append(Path(path))
    for file in found:
        if not file.exists():
            raise DataError("no such file" + ("" if file.is_absolute() else f" in {Path.cwd()}"), file=file)
        if file.is_dir():
            raise DataError("is a folder; give the files in it, for example as a glob: 'folder/*.csv'", file=file)
    if not found:
        raise DataError("no input file was given")
    return tuple(found)


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def resolve_format(path: Path, file_format: FileFormat) -> FileFormat:
    """Fill in the delimiter and the column names from the file itself."""
    if is_parquet(path):
        try:
            return replace(file_format, columns=tuple(pl.scan_parquet(path, glob=False).collect_schema()))
        except (pl.exceptions.PolarsError, OSError) as error:
            raise DataError(f"not a readable Parquet file: {error}", file=path) from error
    first = next(read_blocks(path, quote=file_format.quote, block_bytes=1 << 16), None)
    head = b"" if first is None else first.data.lstrip(b"\r\n")
    if not head:
        raise DataError("the file is empty", file=path, line=1)
    line = _decode(head[: head.find(b"\n") % len(head) + 1], path, file_format).strip("\r\n")
    delimiter = file_format.delimiter or _guess_delimiter(path, line)
    if file_format.columns:
        return replace(file_format, delimiter=delimiter)
    quoting: Any = {"quotechar": file_format.quote} if file_format.quote else {"quoting": csv.QUOTE_NONE}
    try:
        columns = tuple(next(csv.reader([line], delimiter=delimiter, **quoting)))
    except csv.Error as error:
        reason = "there is a CR inside the line; lines must end with LF or CRLF" if "\r" in line else str(error)
        raise FileFormatError(f"the column names cannot be read: {reason}", file=path, line=1) from error
    for name in columns:
        if columns.count(name) > 1:
            raise DataError(f"two columns are called {name!r}; rename one", file=path, line=1)
    return replace(file_format, delimiter=delimiter, columns=columns)


def read_chunks(
    path: Path,
    file_format: FileFormat,
    *,
    header: bool = True,
    block_bytes: int = BLOCK_BYTES,
    bad_rows: BadRows = "error",
) -> Iterator[RawChunk]:
    """All rows of one file in chunks of about `block_bytes`; `file_format` must come from `resolve_format`.

    The columns of text files are String without nulls.
    """
    if is_parquet(path):
        yield from _read_parquet(path, block_bytes)
        return
    plain, awaiting_header = not compression_of(path), header
    for block in read_blocks(path, quote=file_format.quote, block_bytes=block_bytes):
        data, line = block.data, block.first_line
        if awaiting_header and data.strip(b"\r\n"):
            header_end = _header_end(data, file_format)
            line += data.count(b"\n", 0, header_end)
            data, awaiting_header = data[header_end:], False
        if file_format.encoding != "utf-8":
            data = _decode(data, path, file_format).encode()
        frame, lines, skipped = parse_rows(data, line, file_format, path, skip=bad_rows == "skip")
        bytes_done = block.end_offset if plain else None
        yield RawChunk(frame, path, lines.__getitem__, tuple(skipped), bytes_done=bytes_done)


def _header_end(data: bytes, file_format: FileFormat) -> int:
    """Index after the header line and the blank lines before it."""
    at = len(data) - len(data.lstrip(b"\r\n"))
    while (end := data.find(b"\n", at)) >= 0:
        if not file_format.quote or data.count(file_format.quote.encode(), 0, end) % 2 == 0:
            return end + 1
        at = end + 1
    return len(data)


def _read_parquet(path: Path, block_bytes: int) -> Iterator[RawChunk]:
    done = 0
    try:
        rows = pl.scan_parquet(path, glob=False)
        for frame in rows.collect_batches(chunk_size=_parquet_chunk_rows(rows, block_bytes), maintain_order=True):
            lines = range(done + 1, done + 1 + len(frame))
            done += len(frame)
            yield RawChunk(frame, path, lines.__getitem__)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"the Parquet file cannot be read: {error}", file=path) from error


def _parquet_chunk_rows(rows: pl.LazyFrame, block_bytes: int) -> int:
    """Rows of a chunk of `block_bytes`, estimated from the first rows."""
    first = rows.head(1000).collect()
    row_bytes = max(1, CELL_BYTES * first.width, int(first.estimated_size() / max(len(first), 1)))
    return max(1, block_bytes // row_bytes)


def _decode(data: bytes, path: Path, file_format: FileFormat) -> str:
    try:
        return data.decode(file_format.encoding)
    except UnicodeDecodeError as error:
        raise FileFormatError(f"the column names are not UTF-8; {LATIN_1_HINT}", file=path, line=1) from error


def _guess_delimiter(path: Path, line: str) -> str:
    suffix = next((s for s in reversed([x.lower() for x in path.suffixes]) if s not in _COMPRESSIONS), "")
    if suffix in (".csv", ".tsv"):
        return "," if suffix == ".csv" else "\t"
    return max("\t,;|", key=line.count)
