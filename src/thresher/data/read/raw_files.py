"""CSV, TSV, Parquet → chunks of raw columns with their place in the file. Knows files, not what columns mean.

Text columns stay text: no type is guessed here, so a zip code keeps its leading zero.
"""

import csv
import glob
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import polars as pl

from thresher.data.batches.split import SplitName
from thresher.data.read.raw_blocks import BLOCK_BYTES, IF_LATIN_1, read_blocks
from thresher.data.read.raw_rows import parse_rows
from thresher.data.schema import FileFormat
from thresher.errors import DataError, FileFormatError

CELL_BYTES = 8
"""The least a cell of a Parquet file counts for: coded it takes that much, however narrow its type."""
BadRows = Literal["error", "skip"]
_COMPRESSIONS = (".gz", ".gzip", ".zst", ".zstd")


@dataclass(frozen=True)
class RawChunk:
    """Consecutive rows of one file. `line_of(row)` is the line (Parquet: the row, from 1) of a row of the frame."""

    frame: pl.DataFrame
    file: Path | None = None
    line_of: Callable[[int], int] | None = None
    skipped: tuple[tuple[int, str], ...] = ()
    """Line and reason of the bad rows that were left out."""
    position: Mapping[str, int] | None = None
    """Where the next chunk begins, for the source's `chunks`."""
    split: SplitName | None = None
    """The split of all these rows, when the source decides it."""
    bytes_done: int | None = None
    """Bytes of the source read so far, where that can be told."""

    def place(self, row: int) -> int | None:
        return None if self.line_of is None else self.line_of(row)

    def error(self, message: str, row: int, column: str | None = None) -> DataError:
        return DataError(message, file=self.file, line=self.place(row), column=column)


def expand_paths(paths: Sequence[str | Path]) -> tuple[Path, ...]:
    """Files and globs → existing files, globs in name order."""
    found: list[Path] = []
    for path in paths:
        if any(sign in str(path) for sign in "*?[") and not Path(path).exists():
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
            raise DataError("is a folder; name the files in it, for example with a glob: 'folder/*.csv'", file=file)
    if not found:
        raise DataError("no input file was named")
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
        what = "a CR stands in the midst of the line; lines must end with LF or CRLF" if "\r" in line else str(error)
        raise FileFormatError(f"the column names cannot be read: {what}", file=path, line=1) from error
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
    position: Mapping[str, int] | None = None,
) -> Iterator[RawChunk]:
    """All rows of one file, or those from a chunk's `position` on; `file_format` must be resolved.

    A chunk holds about `block_bytes` of raw values, whatever the kind of file.
    Text files give String columns without nulls.
    """
    if is_parquet(path):
        yield from _read_parquet(path, block_bytes, 0 if position is None else position["row"])
        return
    awaiting_header = header and position is None
    start = dict(position or {"offset": 0, "line": 1})
    for block in read_blocks(path, quote=file_format.quote, block_bytes=block_bytes, **start):
        data, line = block.data, block.first_line
        if awaiting_header and data.strip(b"\r\n"):
            header_end = _header_end(data, file_format)
            line += data.count(b"\n", 0, header_end)
            data, awaiting_header = data[header_end:], False
        if file_format.encoding != "utf-8":
            data = _decode(data, path, file_format).encode()
        frame, lines, skipped = parse_rows(data, line, file_format, path, skip=bad_rows == "skip")
        position = {"offset": block.end_offset, "line": block.end_line}
        yield RawChunk(frame, path, lines.__getitem__, tuple(skipped), position)


def _header_end(data: bytes, file_format: FileFormat) -> int:
    """Index after the line of column names, blank lines before it included."""
    at = len(data) - len(data.lstrip(b"\r\n"))
    while (end := data.find(b"\n", at)) >= 0:
        if not file_format.quote or data.count(file_format.quote.encode(), 0, end) % 2 == 0:
            return end + 1
        at = end + 1
    return len(data)


def _read_parquet(path: Path, block_bytes: int, start: int) -> Iterator[RawChunk]:
    done = start
    try:
        rows = pl.scan_parquet(path, glob=False).slice(start)
        for frame in rows.collect_batches(chunk_size=_parquet_chunk_rows(rows, block_bytes), maintain_order=True):
            lines = range(done + 1, done + 1 + len(frame))
            done += len(frame)
            yield RawChunk(frame, path, lines.__getitem__, position={"row": done})
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"the Parquet file cannot be read: {error}", file=path) from error


def _parquet_chunk_rows(rows: pl.LazyFrame, block_bytes: int) -> int:
    """How many rows make a block, judged by the first ones."""
    first = rows.head(1000).collect()
    row_bytes = max(1, CELL_BYTES * first.width, int(first.estimated_size() / max(len(first), 1)))
    return max(1, block_bytes // row_bytes)


def _decode(data: bytes, path: Path, file_format: FileFormat) -> str:
    try:
        return data.decode(file_format.encoding)
    except UnicodeDecodeError as error:
        raise FileFormatError(f"the column names are not UTF-8; {IF_LATIN_1}", file=path, line=1) from error


def _guess_delimiter(path: Path, line: str) -> str:
    suffix = next((s for s in reversed([x.lower() for x in path.suffixes]) if s not in _COMPRESSIONS), "")
    if suffix in (".csv", ".tsv"):
        return "," if suffix == ".csv" else "\t"
    return max("\t,;|", key=line.count)
