"""DictRows: a few rows as dicts → feature ids, in plain Python; equal to `RowEncoder.encode_frame`, without polars.

Texts, numbers, booleans and None are encoded here. A cell of another type, a date or an unusual number is encoded
through polars, cell by cell; dates are remembered.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from operator import itemgetter
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from thresher.data.schema import DenseColumn, Field, Schema
from thresher.data.table import Bag, EncodedRows
from thresher.data.vocabulary.field_lookup import FieldLookup
from thresher.data.vocabulary.indexed_vocabulary import IndexedVocabulary

EXACT_INTEGERS, INT64_LIMIT = 2.0**53, 2**63
REMEMBERED_DATES = 10_000
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,2})?")


class NotPlainError(ValueError):
    """A row that only `RowEncoder.encode_frame` can encode, or reject with a message."""


class DictRows:
    """Encodes dicts of raw values with a schema and indexed vocabularies. Safe to use in threads."""

    def __init__(self, schema: Schema, vocabularies: Sequence[IndexedVocabulary]) -> None:
        self.schema, self.columns = schema, schema.input_columns
        place = {column: at for at, column in enumerate(self.columns)}
        fields = list(zip(schema.fields, vocabularies, schema.field_offsets, strict=True))
        texts = [at for at, (field, _, _) in enumerate(fields) if field.pooling is None and field.transform == "none"]
        self._cells_of = _getter(self.columns)
        self._texts = TextFields([fields[at][1] for at in texts], [fields[at][2] for at in texts])
        self._text_fields, text_places = texts, [place[fields[at][0].column] for at in texts]
        self._texts_of = None if text_places == list(range(len(self.columns))) else _getter(text_places)
        self._others = [
            (at, place[field.column], _find_feature(field, vocabulary), offset)
            for at, (field, vocabulary, offset) in enumerate(fields)
            if field.pooling is None and field.transform != "none"
        ]
        self._bags = [
            (at, field, place[field.column], _find_feature(field, vocabulary), offset)
            for at, (field, vocabulary, offset) in enumerate(fields)
            if field.pooling is not None
        ]
        self._dense_columns = [(column, place[column.column]) for column in schema.dense]
        numbers = [(column.mean, column.scale) for column in schema.dense]
        self._mean, self._scale = np.array(numbers, np.float64).reshape(-1, 2).T

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> EncodedRows:
        """Encode rows; raises `NotPlainError` for rows that need `encode_frame`."""
        try:
            cells = [self._cells_of(row) for row in rows]
        except KeyError:  # an absent cell is missing, but a column that no row has is an error
            raise NotPlainError from None
        return self.encode_cells(cells)

    def encode_cells(self, rows: Sequence[Sequence[Any]]) -> EncodedRows:
        """Encode rows whose cells are in the order of `columns`."""
        cells = rows if self._texts_of is None else map(self._texts_of, rows)
        ids = np.empty((len(rows), len(self._text_fields) + len(self._others)), np.int32)
        if self._text_fields:
            ids[:, self._text_fields] = self._texts.find(list(chain.from_iterable(cells)))
        for at, place, find, offset in self._others:
            ids[:, at] = [find(row[place]) + offset for row in rows]
        bags = tuple(self._bag(rows, *each) for each in self._bags)
        return EncodedRows(ids, self._dense(rows) if self.schema.dense else None, bags)

    def _dense(self, rows: Sequence[Sequence[Any]]) -> NDArray[np.float32]:
        cells = [[_dense_number(column, row[place]) for column, place in self._dense_columns] for row in rows]
        # float32 first, as `encode_frame` does
        numbers = np.array(cells, np.float32).reshape(len(rows), -1)
        return np.asarray(np.nan_to_num((numbers - self._mean) / self._scale), np.float32)

    def _bag(self, rows: Sequence[Sequence[Any]], at: int, field: Field, place: int, find: Any, offset: int) -> Bag:
        values: list[int] = []
        offsets = [0]
        for row in rows:
            texts = _cell_texts(row[place], field.separator)
            values += [find(text) + offset for text in texts if text]
            offsets.append(len(values))
        assert field.pooling is not None
        return Bag(at, np.array(values, np.int32), np.array(offsets, np.int64), field.pooling)


class TextFields:
    """The fields whose values are the texts of their cells: all cells are looked up together."""

    def __init__(self, vocabularies: Sequence[IndexedVocabulary], offsets: Sequence[int]) -> None:
        self._lookup = FieldLookup([vocabulary.index for vocabulary in vocabularies], offsets)
        self._spellings = [vocabulary.spelling for vocabulary in vocabularies]
        one_spelling = [
            (at, each) for at, each in enumerate(self._spellings) if each.integers != each.integers_as_floats
        ]
        self._respelled_if_float = [at for at, each in one_spelling if each.integers]
        self._respelled = [at for at, each in one_spelling if each.integers_as_floats]

    def find(self, cells: list[Any]) -> NDArray[np.int32]:
        """Ids `[n, F]` of cells `[n · F]`, row by row."""
        try:
            return self._find(cells)
        except TypeError:  # not all are texts
            return self._find([self._text(cell, at) for at, cell in enumerate(cells)])

    def _find(self, texts: list[str]) -> NDArray[np.int32]:
        """The same of texts; raises TypeError for other cells."""
        respelled = self._respelled
        if self._respelled_if_float and ".0" in "".join(texts):
            respelled = [*respelled, *self._respelled_if_float]
        for at in respelled:
            part = slice(at, None, len(self._spellings))
            texts[part] = self._spellings[at].respell_texts(texts[part])
        return self._lookup.find(texts)

    def _text(self, cell: Any, at: int) -> str:
        if type(cell) is str:
            return cell
        text = _plain_text(cell)
        return self._spellings[at % len(self._spellings)].booleans.get(text, text) if type(cell) is bool else text


def _getter(keys: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that gives the items of these keys as a tuple."""
    return itemgetter(*keys) if len(keys) > 1 else partial(_items, tuple(keys))


