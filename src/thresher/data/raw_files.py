"""CSV, TSV, Parquet → chunks of raw columns with their place in the file. Knows files, not what columns mean.

Text columns stay text: no type is guessed here, so a zip code keeps its leading zero.
"""

import csv
import glob
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from thresher.data.raw_blocks import BLOCK_BYTES, Block, read_blocks
from thresher.data.schema import FileFormat
from thresher.errors import DataError

PARQUET_CHUNK_ROWS = 250_000
_COMPRESSIONS = (".gz", ".gzip", ".zst", ".zstd")


@dataclass(frozen=True)
class RawChunk:
    """Consecutive rows of one file. `line_of(row)` is the line (Parquet: the row, from 1) of a row of the frame."""

    frame: pl.DataFrame
    file: Path | None = None
    line_of: Callable[[int], int] | None = None

    def error(self, message: str, row: int, column: str | None = None) -> DataError:
        line = None if self.line_of is None else self.line_of(row)
        return DataError(message, file=self.file, line=line, column=column)


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
            raise DataError("no such file", file=file)
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
            return replace(file_format, columns=tuple(pl.read_parquet_schema(path)))
        except (pl.exceptions.PolarsError, OSError) as error:
            raise DataError(f"not a readable Parquet file: {error}", file=path) from error
    first = next(read_blocks(path, quote=file_format.quote, block_bytes=1 << 16), None)
    head = b"" if first is None else first.data.lstrip(b"\r\n")
    if not head:
        raise DataError("the file is empty", file=path, line=1)
    line = _decode(Block(head[: head.find(b"\n") % len(head) + 1], 1), path, file_format).strip("\r\n")
    delimiter = file_format.delimiter or _guess_delimiter(path, line)
    if file_format.columns:
        return replace(file_format, delimiter=delimiter)
    columns = tuple(next(csv.reader([line], delimiter=delimiter, **_quoting(file_format))))
    for name in columns:
        if columns.count(name) > 1:
            raise DataError(f"two columns are called {name!r}; rename one", file=path, line=1)
    return replace(file_format, delimiter=delimiter, columns=columns)


def read_chunks(
    path: Path, file_format: FileFormat, *, header: bool = True, block_bytes: int = BLOCK_BYTES
) -> Iterator[RawChunk]:
    """All rows of one file; `file_format` must be resolved. Text files give String columns without nulls."""
    if is_parquet(path):
        yield from _read_parquet(path, file_format)
        return
    awaiting_header = header
    for block in read_blocks(path, quote=file_format.quote, block_bytes=block_bytes):
        text = _decode(block, path, file_format)
        data, lines = _without_blank_lines(text, block.first_line, file_format)
        if awaiting_header and data:
            end = _first_line_end(data, file_format)
            skipped = data.count(b"\n", 0, end)
            data, awaiting_header = data[end:], False
            lines = range(lines.start + skipped, lines.stop) if isinstance(lines, range) else lines[1:]
        if data:
            yield _parse(data, lines, path, file_format)


def _parse(data: bytes, lines: Sequence[int], path: Path, file_format: FileFormat) -> RawChunk:
    columns = file_format.columns
    delimiter, quote = file_format.delimiter.encode(), file_format.quote.encode()
    try:
        frame = pl.read_csv(
            data,
            has_header=False,
            schema=dict.fromkeys(columns, pl.String),
            separator=file_format.delimiter,
            quote_char=file_format.quote or None,
            empty_string_is_null=False,
        )
        quoted = bool(quote) and quote in data
        # polars fills short rows up in silence; the number of delimiters tells
        whole = quoted or data.count(delimiter) == len(frame) * (len(columns) - 1)
        if whole and not quoted:
            return RawChunk(frame, path, lines.__getitem__)
    except pl.exceptions.PolarsError:
        pass
    return _parse_slowly(data, lines, path, file_format)


def _parse_slowly(data: bytes, lines: Sequence[int], path: Path, file_format: FileFormat) -> RawChunk:
    """Row by row: for quoted text, whose rows may span lines, and to find the row that is wrong."""
    reader = csv.reader(
        io.StringIO(data.decode(), newline=""), delimiter=file_format.delimiter, **_quoting(file_format), strict=True
    )
    rows: list[list[str]] = []
    numbers: list[int] = []
    expected, before = len(file_format.columns), 0
    try:
        for row in reader:
            line = lines[min(before, len(lines) - 1)]
            if row and len(row) != expected:
                raise DataError(
                    f"{len(row)} columns, expected {expected}; mend the line"
                    + (" (or read with quote = '' if quotes are ordinary text here)" if '"' in "".join(row) else ""),
                    file=path,
                    line=line,
                )
            if row:
                rows.append(row)
                numbers.append(line)
            before = reader.line_num
    except csv.Error as error:
        line = lines[min(before, len(lines) - 1)]
        raise DataError(
            f"{error}; if quotes are ordinary text here, read the file with quote = ''", file=path, line=line
        ) from error
    frame = pl.DataFrame(rows, schema=dict.fromkeys(file_format.columns, pl.String), orient="row")
    return RawChunk(frame, path, numbers.__getitem__)


def _read_parquet(path: Path, file_format: FileFormat) -> Iterator[RawChunk]:
    done = 0
    try:
        batches = pl.scan_parquet(path).collect_batches(chunk_size=PARQUET_CHUNK_ROWS, maintain_order=True)
        for frame in batches:
            missing = [name for name in file_format.columns if name not in frame.columns]
            if missing:
                raise DataError(f"lacks the column {missing[0]!r} that the first file has", file=path)
            yield RawChunk(frame, path, range(done + 1, done + 1 + len(frame)).__getitem__)
            done += len(frame)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"the Parquet file cannot be read: {error}", file=path) from error


def _decode(block: Block, path: Path, file_format: FileFormat) -> str:
    try:
        return block.data.decode(file_format.encoding)
    except UnicodeDecodeError as error:
        line = block.first_line + block.data.count(b"\n", 0, error.start)
        raise DataError(
            f"byte {block.data[error.start]:#04x} is not UTF-8; if the file is Latin-1, say encoding = 'latin-1'",
            file=path,
            line=line,
        ) from error


def _without_blank_lines(text: str, first_line: int, file_format: FileFormat) -> tuple[bytes, Sequence[int]]:
    """The block's bytes without its blank lines, and the line number of each line that is left."""
    blank = text.startswith(("\n", "\r\n")) or "\n\n" in text or "\n\r\n" in text
    if not blank or (file_format.quote and file_format.quote in text) or len(file_format.columns) < 2:
        return text.encode(), range(first_line, first_line + text.count("\n") + 1)
    kept = [(first_line + at, line) for at, line in enumerate(text.split("\n")) if line.strip("\r")]
    return "".join(line + "\n" for _, line in kept).encode(), [number for number, _ in kept]


def _first_line_end(data: bytes, file_format: FileFormat) -> int:
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        if not file_format.quote or data.count(file_format.quote.encode(), 0, end) % 2 == 0:
            return end + 1
        at = end + 1
    return len(data)


def _guess_delimiter(path: Path, line: str) -> str:
    suffix = next((s for s in reversed([x.lower() for x in path.suffixes]) if s not in _COMPRESSIONS), "")
    if suffix in (".csv", ".tsv"):
        return "," if suffix == ".csv" else "\t"
    return max("\t,;|", key=line.count)


def _quoting(file_format: FileFormat) -> dict[str, Any]:
    return {"quotechar": file_format.quote} if file_format.quote else {"quoting": csv.QUOTE_NONE}
