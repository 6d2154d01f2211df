"""pandas and polars data frames → polars frames. pandas is never imported, and pyarrow is not needed.

Numbers, also nullable ones, booleans, dates, text and categories of pandas keep their type. Cells of any other type are
converted one by one.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import polars as pl

from thresher._internal.forked import check_polars
from thresher.data.read.column_values import EXACT_INTEGERS, check_columns
from thresher.data.read.python_values import values_to_series
from thresher.data.schema import Schema
from thresher.errors import DataError

SUPPORTED_UNITS = ("ns", "us", "ms")  # of dates in polars


class PandasFrame(Protocol):
    """A pandas `DataFrame`, recognised by its attributes."""

    @property
    def columns(self) -> Any: ...

    @property
    def iloc(self) -> Any: ...

    @property
    def index(self) -> Any: ...


DataFrame: TypeAlias = pl.DataFrame | PandasFrame


def is_data_frame(value: object) -> bool:
    # iloc first: a polars LazyFrame warns on .columns
    return isinstance(value, pl.DataFrame) or (hasattr(value, "iloc") and hasattr(value, "columns"))


def to_polars(
    frame: object,
    columns: Sequence[str] | None = None,
    schema: Schema | None = None,
    *,
    expected: str = "a pandas or polars data frame",
) -> pl.DataFrame:
    """A data frame with these columns, by default all.

    Column names become text. The named levels of a pandas index are columns, too; an unnamed index is not used.

    Args:
        schema: of the fields that the columns belong to, if known.
        expected: what could have been given instead, for the error message.
    """
    check_polars("reading a data frame")
    if isinstance(frame, pl.DataFrame):
        check_columns(frame.columns, columns or ())
        frame = frame if columns is None else frame.select(columns)
        objects = [column for column in frame if column.dtype == pl.Object]
        return frame.with_columns(values_to_series(column.name, column, schema) for column in objects)
    if not is_data_frame(frame):
        hint = ". Call its collect() first" if isinstance(frame, pl.LazyFrame) else ""
        raise DataError(f"expected {expected}, got a {type(frame).__name__}{hint}")
    found = list(_pandas_columns(frame))
    names = [name for name, _ in found]
    check_columns(names, columns or ())
    for name in names if columns is None else columns:
        if names.count(name) > 1:
            raise DataError(f"{names.count(name)} columns are called {name!r}; keep one of them")
    by_name = dict(found)
    chosen = names if columns is None else columns
    return pl.DataFrame([_pandas_to_series(name, by_name[name], schema) for name in chosen])


def _pandas_columns(frame: Any) -> Iterable[tuple[str, Any]]:
    """The columns with their names, then the levels of the index that have a name no column has."""
    names: list[Hashable] = list(frame.columns)
    yield from ((str(name), frame.iloc[:, at]) for at, name in enumerate(names))
    for at, name in enumerate(frame.index.names):
        if name is not None and name not in names:
            yield str(name), frame.index.get_level_values(at).to_series()


def _pandas_to_series(name: str, column: Any, schema: Schema | None) -> pl.Series:
    kind = column.dtype
    if isinstance(kind, np.dtype):
        return _numpy_to_series(name, column.to_numpy(), schema)
    if hasattr(kind, "pyarrow_dtype"):
        return pl.Series(name, column.array.__arrow_array__())
    if hasattr(column, "cat"):
        categories = _pandas_to_series(name, column.cat.categories.to_series(), schema)
        codes = pl.Series(column.cat.codes.to_numpy()).cast(pl.Int64)
        return categories.gather(codes.replace(-1, None))
    if hasattr(kind, "numpy_dtype") and kind.numpy_dtype.kind in "iufb":  # nullable numbers and booleans
        numbers = pl.Series(name, column.to_numpy(kind.numpy_dtype, na_value=kind.numpy_dtype.type(0)))
        return numbers.set(pl.Series(column.isna().to_numpy()), None)
    if getattr(kind, "tz", None) is not None and kind.unit in SUPPORTED_UNITS:
        moments = pl.Series(name, column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
        try:
            return moments.dt.replace_time_zone("UTC").dt.convert_time_zone(str(kind.tz))
        except pl.exceptions.PolarsError:  # a time zone without a name
            return values_to_series(name, column, schema)
    if hasattr(kind, "na_value") and str(kind) in ("str", "string"):
        texts = column.to_numpy(dtype=object, na_value=None)
        return pl.Series(name, texts.tolist(), pl.String)
    return values_to_series(name, column, schema)


def _numpy_to_series(name: str, values: Any, schema: Schema | None) -> pl.Series:
    """NaN is missing, and integers that pandas made floats because of missing values are integers again."""
    kind = values.dtype
    if kind.kind == "b":
        return pl.Series(name, values)
    if kind.kind == "M":
        unit = np.datetime_data(kind)[0]
        return pl.Series(name, values if unit in SUPPORTED_UNITS else values.astype("datetime64[us]"))
    if kind.kind not in "iuf" or kind.itemsize > 8:
        return values_to_series(name, values, schema)
    numbers = pl.Series(name, values, nan_to_null=True)
    if not numbers.has_nulls():
        return numbers
    integers = numbers.cast(pl.Int64, strict=False)
    exact = bool((numbers.abs() < EXACT_INTEGERS).all())
    return integers if exact and numbers.eq_missing(integers).all() else numbers
