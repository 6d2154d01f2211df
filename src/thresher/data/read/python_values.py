"""Python values (cells of dicts, lists and object columns) → polars columns.

A cell is converted independently of the other cells in its column; its text equals the text that `as_text` gives to a
polars column of its type.
"""

from collections.abc import Iterable, Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import polars as pl

from thresher._internal.forked import check_polars
from thresher.data.read.column_values import EXACT_INTEGERS, as_text, temporal_text
from thresher.data.schema import Schema
from thresher.errors import DataError

Plain: TypeAlias = str | int | float | bool | None

INT64_LIMIT = 2**63


def values_to_series(name: str, values: Iterable[Any], schema: Schema | None = None) -> pl.Series:
    """One column: numbers if all cells are numbers of one type, otherwise text or lists of text.

    Of a `schema`, the field says whether a cell may hold several values, and how text cells beside lists are split.
    """
    check_polars(f"converting column {name!r}")
    cells = list(values)
    kinds = set(map(type, cells)) - {NoneType}
    if not kinds <= {str, int, float, bool}:
        for row, value in enumerate(cells):
            try:
                cells[row] = plain_cell(value)
            except TypeError as error:
                raise DataError(f"row {row} holds {error}", row=row, column=name) from None
        kinds = set(map(type, cells)) - {NoneType}
    if list in kinds:
        return _lists_to_series(name, cells, schema)
    if kinds == {int} and all(cell is None or abs(cell) < INT64_LIMIT for cell in cells):
        return pl.Series(name, cells, pl.Int64)
    if kinds == {float} or kinds == {bool}:
        return pl.Series(name, cells, pl.Float64 if kinds == {float} else pl.Boolean)
    return pl.Series(name, [plain_text(cell) for cell in cells], pl.String)


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
    if type(value).__name__ in ("Interval", "Period"):  # of pandas, e.g. by `pd.cut`
        return str(value)
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


def _lists_to_series(name: str, cells: Sequence[Any], schema: Schema | None) -> pl.Series:
    """A column of a multi-valued field. Text cells among the lists are split as they are in files."""
    separator = ""
    if schema is not None:
        single = {field.column for field in schema.single_fields} | {column.column for column in schema.dense}
        if name in single:
            row = next(at for at, cell in enumerate(cells) if isinstance(cell, list))
            raise DataError(f"row {row} holds {cells[row]!r}; expected one value", row=row, column=name)
        separator = next((field.separator for field in schema.bag_fields if field.column == name), "")
    lists: list[Any] = []
    for cell in cells:
        if isinstance(cell, list):
            lists.append([plain_text(one) for one in cell])
        else:
            text = plain_text(cell)
            lists.append(None if not text else text.split(separator) if separator else [text])
    return pl.Series(name, lists, pl.List(pl.String))
