"""RowEncoder: raw rows → feature ids with the schema and vocabularies of a table, for prediction and new files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.encode.transforms import as_numbers, bag_values, dense_values, field_values, scale_dense
from thresher.data.encode.vocabulary import Vocabulary
from thresher.data.read.delimiters import other_delimiter
from thresher.data.schema import Schema
from thresher.errors import DataError, FormatError

FEW_ROWS = 1000


@dataclass(frozen=True, eq=False)
class EncodedBag:
    """The feature ids of a multi-valued field: row i has `values[offsets[i]:offsets[i + 1]]`."""

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]  # [n + 1]


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Rows ready for a model."""

    ids: NDArray[np.int32]  # [n, F], global feature ids of the single-valued fields
    dense: NDArray[np.float32] | None = None  # [n, K]
    bags: tuple[EncodedBag, ...] = ()  # one per multi-valued field


class RowEncoder:
    """Encodes raw rows exactly as `encode` did for training; unseen values become their field's unknown feature."""

    def __init__(self, schema: Schema, vocabularies: Sequence[Vocabulary]) -> None:
        sizes = tuple(vocabulary.size for vocabulary in vocabularies)
        if sizes != schema.field_sizes:
            raise FormatError(f"the vocabularies have sizes {sizes}, the schema says {schema.field_sizes}")
        self.schema, self.vocabularies = schema, tuple(vocabularies)
        self._offsets = np.array(schema.field_offsets, np.int32)

    def encode_frame(self, frame: pl.DataFrame) -> EncodedRows:
        """Encode a frame that has the raw columns; the label may be absent.

        A dense value that is no number raises, as it does in training: a row must not pass for an average one.
        """
        schema = self.schema
        texts: list[pl.Series] = []  # of the single-valued fields
        bags: list[EncodedBag] = []
        for at, field in enumerate(schema.fields):
            column, vocabulary = raw_column(frame, field.column), self.vocabularies[at]
            if field.pooling is None:
                texts.append(vocabulary.as_written(field_values(field, column), column.dtype))
            else:
                values, offsets = bag_values(field, column)
                local_ids = vocabulary.to_ids(vocabulary.as_written(field_values(field, values), values.dtype))
                bags.append(EncodedBag(local_ids + np.int32(self._offsets[at]), offsets))
        ids = self._ids(texts, len(frame))
        if not schema.dense:
            return EncodedRows(ids, None, tuple(bags))
        dense = np.empty((len(frame), schema.num_dense), np.float32)
        for at, wanted in enumerate(schema.dense):
            dense[:, at], broken = dense_values(wanted, raw_column(frame, wanted.column))
            if broken.any():
                check_dense(frame, schema)
        return EncodedRows(ids, scale_dense(schema.dense, dense), tuple(bags))

    def _ids(self, texts: Sequence[pl.Series], num_rows: int) -> NDArray[np.int32]:
        ids = np.empty((num_rows, len(texts)), np.int32)
        hashes: NDArray[np.uint64] | None = None
        if texts and num_rows <= FEW_ROWS:  # one call for all fields: for a single row, calls are all that costs
            flat = pl.Series([value for text in texts for value in text.to_list()], dtype=pl.String)
            hashes = flat.hash(seed=0).to_numpy().reshape(len(texts), num_rows)
        for at, text in enumerate(texts):
            vocabulary = self.vocabularies[at]
            local_ids = None if hashes is None else vocabulary.ids_of_hashes(hashes[at])
            ids[:, at] = vocabulary.to_ids(text) if local_ids is None else local_ids
        return ids + self._offsets[: len(texts)]

    def save(self, folder: str | Path) -> None:
        """Write schema.json and vocabularies/."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schema.json").write_text(self.schema.to_json(), encoding="utf-8")
        for at, vocabulary in enumerate(self.vocabularies):
            vocabulary.save(folder / "vocabularies" / f"{at}.parquet")

    @classmethod
    def load(cls, folder: str | Path) -> "RowEncoder":
        """Read what `save` wrote: from an encoded table's folder or a bundle."""
        folder = Path(folder)
        try:
            schema = Schema.from_json((folder / "schema.json").read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise FormatError(f"{folder}: schema.json is missing or unreadable") from error
        paths = [folder / "vocabularies" / f"{at}.parquet" for at in range(schema.num_fields)]
        return cls(schema, [Vocabulary.load(path) for path in paths])


def check_dense(
    frame: pl.DataFrame,
    schema: Schema,
    *,
    file: str | Path | None = None,
    line_of: Callable[[int], int] | None = None,
) -> None:
    """Raise for the first dense value that is no number: by file and line where they are known, else by row, from 1."""
    for dense in schema.dense:
        column = raw_column(frame, dense.column)
        broken = np.flatnonzero(as_numbers(column)[1])
        if len(broken):
            row = int(broken[0])
            line = None if line_of is None else line_of(row)
            value = f"{column[row : row + 1].to_list()[0]!r}" + (f" in row {row + 1}" if line is None else "")
            raise DataError(f"{value} is not a number", file=file, line=line, column=dense.column)


def raw_column(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column of raw rows, or an error that names the nearest one."""
    if name in frame.columns:
        return frame[name]
    raise DataError(unknown_column(name, frame.columns))


def unknown_column(name: str, columns: Sequence[str]) -> str:
    """The words for a column that is not there."""
    if sign := other_delimiter(columns):
        return f"no column {name!r}; the column names look separated by {sign!r}"
    near = get_close_matches(name, columns, 1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(columns[:20]) or 'none'}"
    return f"no column {name!r}; {hint}"
