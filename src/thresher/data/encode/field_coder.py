"""FieldCoder: raw columns → provisional codes of one vocabulary; transforms run once per distinct raw value.

Fields that share a vocabulary share a coder. A column with very many distinct raw values (prices, timestamps) is
transformed row by row instead, so that memory follows the vocabulary and not the raw values.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.encode.transforms import BROKEN, field_values
from thresher.data.encode.value_coder import ValueCoder
from thresher.data.encode.vocabulary import Vocabulary
from thresher.data.schema import Field

MAX_REMEMBERED = 1 << 20


class FieldCoder:
    """Codes of all fields of one vocabulary, and how often each code was counted."""

    def __init__(self) -> None:
        self._labels = ValueCoder()
        self._remembered: dict[tuple[str, str], _Remembered] = {}
        self.broken_code = -1
        self.known: Vocabulary | None = None
        """That of an earlier table, which says how numbers are written."""
        self.new_values: list[pl.Series] = []
        """Values that got a code and are not written down yet, in the order of the codes."""

    @property
    def size(self) -> int:
        return self._labels.size

    def encode(self, field: Field, column: pl.Series) -> NDArray[np.int32]:
        """Codes of a raw column; a broken number or date has the code `broken_code`."""
        if field.transform == "none" and column.dtype == pl.String:
            return self._code(self._texts(field, column))
        key = (field.name, str(column.dtype))
        remembered = self._remembered.setdefault(key, _Remembered())
        if remembered.raw is None:
            return self._code(self._texts(field, column))
        column = column.fill_null("") if column.dtype == pl.String else column
        raw_codes, new_rows = remembered.raw.encode(column)
        if len(new_rows):
            new = self._code(self._texts(field, column.gather(new_rows)))
            remembered.labels = np.concatenate([remembered.labels, new])
        codes: NDArray[np.int32] = remembered.labels[raw_codes]
        if remembered.raw.size > MAX_REMEMBERED:
            remembered.raw, remembered.labels = None, np.empty(0, np.int32)
        return codes

    def _texts(self, field: Field, column: pl.Series) -> pl.Series:
        texts = field_values(field, column)
        return texts if self.known is None else self.known.as_written(texts, column.dtype)

    def seed(self, values: pl.Series) -> None:
        """Give values the next codes, as if they had been seen: a known vocabulary, or those of an interrupted run."""
        self._code(values)

    def forget(self) -> None:
        """Give the memory back when all rows are coded; the size stays known."""
        self._labels.forget()
        self._remembered.clear()

    def _code(self, labels: pl.Series) -> NDArray[np.int32]:
        codes, new_rows = self._labels.encode(labels)
        if len(new_rows):
            new = labels.gather(new_rows)
            self.new_values.append(new)
            broken = (new == BROKEN).arg_true()
            if len(broken):
                self.broken_code = int(codes[new_rows[broken[0]]])
        return codes


class _Remembered:
    """Raw values seen so far and the code of each one's label."""

    def __init__(self) -> None:
        self.raw: ValueCoder | None = ValueCoder()
        self.labels = np.empty(0, np.int32)
