"""The bytes of complete lines → a frame of text columns. A bad row is an error with its line number, or is skipped."""

import csv
import io
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.schema import FileFormat
from thresher.errors import DataError, FileFormatError
from thresher.kernels.compiling import kernel

Skipped = list[tuple[int, str]]
Parsed = tuple[pl.DataFrame, Sequence[int], Skipped]  # rows, the line of each, skipped rows with line and reason
QUOTE_HINT, NO_QUOTE = 'set data.quote = ""', {"data.quote": ""}


def parse_rows(data: bytes, first_line: int, file_format: FileFormat, path: Path, *, skip: bool) -> Parsed:
    """The rows of complete lines. Without `skip` the first bad row raises."""
    quoted = bool(file_format.quote) and file_format.quote.encode() in data
    if b"\0" not in data:
        frame = _parse_fast(data, file_format, quoted=quoted)
        # polars fills short rows with nulls silently, so count the delimiters
        if frame is not None and _is_regular(data, file_format, len(frame), quoted=quoted):
            return frame, range(first_line, first_line + len(frame)), []
    parse = _parse_quoted if quoted else _parse_lines
    return parse(data, first_line, file_format, path, skip=skip)


def _parse_fast(data: bytes, file_format: FileFormat, *, quoted: bool = False) -> pl.DataFrame | None:
    schema = dict.fromkeys(file_format.columns, pl.String)
    if not data:
        return pl.DataFrame(schema=schema)
    try:
        return pl.read_csv(
            data,
            has_header=False,
            schema=schema,
            separator=file_format.delimiter,
            quote_char=file_format.quote if quoted else None,
            empty_string_is_null=False,
        )
    except pl.exceptions.PolarsError:
        return None


def _is_regular(data: bytes, file_format: FileFormat, rows: int, *, quoted: bool) -> bool:
    """Whether each line is one row with the expected number of columns."""
    if count_char(data, "\n") + (not data.endswith(b"\n") and bool(data)) != rows:
        return False
    if quoted:
        codes = np.frombuffer(data, np.uint8)
        inside = inside_quotes(codes, file_format.quote)
        if inside[-1] or ((codes == ord("\n")) & inside).any():
            return False
        delimiters = int(np.count_nonzero((codes == ord(file_format.delimiter)) & ~inside))
    else:
        delimiters = count_char(data, file_format.delimiter)
    return delimiters == rows * (len(file_format.columns) - 1)


def _parse_lines(data: bytes, first_line: int, file_format: FileFormat, path: Path, *, skip: bool) -> Parsed:
    """Text without quotes, where a row is a line: drop blank and bad lines, parse the rest."""
    expected = len(file_format.columns)
    codes = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    starts = np.concatenate([[0], ends[:-1] + 1])
    found = _per_line(codes == ord(file_format.delimiter), starts, ends) + 1
    has_return = (ends > starts) & (codes[np.maximum(ends - 1, 0)] == ord("\r"))
    blank = (ends - starts - has_return) <= 0
    nul = _per_line(codes == 0, starts, ends) > 0
    broken = np.zeros(len(starts), bool) if data.isascii() else _broken_utf8(data, starts, ends)
    bad = ~blank & ((found != expected) | nul | broken)
    if expected == 1:  # an empty line is then a missing value
        blank &= False
    skipped: Skipped = []
    for at in np.flatnonzero(bad).tolist():
        line = first_line + at
        if broken[at] or nul[at]:
            problem = not_utf_8(path, line) if broken[at] else _nul_byte(path, line)
        else:
            problem = _wrong_width(int(found[at]), file_format, path, line)
        if not skip:
            raise problem
        skipped.append((line, problem.message))
    kept = np.flatnonzero(~blank & ~bad)
    rest = b"".join(data[starts[at] : ends[at]] + b"\n" for at in kept)
    frame = _parse_fast(rest, file_format)
    if frame is None or len(frame) != len(kept):
        raise DataError("cannot be parsed; the file is damaged near this line", file=path, line=first_line)
    return frame, (kept + first_line).tolist(), skipped


def _wrong_width(found: int, file_format: FileFormat, path: Path, line: int) -> DataError:
    """The error for a row with `found` columns; raises if the delimiter of the whole file seems wrong."""
    if error := single_column_error(file_format.columns, path):
        raise error
    expected = len(file_format.columns)
    return DataError(f"has {found} columns, expected {expected}; correct the line", file=path, line=line)


