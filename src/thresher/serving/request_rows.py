"""Raw rows (dicts, frames, files, JSON lines) → polars frames with the columns that a schema needs.

A cell is converted independently of the other cells in its column; its text equals the text that `as_text` gives to a
polars column of its type.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import IO, Any, TypeAlias
from uuid import UUID

import numpy as np
import polars as pl

from thresher.data.encode.row_encoder import check_dense
from thresher.data.read.column_values import EXACT_INTEGERS, as_text, temporal_text, unknown_column
from thresher.data.read.raw_files import expand_paths, is_parquet, read_blocks, read_chunks, resolve_format
from thresher.data.read.text_rows import likely_delimiter
from thresher.data.schema import FileFormat, Schema
from thresher.errors import DataError

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Row | Sequence[Row] | pl.DataFrame | Any
"""One row, several rows, or a frame. A pandas frame is recognised by its attributes; pandas is never imported."""
Plain: TypeAlias = str | int | float | bool | None

JSON_CHUNK_ROWS = 10_000
INT64_LIMIT = 2**63


def rows_to_frame(rows: Rows, schema: Schema, *, also: Sequence[str] = ()) -> pl.DataFrame:
    """Rows in memory as one frame with the columns of the schema and those in `also`."""
    columns = _needed_columns(schema, also)
    if isinstance(rows, pl.DataFrame):
        _check_columns(rows.columns, columns)
        objects = [rows[name] for name in columns if rows.schema[name] == pl.Object]
        return rows.select(columns).with_columns(_values_to_series(one.name, one, schema) for one in objects)
    if isinstance(rows, Mapping):
        rows = [rows]
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
        return _dicts_to_frame(rows, schema, columns)
    if hasattr(rows, "iloc") and hasattr(rows, "columns"):  # iloc first: a polars LazyFrame warns on .columns
        names = [str(name) for name in rows.columns]
        _check_columns(names, columns)
        if repeated := [name for name in columns if names.count(name) > 1]:
            raise DataError(f"{names.count(repeated[0])} columns are called {repeated[0]!r}; keep one of them")
        labels = dict(zip(names, rows.columns, strict=True))
        return pl.DataFrame([_pandas_to_series(name, rows[labels[name]], schema) for name in columns])
    raise DataError(f"rows must be a dict, a list of dicts, a polars or a pandas frame; got a {type(rows).__name__}")


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


def plain_cell(value: Any) -> Plain | list[Plain]:
    """Convert a cell to a plain Python value, or to a list of them if it is a list, set, array or series."""
    has_values = isinstance(value, Sequence | Set) or hasattr(value, "tolist") or hasattr(value, "to_list")
    if isinstance(value, str | bytes | bytearray | memoryview) or not has_values or getattr(value, "ndim", 1) == 0:
        return _plain_value(value)
    values = sorted(value, key=str) if isinstance(value, Set) else value  # the order of a set differs between runs
    return [_plain_value(one) for one in values]


def plain_text(value: Plain) -> str | None:
    """The text of a plain value, equal to that of `as_text`; None if it is missing."""
    if value is None or value != value:
        return None
    if not isinstance(value, float):
        return str(value)
    if value.is_integer() and abs(value) < EXACT_INTEGERS:
        return str(int(value))
    # outside of this range Python and polars write floats differently
    return repr(value) if 1e-4 <= abs(value) < 1e15 else as_text(pl.Series([value], dtype=pl.Float64)).item()


def _plain_value(value: Any) -> Plain:
    """A string, number or bool; None or NaN for a missing value; TypeError for any other type."""
    if type(value) is str or value is None:  # by far the most frequent
        return value
    if type(value).__name__ in ("NAType", "NaTType"):  # pd.NA and pd.NaT
        return None
    if isinstance(value, np.datetime64 | np.timedelta64 | timedelta):
        return _format_temporal(value)
    if getattr(value, "ndim", None) == 0:  # a numpy or torch scalar
        narrow = "float32" in str(value.dtype) or "float16" in str(value.dtype)
        value = value.tolist()  # item() would not treat a masked scalar as missing
        if narrow and isinstance(value, float):  # the shortest text of a float32, as in a float32 column
            value = float(str(np.float32(value)))
    match value:
        case bool() | None:
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case str():
            return str.__str__(value)
        case Decimal() if not value.is_finite():
            return float(value)
        case Decimal():
            text = format(value, "f")
            return "0" if not value else text.rstrip("0").rstrip(".") if "." in text else text
        case bytes() | bytearray() | memoryview():
            try:
                return bytes(value).decode()
            except UnicodeDecodeError:
                raise TypeError(f"bytes that are not UTF-8, {bytes(value)!r}") from None
        case date() | time() | UUID():
            return str(value)
    raise TypeError(f"a {type(value).__name__}; expected a text, a number or a date")


def _format_temporal(value: np.datetime64 | np.timedelta64 | timedelta) -> str | None:
    kind = "datetime64" if isinstance(value, np.datetime64) else "timedelta64"
    moment = np.array([value], None if isinstance(value, np.generic) else "timedelta64[us]")
    if np.datetime_data(moment.dtype)[0] not in ("ns", "us", "ms") and moment.dtype != np.dtype("datetime64[D]"):
        moment = moment.astype(f"{kind}[us]")  # polars supports no other unit
    text: str | None = temporal_text(pl.Series(moment)).item()
    return text


def _needed_columns(schema: Schema, also: Sequence[str]) -> tuple[str, ...]:
    """The raw columns that a prediction reads (without the label), and those in `also`."""
    fields, dense = (field.column for field in schema.fields), (column.column for column in schema.dense)
    return tuple(dict.fromkeys([*fields, *dense, *also]))


def _check_columns(found: Sequence[str], columns: Sequence[str], *, file: str | Path | None = None) -> None:
    for column in columns:
        if column not in found:
            raise DataError(unknown_column(column, list(found)), file=file)


def _dicts_to_frame(rows: Sequence[Any], schema: Schema, columns: Sequence[str]) -> pl.DataFrame:
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise DataError(f"row {number} is a {type(row).__name__}; each row must be a dict of column: value")
    if rows:  # a key that no row has is a misspelled column, not a missing value
        _check_columns(list(dict.fromkeys(name for row in rows for name in row)), columns)
    return pl.DataFrame([_values_to_series(name, [row.get(name) for row in rows], schema) for name in columns])


def _values_to_series(name: str, values: Iterable[Any], schema: Schema) -> pl.Series:
    """One column: numbers if all cells are numbers of one type, otherwise text or lists of text."""
    cells = list(values)
    kinds = set(map(type, cells)) - {NoneType}
    if not kinds <= {str, int, float, bool}:
        for row, value in enumerate(cells):
            try:
                cells[row] = plain_cell(value)
            except TypeError as error:
                raise DataError(f"row {row} holds {error}", column=name) from None
        kinds = set(map(type, cells)) - {NoneType}
    if list in kinds:
        return _lists_to_series(name, cells, schema)
    if kinds == {int} and all(cell is None or abs(cell) < INT64_LIMIT for cell in cells):
        return pl.Series(name, cells, pl.Int64)
    if kinds == {float} or kinds == {bool}:
        return pl.Series(name, cells, pl.Float64 if kinds == {float} else pl.Boolean)
    return pl.Series(name, [plain_text(cell) for cell in cells], pl.String)


def _lists_to_series(name: str, cells: Sequence[Any], schema: Schema) -> pl.Series:
    """A column of a multi-valued field. Text cells among the lists are split as they are in files."""
    single = {field.column for field in schema.single_fields} | {column.column for column in schema.dense}
    if name in single:
        row = next(at for at, cell in enumerate(cells) if isinstance(cell, list))
        raise DataError(f"row {row} holds {cells[row]!r}; expected one value", column=name)
    separator = next((field.separator for field in schema.bag_fields if field.column == name), "")
    lists: list[Any] = []
    for cell in cells:
        if isinstance(cell, list):
            lists.append([plain_text(one) for one in cell])
        else:
            text = plain_text(cell)
            lists.append(None if not text else text.split(separator) if separator else [text])
    return pl.Series(name, lists, pl.List(pl.String))


def _pandas_to_series(name: str, column: Any, schema: Schema) -> pl.Series:
    """A pandas column; NaN is missing, and integers that pandas made floats because of NaN are integers again."""
    kind = column.dtype
    if not (isinstance(kind, np.dtype) and kind.kind in "iuf" and kind.itemsize <= 8):
        return _values_to_series(name, column, schema)
    numbers = pl.Series(name, column.to_numpy(), nan_to_null=True)
    integers = numbers.cast(pl.Int64, strict=False)
    exact = numbers.has_nulls() and bool((numbers.abs() < EXACT_INTEGERS).all())
    return integers if exact and numbers.eq_missing(integers).all() else numbers


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
        _check_columns(found.columns, columns, file=file)
        return found, True
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
    _check_columns(cells, columns, file=file)
    raise AssertionError("unreachable: some column is missing")


def _first_cells(file: Path, file_format: FileFormat) -> list[str]:
    first = next(read_blocks(file, quote=file_format.quote, block_bytes=1 << 16))
    lines = first.data.decode(file_format.encoding, "replace").lstrip("\r\n").splitlines()
    quoting: Any = {"quotechar": file_format.quote} if file_format.quote else {"quoting": csv.QUOTE_NONE}
    return next(csv.reader(lines, delimiter=file_format.delimiter, **quoting))
