"""The bytes of whole lines → a frame of text columns, each row checked; a bad row is named by its line, or left out."""

import csv
import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.read.delimiters import taken_for_one
from thresher.data.read.raw_blocks import IF_LATIN_1, WITHOUT_QUOTES, count_sign
from thresher.data.schema import FileFormat
from thresher.errors import DataError

Skipped = list[tuple[int, str]]


def parse_rows(
    data: bytes, first_line: int, file_format: FileFormat, path: Path, *, skip: bool
) -> tuple[pl.DataFrame, Sequence[int], Skipped]:
    """The rows, the line each begins on, and the bad rows left out (with `skip`; without it the first one raises)."""
    quoted = bool(file_format.quote) and file_format.quote.encode() in data
    if b"\0" not in data:
        frame = _fast(data, file_format, quoted=quoted)
        # polars fills short rows up in silence; the number of delimiters tells
        if frame is not None and _whole(data, file_format, len(frame), quoted=quoted):
            return frame, range(first_line, first_line + len(frame)), []
    parse = _parse_quoted if quoted else _parse_lines
    return parse(data, first_line, file_format, path, skip=skip)


def _fast(data: bytes, file_format: FileFormat, *, quoted: bool = False) -> pl.DataFrame | None:
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


def _whole(data: bytes, file_format: FileFormat, rows: int, *, quoted: bool) -> bool:
    """Whether there is one row per line, each with all its columns."""
    if count_sign(data, "\n") + (not data.endswith(b"\n") and bool(data)) != rows:
        return False
    if quoted:
        codes = np.frombuffer(data, np.uint8)
        inside = np.bitwise_xor.accumulate((codes == ord(file_format.quote)).view(np.uint8)).view(bool)
        if inside[-1] or np.count_nonzero((codes == ord("\n")) & inside):
            return False
        delimiters = int(np.count_nonzero((codes == ord(file_format.delimiter)) & ~inside))
    else:
        delimiters = count_sign(data, file_format.delimiter)
    return delimiters == rows * (len(file_format.columns) - 1)


def _parse_lines(
    data: bytes, first_line: int, file_format: FileFormat, path: Path, *, skip: bool
) -> tuple[pl.DataFrame, Sequence[int], Skipped]:
    """Without quotes a row is a line: look at each line by itself, drop blank and bad ones, parse the rest."""
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
    if expected == 1:  # an empty line is then a missing value, but a last empty line is none
        blank &= False
    skipped: Skipped = []
    for at in np.flatnonzero(bad):
        if broken[at]:
            what = f"a byte that is not UTF-8; {IF_LATIN_1}"
        elif nul[at]:
            what = "a NUL byte: the file is binary or damaged"
        else:
            what = _wrong_number(int(found[at]), file_format, path)
        skipped.append((first_line + int(at), what))
        if not skip:
            raise DataError(what, file=path, line=skipped[0][0])
    kept = np.flatnonzero(~blank & ~bad)
    rest = b"".join(data[starts[at] : ends[at]] + b"\n" for at in kept)
    frame = _fast(rest, file_format)
    if frame is None or len(frame) != len(kept):
        raise DataError("cannot be parsed; the file is damaged near here", file=path, line=first_line)
    return frame, (kept + first_line).tolist(), skipped


def _wrong_number(found: int, file_format: FileFormat, path: Path) -> str:
    """What is wrong with a row of so many columns; raises where the row is well and the delimiter is not."""
    if wrong := taken_for_one(file_format.columns):
        raise DataError(wrong, file=path)
    return f"{found} columns, expected {len(file_format.columns)}; mend the line"


def _per_line(marks: NDArray[np.bool_], starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[np.int64]:
    """How many marks each line holds."""
    positions = np.flatnonzero(marks)
    counts: NDArray[np.int64] = np.searchsorted(positions, ends) - np.searchsorted(positions, starts)
    return counts


def _broken_utf8(data: bytes, starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[np.bool_]:
    broken = np.zeros(len(starts), bool)
    high = np.flatnonzero(_per_line(np.frombuffer(data, np.uint8) >= 128, starts, ends))
    for at in high:
        try:
            data[starts[at] : ends[at]].decode()
        except UnicodeDecodeError:
            broken[at] = True
    return broken


def _parse_quoted(
    data: bytes, first_line: int, file_format: FileFormat, path: Path, *, skip: bool
) -> tuple[pl.DataFrame, Sequence[int], Skipped]:
    """Quoted text, whose rows may span lines, row by row with the standard library: slower, but it counts lines."""
    text = list(io.StringIO(data.decode(errors="surrogateescape"), newline=""))
    read = partial(csv.reader, delimiter=file_format.delimiter, quotechar=file_format.quote, strict=True)
    begin = doubtful = 0  # lines before `doubtful` stood inside a quote that was left open, perhaps
    reader = read(text)
    expected, rows, lines, skipped = len(file_format.columns), list[list[str]](), list[int](), Skipped()
    while True:
        at, what = begin + reader.line_num, ""
        line = first_line + at
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            row, what = [], f"{error}; if quotes are ordinary text here, {WITHOUT_QUOTES}"
            doubtful, begin = begin + reader.line_num, at + 1  # a quote left open has taken other lines
            reader = read(map(text.__getitem__, range(begin, len(text))))
        if row and len(row) != expected:
            what = _wrong_number(len(row), file_format, path)
        elif at < doubtful and any(file_format.quote in cell for cell in row):
            what = f"a quote inside a value; if quotes are ordinary text here, {WITHOUT_QUOTES}"
        elif any("\0" in cell for cell in row):
            what = "a NUL byte: the file is binary or damaged"
        elif row and not data.isascii() and not _encodes(row):
            what = f"a byte that is not UTF-8; {IF_LATIN_1}"
        if what and not skip:
            raise DataError(what, file=path, line=line)
        if what:
            skipped.append((line, what))
        elif row:
            rows.append(row)
            lines.append(line)
    return pl.DataFrame(rows, schema=dict.fromkeys(file_format.columns, pl.String), orient="row"), lines, skipped


def _encodes(row: list[str]) -> bool:
    try:
        "".join(row).encode()
    except UnicodeEncodeError:
        return False
    return True