def not_utf_8(path: Path, line: int, problem: str = "contains a byte that is not UTF-8") -> DataError:
    """The error for text in another encoding."""
    hint = 'if the file is Latin-1, set data.encoding = "latin-1"'
    return FileFormatError(f"{problem}; {hint}", file=path, line=line, settings={"data.encoding": "latin-1"})


def _nul_byte(path: Path, line: int) -> DataError:
    return DataError("contains a NUL byte: the file is binary or damaged", file=path, line=line)


def _wrong_quote(problem: str, path: Path, line: int) -> DataError:
    message = f"{problem}; if quotes are ordinary characters here, {QUOTE_HINT}"
    return FileFormatError(message, file=path, line=line, settings=NO_QUOTE)


def _per_line(marks: NDArray[np.bool_], starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[np.int64]:
    """The number of marks in each line."""
    positions = np.flatnonzero(marks)
    return np.asarray(np.searchsorted(positions, ends) - np.searchsorted(positions, starts))


def _broken_utf8(data: bytes, starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[np.bool_]:
    """For each line, whether it is not UTF-8: decoding then leaves surrogates."""
    lines = [data[start:end].decode(errors="surrogateescape") for start, end in zip(starts, ends, strict=True)]
    return np.array([not _encodes(line) for line in lines], bool)


def _parse_quoted(data: bytes, first_line: int, file_format: FileFormat, path: Path, *, skip: bool) -> Parsed:
    """Quoted text, whose rows may span lines, with the standard library: slower, but it counts lines."""
    text = list(io.StringIO(data.decode(errors="surrogateescape"), newline=""))
    read = partial(csv.reader, delimiter=file_format.delimiter, quotechar=file_format.quote, strict=True)
    begin = doubtful = 0  # lines before `doubtful` may have been inside a quote that was left open
    reader = read(text)
    problem: DataError | None
    expected, rows, lines, skipped = len(file_format.columns), list[list[str]](), list[int](), Skipped()
    while True:
        at, problem = begin + reader.line_num, None
        line = first_line + at
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            row, problem = [], _wrong_quote(str(error), path, line)
            doubtful, begin = begin + reader.line_num, at + 1  # read the lines after the open quote again
            reader = read(map(text.__getitem__, range(begin, len(text))))
        if row and len(row) != expected:
            problem = _wrong_width(len(row), file_format, path, line)
        elif at < doubtful and any(file_format.quote in cell for cell in row):
            problem = _wrong_quote("has a quote inside a value", path, line)
        elif any("\0" in cell for cell in row):
            problem = _nul_byte(path, line)
        elif row and not data.isascii() and not _encodes("".join(row)):
            problem = not_utf_8(path, line)
        if problem is not None and not skip:
            raise problem
        if problem is not None:
            skipped.append((line, problem.message))
        elif row:
            rows.append(row)
            lines.append(line)
    return pl.DataFrame(rows, schema=dict.fromkeys(file_format.columns, pl.String), orient="row"), lines, skipped


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def inside_quotes(codes: NDArray[np.uint8], quote: str) -> NDArray[np.bool_]:
    """For each byte, whether it is after an opening quote and before the closing one."""
    return np.bitwise_xor.accumulate((codes == ord(quote)).view(np.uint8)).view(bool)


def count_char(data: bytes, char: str, end: int | None = None) -> int:
    """Occurrences of an ASCII character before `end`."""
    codes = np.frombuffer(data, np.uint8, len(data) if end is None else end)
    return int(_count(codes, ord(char)))


@kernel
def _count(codes, wanted):  # type: ignore[no-untyped-def]
    total = 0
    for code in codes:
        total += code == wanted
    return total


def likely_delimiter(columns: Sequence[str]) -> str:
    """The character that seems to separate the names in a header read as one column; empty if there is none."""
    if len(columns) != 1:
        return ""
    char = max(";\t|,", key=columns[0].count)
    return char if char in columns[0] else ""


def delimiter_hint(char: str) -> str:
    """Which delimiter to set, after a semicolon; empty for no character."""
    return "; set data.delimiter = " + json.dumps(char) if char else ""


def single_column_error(columns: Sequence[str], path: Path | None) -> FileFormatError | None:
    """The error for a file read as one column by a wrong delimiter; None if the delimiter seems right."""
    if not (char := likely_delimiter(columns)):
        return None
    message = f"has one column, {columns[0]!r}, which looks separated by {char!r}{delimiter_hint(char)}"
    return FileFormatError(message, file=path, settings={"data.delimiter": char})
