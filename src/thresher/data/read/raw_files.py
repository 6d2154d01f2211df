"""CSV, TSV and Parquet files → chunks of raw columns, with line numbers for error messages.

The columns of text files are String without nulls: a zip code keeps its leading zero. Files are read in blocks of
complete lines, never as a whole; they may be compressed with gzip or zstd.
"""

import csv
import glob
import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from thresher._internal.forked import check_polars
from thresher.data.config import BadRows
from thresher.data.read.text_rows import NO_QUOTE, QUOTE_HINT, Parsed, count_char, inside_quotes, not_utf_8, parse_rows
from thresher.data.schema import FileFormat, SplitName
from thresher.errors import DataError, FileFormatError

CELL_BYTES = 8  # minimum size of a Parquet cell when counting the bytes of a chunk: encoded it takes this much
BLOCK_BYTES = 1 << 24
MAX_LINE_BYTES = 1 << 28
LONG_LINE_BYTES = 1 << 20  # a first line longer than this is checked for line ends other than LF
_GZIP, _ZSTD = (".gz", ".gzip"), (".zst", ".zstd")
_BOM, _WIDE_BOMS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
_UNSUPPORTED = {
    b"PK\x03\x04": "is a zip archive; unpack it first",
    b"\xfd7zXZ": "is compressed with xz; decompress it, or use gzip or zstd",
    b"PAR1\x15": "is a Parquet file; its name must end with .parquet",
}


@dataclass(frozen=True)
class RawChunk:
    """Consecutive rows of one file."""

    frame: pl.DataFrame
    file: Path | None = None
    line_of: Callable[[int], int] | None = None  # the line number (Parquet: row number, from 1) of a row of the frame
    skipped: tuple[tuple[int, str], ...] = ()  # (line, reason) of the bad rows that were skipped
    split: SplitName | None = None  # the split of all these rows, if the source decides it
    bytes_done: int | None = None  # bytes of the source read so far, for the progress display

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
        if not file.is_file():  # a pipe cannot be read twice, and a device may never end
            raise DataError("is a named pipe or a device; write its rows to a file and give that", file=file)
    if not found:
        raise DataError("no input file was given")
    return tuple(found)


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def resolve_format(path: Path, file_format: FileFormat) -> FileFormat:
    """Fill in the delimiter and the column names from the file itself."""
    check_polars(f"reading {path}")
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
    """All rows of one file in chunks of about `block_bytes`; `file_format` must come from `resolve_format`."""
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
        frame, lines, skipped = parse_block(data, line, file_format, path, skip=bad_rows == "skip")
        bytes_done = block.end_offset if plain else None
        yield RawChunk(frame, path, lines.__getitem__, tuple(skipped), bytes_done=bytes_done)