def _items(keys: Sequence[Any], row: Any) -> tuple[Any, ...]:
    return tuple(row[key] for key in keys)


def _find_feature(field: Field, vocabulary: IndexedVocabulary) -> Any:
    """A function from the raw value of a field to its local id."""
    if field.transform == "none":
        return partial(_find_text, vocabulary.index.find, vocabulary.spelling.respell_text)
    if field.transform == "hash":
        return partial(_find_hash, vocabulary, field.num_buckets)
    if field.transform == "date":
        remembered = lru_cache(REMEMBERED_DATES)(partial(_find_by_polars, field, vocabulary))
        return partial(_find_date, remembered, field, vocabulary)
    return partial(_find_bucket, field, vocabulary, {})


def _find_text(find: Any, respell: Any, text: str) -> int:
    return int(find(respell(text)))


def _find_hash(vocabulary: IndexedVocabulary, num_buckets: int, value: Any) -> int:
    text = _plain_text(value)
    hashed = str(crc32(text.encode()) % num_buckets) if text else ""
    return vocabulary.index.find(vocabulary.spelling.respell_text(hashed, boolean=type(value) is bool))


def _find_date(remembered: Any, field: Field, vocabulary: IndexedVocabulary, value: Any) -> int:
    if type(value) is str or value is None:  # other types may be equal and mean something else
        return int(remembered(value))
    return _find_by_polars(field, vocabulary, value)


def _find_bucket(field: Field, vocabulary: IndexedVocabulary, known: dict[int, int], value: Any) -> int:
    number = _plain_number(value)
    if number is None:
        return _find_by_polars(field, vocabulary, value)
    if number != number:
        return vocabulary.index.find(vocabulary.spelling.respell_text(""))
    bucket = _bucket(field, number - field.shift)
    if bucket not in known:  # the buckets that occur; only logarithms and edges decide how many
        if len(known) > 4096:
            known.clear()
        known[bucket] = vocabulary.index.find(vocabulary.spelling.respell_text(str(bucket)))
    return known[bucket]


def _bucket(field: Field, number: float) -> int:
    """`transforms.log2_buckets` or `quantile_buckets` of one number."""
    if field.transform == "quantiles":
        first, last, edges = 0, len(field.edges), field.edges
        while first < last:
            middle = (first + last) // 2
            first, last = (middle + 1, last) if edges[middle] <= number else (first, middle)
        return first
    if number <= 2:
        return int(max(math.floor(number) - 2, -(2**62)))
    log = float(np.log(number))  # math.log may differ in the last bit
    return math.floor(log * log)


def _find_by_polars(field: Field, vocabulary: IndexedVocabulary, value: Any) -> int:
    from thresher.data.encode.transforms import field_values
    from thresher.data.read.python_values import values_to_series

    column = values_to_series(field.column, [value])
    if column.dtype.is_nested():
        raise NotPlainError
    return int(vocabulary.to_ids(vocabulary.spelling.respell(field_values(field, column), column.dtype))[0])


def _plain_text(value: Any) -> str:
    """The text of a cell, as `as_text` gives it to a polars column of its type."""
    kind = type(value)
    if kind is str:
        return str(value)
    if value is None:
        return ""
    if kind is bool:
        return "True" if value else "False"
    if kind is int:
        return str(value)
    if kind is float:
        if value != value:
            return ""
        if value.is_integer() and abs(value) < EXACT_INTEGERS:
            return str(int(value))
        if 1e-4 <= abs(value) < 1e15:  # outside of this range Python and polars write floats differently
            return repr(value)
    raise NotPlainError


def _plain_number(value: Any) -> float | None:
    """A cell as a finite number, NaN if it is missing, None if polars must decide."""
    kind = type(value)
    if kind is float or (kind is int and abs(value) < INT64_LIMIT):
        return None if math.isinf(value) else float(value)
    if value is None or (kind is str and not value):
        return math.nan
    if kind is str and len(value) < 40 and _NUMBER.fullmatch(value):
        return float(value)
    return None


def _dense_number(column: DenseColumn, cell: Any) -> float:
    number = _plain_number(cell)
    if number is None:
        raise NotPlainError
    return float(np.sign(number) * np.log1p(np.abs(number))) if column.scaling == "log" else number


def _cell_texts(value: Any, separator: str) -> list[str]:
    """The texts of a multi-valued cell."""
    if type(value) is str:
        return value.split(separator) if separator else [value]
    if value is None:
        return []
    if type(value) is list or type(value) is tuple:
        return [_plain_text(one) for one in value]
    raise NotPlainError
