"""Raw values → codes 0, 1, … by first appearance. Values are 64-bit hashes: 10⁷ collide with probability 3·10⁻⁶."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.encode.row_encoder import Vocabulary
from thresher.data.encode.transforms import BROKEN, field_values
from thresher.data.schema import Field
from thresher.kernels.compiling import kernel

_MAX_LOAD = 0.7
MAX_CACHED_VALUES = 1 << 20


class FieldCoder:
    """Raw columns → codes, for all fields of one vocabulary.

    A transform runs once per distinct raw value. A column with more than `MAX_CACHED_VALUES` distinct raw values
    (prices, timestamps) is transformed row by row, so that memory does not grow with the raw values.
    """

    def __init__(self) -> None:
        self._categories = ValueCoder()
        self._raw: dict[tuple[str, str], tuple[ValueCoder, NDArray[np.int32]] | None] = {}
        """By field and type, the raw values seen so far and the code of each one's category; None: too many."""
        self.broken_code = -1  # of values that should be a number or a date and are not; -1 if there are none
        self.known: Vocabulary | None = None  # of an earlier table; it determines how numbers are spelled
        self.new_values: list[pl.Series] = []  # that got a code and are not yet written, in the order of the codes

    @property
    def size(self) -> int:
        return self._categories.size

    def encode(self, field: Field, column: pl.Series) -> NDArray[np.int32]:
        """The codes of a raw column."""
        key = field.name, str(column.dtype)
        cached = self._raw.setdefault(key, (ValueCoder(), np.empty(0, np.int32)))
        if cached is None or (field.transform == "none" and column.dtype == pl.String):
            return self.add(self._category_values(field, column))
        raw, codes = cached
        column = column.fill_null("") if column.dtype == pl.String else column
        raw_codes, new_rows = raw.encode(column)
        if len(new_rows):
            new = self.add(self._category_values(field, column.gather(new_rows)))
            codes = np.concatenate([codes, new])
        self._raw[key] = None if raw.size > MAX_CACHED_VALUES else (raw, codes)
        return codes[raw_codes]

    def free(self) -> None:
        """Free the memory once all rows are coded; `size` stays available."""
        self._categories.free()
        self._raw.clear()

    def _category_values(self, field: Field, column: pl.Series) -> pl.Series:
        values = field_values(field, column)
        return values if self.known is None else self.known.spelling.respell(values, column.dtype)

    def add(self, values: pl.Series) -> NDArray[np.int32]:
        """The codes of categories; new ones get the next codes."""
        codes, new_rows = self._categories.encode(values)
        if len(new_rows):
            new = values.gather(new_rows)
            self.new_values.append(new)
            broken = (new == BROKEN).arg_true()
            if len(broken):
                self.broken_code = int(codes[new_rows[broken[0]]])
        return codes


class ValueCoder:
    """A growing map from the hash of a value to its code."""

    def __init__(self) -> None:
        self._keys = np.zeros(1024, np.uint64)  # 0: the slot is free
        self._codes = np.zeros(1024, np.int32)
        self.size = 0

    def encode(self, values: pl.Series) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The codes of the values, and the rows in which new codes first appear, in the order of the codes."""
        hashes = values.hash(seed=0).to_numpy()
        codes = np.empty(len(hashes), np.int32)
        first_rows = np.empty(min(len(hashes), 1 << 16), np.int64)
        pieces: list[NDArray[np.int64]] = []
        done = 0
        while True:
            room = int(len(self._keys) * _MAX_LOAD) - self.size
            limit = self.size + min(room, len(first_rows))
            done, size = _insert(self._keys, self._codes, self.size, limit, hashes, codes, first_rows, done)
            if size > self.size:
                pieces.append(first_rows[: size - self.size].copy())
            self.size = size
            if done == len(hashes):
                break
            if self.size >= int(len(self._keys) * _MAX_LOAD):
                old_keys, old_codes = self._keys, self._codes
                self._keys = np.zeros(2 * len(old_keys), np.uint64)
                self._codes = np.zeros(2 * len(old_keys), np.int32)
                _move(old_keys, old_codes, self._keys, self._codes)
        return codes, np.concatenate(pieces) if pieces else np.empty(0, np.int64)

    def free(self) -> None:
        """Free the memory; `size` stays available."""
        self._keys, self._codes = np.zeros(0, np.uint64), np.zeros(0, np.int32)


@kernel
def _insert(keys, codes, size, limit, hashes, out, first_rows, start):  # type: ignore[no-untyped-def]
    """Code rows from `start` until the map has `limit` values. Returns the row where it stopped, and the new size."""
    mask = np.uint64(len(keys) - 1)
    before = size
    for row in range(start, len(hashes)):
        key = hashes[row]
        if key == 0:
            key = np.uint64(1)
        slot = key & mask
        while keys[slot] != key and keys[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        if keys[slot] == 0:
            if size == limit:
                return row, size
            keys[slot] = key
            codes[slot] = size
            first_rows[size - before] = row
            size += 1
        out[row] = codes[slot]
    return len(hashes), size


@kernel
def _move(old_keys, old_codes, keys, codes):  # type: ignore[no-untyped-def]
    mask = np.uint64(len(keys) - 1)
    for at in range(len(old_keys)):
        key = old_keys[at]
        if key != 0:
            slot = key & mask
            while keys[slot] != 0:
                slot = (slot + np.uint64(1)) & mask
            keys[slot] = key
            codes[slot] = old_codes[at]


@kernel
def add_counts(counts, codes, chosen):  # type: ignore[no-untyped-def]
    """counts[code] += 1 for each chosen row."""
    for row in range(len(codes)):
        if chosen[row]:
            counts[codes[row]] += 1


@kernel
def replace_codes(codes, tables, starts):  # type: ignore[no-untyped-def]
    """codes[row, f] = tables[starts[f] + codes[row, f]]."""
    for row in range(codes.shape[0]):
        for field in range(codes.shape[1]):
            codes[row, field] = tables[starts[field] + codes[row, field]]