def parse_block(data: bytes, first_line: int, file_format: FileFormat, path: Path, *, skip: bool) -> Parsed:
    """The rows of complete lines in the encoding of the file. Without `skip` the first bad row raises."""
    if file_format.encoding != "utf-8":
        data = _decode(data, path, file_format).encode()
    return parse_rows(data, first_line, file_format, path, skip=skip)


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
        first = rows.head(1000).collect()
        row_bytes = max(1, CELL_BYTES * first.width, int(first.estimated_size() / max(len(first), 1)))
        for frame in rows.collect_batches(chunk_size=max(1, block_bytes // row_bytes), maintain_order=True):
            lines = range(done + 1, done + 1 + len(frame))
            done += len(frame)
            yield RawChunk(frame, path, lines.__getitem__)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"the Parquet file cannot be read: {error}", file=path) from error


def _decode(data: bytes, path: Path, file_format: FileFormat) -> str:
    try:
        return data.decode(file_format.encoding)
    except UnicodeDecodeError as error:
        raise not_utf_8(path, 1, "the column names are not UTF-8") from error


def _guess_delimiter(path: Path, line: str) -> str:
    suffix = next((s for s in reversed([x.lower() for x in path.suffixes]) if s not in _GZIP + _ZSTD), "")
    if suffix in (".csv", ".tsv"):
        return "," if suffix == ".csv" else "\t"
    return max("\t,;|", key=line.count)


@dataclass(frozen=True)
class Block:
    """Complete lines of one file. A line break inside quotes does not end a line."""

    data: bytes
    first_line: int  # 1 is the first line of the file
    end_offset: int  # where the next block starts, in decompressed bytes


def read_blocks(path: Path, *, quote: str = '"', block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The file's lines in order, in blocks of about `block_bytes`."""
    carry, offset, line, at_start, in_first_line = b"", 0, 1, True, True
    for piece in _pieces(path, block_bytes):
        if at_start and piece.startswith(_WIDE_BOMS):
            raise DataError("the file is UTF-16; save it as UTF-8", file=path, line=1)
        if at_start and piece.startswith(_BOM):
            offset += len(_BOM)
            piece = piece[len(_BOM) :]
        at_start = False
        data = carry + piece if carry else piece
        cut = _last_line_end(data, quote)
        if in_first_line and (cut or len(data) > LONG_LINE_BYTES):
            _check_line_ends(data, quote, path)
            in_first_line = False
        if cut == 0 and len(data) > MAX_LINE_BYTES:
            problem = f"no end of line within {len(data):,} bytes; if a quote is left open here, {QUOTE_HINT}"
            raise FileFormatError(problem, file=path, line=line, settings=NO_QUOTE)
        carry = data[cut:]
        if cut:
            offset += cut
            yield Block(data[:cut], line, offset)
            line += count_char(data, "\n", cut)
    if carry:
        if in_first_line:
            _check_line_ends(carry, quote, path)
        yield Block(carry, line, offset + len(carry))


def compression_of(path: Path) -> Literal["", "gzip", "zstd"]:
    """The compression of a file, by its first bytes, else by its name."""
    try:
        with path.open("rb") as stream:
            head = stream.read(8)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=path) from error
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return "zstd"
    for start, problem in _UNSUPPORTED.items():
        if head.startswith(start):
            raise DataError(problem, file=path)
    name = path.name.lower()
    return "zstd" if name.endswith(_ZSTD) else "gzip" if name.endswith(_GZIP) else ""


def _check_line_ends(data: bytes, quote: str, path: Path) -> None:
    """Raise if lines end with CR alone: the whole file would be read as one line."""
    line = data.rstrip(b"\r\n")
    if b"\r" not in line or b"\n" in line:
        return
    if quote:
        mark = re.escape(quote.encode())
        line = re.sub(mark + b"[^" + mark + b"]*" + mark, b"", line)
    if b"\r" in line:
        command = f"tr '\\r' '\\n' < {path.name} > new_{path.name}"
        raise DataError(f"lines end with CR alone; convert them to LF, for example: {command}", file=path, line=1)


def _last_line_end(data: bytes, quote: str) -> int:
    """Index just after the last line break that is not inside quotes; 0 if there is none."""
    if not quote or quote.encode() not in data:
        return data.rfind(b"\n") + 1
    codes = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero((codes == ord("\n")) & ~inside_quotes(codes, quote))
    return int(ends[-1]) + 1 if len(ends) else 0


def _pieces(path: Path, block_bytes: int) -> Iterator[bytes]:
    """The file's decompressed bytes."""
    compression = compression_of(path)
    if compression == "zstd":
        yield from _zstd_pieces(path, block_bytes)
        return
    try:
        with gzip.open(path) if compression == "gzip" else path.open("rb") as stream:
            while piece := stream.read(block_bytes):
                yield piece
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        problem = f"the gzip file is truncated or damaged ({error}); download it again and check it with `gzip -t`"
        raise DataError(problem, file=path) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=path) from error


def _zstd_pieces(path: Path, block_bytes: int) -> Iterator[bytes]:
    # The standard library of Python 3.11 has no zstd; polars decompresses it line by line in its streaming engine.
    try:
        lines = pl.scan_lines(path)
        first = lines.head(100).collect(engine="streaming").to_series().str.len_bytes()
        line_bytes = 1 + (first.sum() or 0) / max(len(first), 1)
        batch_lines = max(1, min(50_000, int(block_bytes / (8 * line_bytes))))  # longer lines later still fit a block
        held = b""
        for frame in lines.collect_batches(chunk_size=batch_lines, maintain_order=True):
            if not len(frame):
                continue
            held += (frame.to_series().str.join("\n")[0] + "\n").encode()
            whole = len(held) - len(held) % block_bytes
            yield from (held[at : at + block_bytes] for at in range(0, whole, block_bytes))
            held = held[whole:]
        if held:
            yield held
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"the zstd file cannot be read: {error}", file=path) from error
