"""Raw rows (dicts, frames, files, JSON lines) → polars frames with the columns that a schema needs."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeAlias

import polars as pl

from thresher.data.encode.row_encoder import check_dense
from thresher.data.read.column_values import check_columns
from thresher.data.read.data_frames import to_polars
from thresher.data.read.python_values import values_to_series
from thresher.data.read.raw_files import expand_paths, is_parquet, read_blocks, read_chunks, resolve_format
from thresher.data.read.text_rows import likely_delimiter
from thresher.data.schema import FileFormat, Schema
from thresher.errors import DataError

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Row | Sequence[Row] | pl.DataFrame | Any
"""One row, several rows, or a frame. A pandas frame is recognised by its attributes; pandas is never imported."""

JSON_CHUNK_ROWS = 10_000


def rows_to_frame(rows: Rows, schema: Schema, *, also: Sequence[str] = ()) -> pl.DataFrame:
    """Rows in memory as one frame with the columns of the schema and those in `also`."""
    columns = _needed_columns(schema, also)
    if isinstance(rows, Mapping):
        rows = [rows]
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
        return _dicts_to_frame(rows, schema, columns)
    return to_polars(rows, columns, schema, expected="a dict, a list of dicts, or a pandas or polars data frame")


def read_frames(path: str | Path, schema: Schema, *, also: Sequence[str] = ()) -> Iterator[pl.DataFrame]:
    """Read a CSV, TSV, Parquet or JSON lines file (or several, by a glob) in chunks of the needed columns."""
    columns = _needed_columns(schema, also)
    for file in expand_paths([path]):
        if file.suffix.lower() in (".jsonl", ".ndjson"):
            with file.open(encoding="utf-8") as lines:
                yield from read_json_lines(lines, schema, name=str(file), also=also)
            continue
        file_format, header = _detect_format(file, schema, columns)
        for chunk in read_chunks(file, file_format, header=header):
            check_dense(chunk.frame, schema, file=file, line_of=chunk.line_of)
            yield chunk.frame.select(columns)


def read_json_lines(
    lines: IO[str] | Iterable[str], schema: Schema, *, name: str = "stdin", also: Sequence[str] = ()
) -> Iterator[pl.DataFrame]:
    """Read JSON objects, one per line, in chunks of the needed columns."""
    rows = ((number, _parse_json(line, number, name)) for number, line in enumerate(lines, 1) if line.strip())
    while chunk := list(islice(rows, JSON_CHUNK_ROWS)):
        numbers, dicts = zip(*chunk, strict=True)
        frame = _dicts_to_frame(dicts, schema, _needed_columns(schema, also))
        check_dense(frame, schema, file=name, line_of=numbers.__getitem__)
        yield frame


def _needed_columns(schema: Schema, also: Sequence[str]) -> tuple[str, ...]:
    """The raw columns that a prediction reads (without the label), and those in `also`."""
    return tuple(dict.fromkeys([*schema.input_columns, *also]))


def _dicts_to_frame(rows: Sequence[Any], schema: Schema, columns: Sequence[str]) -> pl.DataFrame:
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            kind = type(row).__name__
            raise DataError(f"row {number} is a {kind}; each row must be a dict of column: value", row=number)
    if rows:  # a key that no row has is a misspelled column, not a missing value
        check_columns(list(dict.fromkeys(name for row in rows for name in row)), columns)
    return pl.DataFrame([values_to_series(name, [row.get(name) for row in rows], schema) for name in columns])


def _parse_json(line: str, number: int, name: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise DataError(f"not a JSON object ({error}); each line must be one", file=name, line=number) from None


def _detect_format(file: Path, schema: Schema, columns: Sequence[str]) -> tuple[FileFormat, bool]:
    """The format of a file and whether it has a header: the format of training if it fits, otherwise as detected."""
    known = schema.file_format
    if is_parquet(file):
        found = resolve_format(file, known)
        check_columns(found.columns, columns, file=file)
        return found, True
    resolve_format(file, replace(known, columns=("unread",)))  # raises if the file is empty
    first_line = _first_cells(file, replace(known, delimiter="\x1f"))  # a delimiter that does not occur
    for delimiter in (known.delimiter, "", likely_delimiter(first_line)):
        # any column names are given, so that resolve_format does not read a first row of data as a header
        candidate = resolve_format(file, replace(known, delimiter=delimiter, columns=("unread",)))
        cells = _first_cells(file, candidate)
        if set(columns) <= set(cells):
            return resolve_format(file, replace(candidate, columns=())), True
        without_label = tuple(name for name in known.columns if name != schema.label.column)
        if not set(columns) & set(cells):  # no header: the columns are those of training
            for names in (known.columns, without_label):
                if len(cells) == len(names):
                    return replace(candidate, columns=names), False
    check_columns(cells, columns, file=file)
    raise AssertionError("unreachable: some column is missing")


def _first_cells(file: Path, file_format: FileFormat) -> list[str]:
    first = next(read_blocks(file, quote=file_format.quote, block_bytes=1 << 16))
    lines = first.data.decode(file_format.encoding, "replace").lstrip("\r\n").splitlines()
    quoting: Any = {"quotechar": file_format.quote} if file_format.quote else {"quoting": csv.QUOTE_NONE}
    return next(csv.reader(lines, delimiter=file_format.delimiter, **quoting))
