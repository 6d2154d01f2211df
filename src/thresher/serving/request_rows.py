"""Raw rows in whatever form people have them → polars frames with the columns a schema needs.

A dict, a list of dicts, a polars or pandas frame, a CSV, TSV or Parquet file, a stream of JSON lines. Missing columns
are told by name, missing values are missing values. What the values mean is the `RowEncoder`'s business.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import IO, Any, TypeAlias

import numpy as np
import polars as pl

from thresher.data.encode.row_encoder import check_dense, unknown_column
from thresher.data.encode.transforms import EXACT_INTEGERS
from thresher.data.read.delimiters import other_delimiter
from thresher.data.read.raw_blocks import read_blocks
from thresher.data.read.raw_files import expand_paths, is_parquet, read_chunks, resolve_format
from thresher.data.schema import FileFormat, Schema
from thresher.errors import DataError
from thresher.serving.cells import PLAIN_TYPES, plain_cell, text_of

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Row | Sequence[Row] | pl.DataFrame | Any
"""One row, several, or a frame; a pandas frame is recognised by its looks, pandas itself is never imported."""

JSON_CHUNK_ROWS = 10_000
SHORT_INTEGERS = 2**63


def needed_columns(schema: Schema, also: Sequence[str] = ()) -> tuple[str, ...]:
    """The raw columns a prediction reads, and others asked for; the label is not among them."""
    fields, dense = (field.column for field in schema.fields), (column.column for column in schema.dense)
    return tuple(dict.fromkeys([*fields, *dense, *also]))


def rows_to_frame(rows: Rows, schema: Schema, *, also: Sequence[str] = ()) -> pl.DataFrame:
    """Rows in memory as one frame of the needed columns, and of others asked for."""
    columns = needed_columns(schema, also)
    if isinstance(rows, pl.DataFrame):
        check_columns(rows.columns, columns)
        objects = [rows[name] for name in columns if rows.schema[name] == pl.Object]
        return rows.select(columns).with_columns(_from_values(one.name, one, schema) for one in objects)
    if isinstance(rows, Mapping):
        rows = [rows]
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
        return _from_dicts(rows, schema, columns)
    if hasattr(rows, "iloc") and hasattr(rows, "columns"):  # in this order: a lazy frame warns when asked for columns
        own_names = {str(name): name for name in rows.columns}
        check_columns(list(own_names), columns)
        named = [str(name) for name in rows.columns]
        if repeated := [name for name in columns if named.count(name) > 1]:
            raise DataError(f"{named.count(repeated[0])} columns are called {repeated[0]!r}; keep one of them")
        return pl.DataFrame([_from_pandas(name, rows[own_names[name]], schema) for name in columns])
    raise DataError(
        f"rows must be a dict, a list of dicts, a polars or a pandas frame; this is a {type(rows).__name__}"
    )


def read_frames(path: str | Path, schema: Schema, *, also: Sequence[str] = ()) -> Iterator[pl.DataFrame]:
    """A CSV, TSV, Parquet or JSON lines file (a glob: several) as frames of those columns, chunk by chunk."""
    columns = needed_columns(schema, also)
    for file in expand_paths([path]):
        if file.suffix.lower() in (".jsonl", ".ndjson"):
            with file.open(encoding="utf-8") as lines:
                yield from read_json_lines(lines, schema, name=str(file), also=also)
            continue
        file_format, header = _resolve(file, schema, columns)
        for chunk in read_chunks(file, file_format, header=header):
            check_dense(chunk.frame, schema, file=file, line_of=chunk.line_of)
            yield chunk.frame.select(columns)


def read_json_lines(
    lines: IO[str] | Iterable[str], schema: Schema, *, name: str = "stdin", also: Sequence[str] = ()
) -> Iterator[pl.DataFrame]:
    """JSON objects, one a line, as frames of those columns."""
    rows = ((number, _parse(line, number, name)) for number, line in enumerate(lines, 1) if line.strip())
    while chunk := list(islice(rows, JSON_CHUNK_ROWS)):
        numbers, dicts = zip(*chunk, strict=True)
        frame = _from_dicts(dicts, schema, needed_columns(schema, also))
        check_dense(frame, schema, file=name, line_of=numbers.__getitem__)
        yield frame


def check_columns(found: Sequence[str], columns: Sequence[str], *, file: str | Path | None = None) -> None:
    for column in columns:
        if column not in found:
            raise DataError(unknown_column(column, list(found)), file=file)


def _from_dicts(rows: Sequence[Any], schema: Schema, columns: Sequence[str]) -> pl.DataFrame:
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise DataError(f"row {number} is a {type(row).__name__}; each row must be a dict of column: value")
    if rows:  # a column no row has is a typing error, not a missing value
        check_columns(list(dict.fromkeys(name for row in rows for name in row)), columns)
    return pl.DataFrame([_from_values(name, [row.get(name) for row in rows], schema) for name in columns])


def _from_values(name: str, values: Iterable[Any], schema: Schema) -> pl.Series:
    """The cells of one column. Where all are numbers they stay so, which changes nothing in what they mean."""
    cells = list(values)
    kinds = set(map(type, cells)) - {NoneType}
    if not kinds <= PLAIN_TYPES:
        cells = [_read_cell(name, row, value) for row, value in enumerate(cells)]
        kinds = set(map(type, cells)) - {NoneType}
    if list in kinds:
        return _from_lists(name, cells, schema)
    if kinds == {int} and all(cell is None or abs(cell) < SHORT_INTEGERS for cell in cells):
        return pl.Series(name, cells, pl.Int64)
    if kinds == {float} or kinds == {bool}:
        return pl.Series(name, cells, pl.Float64 if kinds == {float} else pl.Boolean)
    return pl.Series(name, [text_of(cell) for cell in cells], pl.String)


def _read_cell(name: str, row: int, value: Any) -> Any:
    try:
        return plain_cell(value)
    except TypeError as error:
        raise DataError(f"row {row} holds {error}", column=name) from None


def _from_lists(name: str, cells: Sequence[Any], schema: Schema) -> pl.Series:
    """Cells of a multi-valued field, some of which are lists; a text among them is divided as it is in a file."""
    if name in _single_columns(schema):
        row = next(at for at, cell in enumerate(cells) if isinstance(cell, list))
        raise DataError(f"row {row} holds {cells[row]!r}, where one value is expected", column=name)
    separator = next((field.separator for field in schema.bag_fields if field.column == name), "")
    lists: list[Any] = []
    for cell in cells:
        if isinstance(cell, list):
            lists.append([text_of(one) for one in cell])
        else:
            text = text_of(cell)
            lists.append(None if not text else text.split(separator) if separator else [text])
    return pl.Series(name, lists, pl.List(pl.String))


def _single_columns(schema: Schema) -> set[str]:
    return {field.column for field in schema.single_fields} | {dense.column for dense in schema.dense}


def _from_pandas(name: str, column: Any, schema: Schema) -> pl.Series:
    """A pandas column; NaN is a missing value, and whole numbers that only NaN made floats are whole again."""
    kind = column.dtype
    if not (isinstance(kind, np.dtype) and kind.kind in "iuf" and kind.itemsize <= 8):
        return _from_values(name, column, schema)
    numbers = pl.Series(name, column.to_numpy(), nan_to_null=True)
    whole = numbers.cast(pl.Int64, strict=False)
    exact = numbers.has_nulls() and bool((numbers.abs() < EXACT_INTEGERS).all())
    return whole if exact and numbers.eq_missing(whole).all() else numbers


def _parse(line: str, number: int, name: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise DataError(f"not a JSON object ({error}); each line must be one", file=name, line=number) from None


def _resolve(file: Path, schema: Schema, columns: Sequence[str]) -> tuple[FileFormat, bool]:
    """How to read a file, and whether its first line names the columns: as in training, or as the file itself says."""
    known = schema.file_format
    if is_parquet(file):
        found = resolve_format(file, known)
        check_columns(found.columns, columns, file=file)
        return found, True
    whole = _first_cells(file, replace(known, delimiter="\x1f"))  # the first line, to see what stands between its cells
    for delimiter in (known.delimiter, "", other_delimiter(whole)):
        # names given, so that a first line which is data is not taken for names
        told = resolve_format(file, replace(known, delimiter=delimiter, columns=("unread",)))
        cells = _first_cells(file, told)
        if set(columns) <= set(cells):
            return resolve_format(file, replace(told, columns=())), True
        without_label = tuple(name for name in known.columns if name != schema.label.column)
        if not set(columns) & set(cells):  # no header: the columns are those of training
            for names in (known.columns, without_label):
                if len(cells) == len(names):
                    return replace(told, columns=names), False
    check_columns(cells, columns, file=file)
    raise AssertionError("unreachable: some column is missing")


def _first_cells(file: Path, file_format: FileFormat) -> list[str]:
    first = next(read_blocks(file, quote=file_format.quote, block_bytes=1 << 16))
    lines = first.data.decode(file_format.encoding, "replace").lstrip("\r\n").splitlines()
    quoting: Any = {"quotechar": file_format.quote} if file_format.quote else {"quoting": csv.QUOTE_NONE}
    return next(csv.reader(lines, delimiter=file_format.delimiter, **quoting))
