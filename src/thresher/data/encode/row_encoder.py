"""RowEncoder: raw rows → feature ids, with the schema and vocabularies of a table; for prediction and new files."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher._internal.forked import check_polars
from thresher._internal.storage.documents import check_regular, damaged_file
from thresher.data.encode.transforms import bag_values, dense_values, field_values, scale_dense
from thresher.data.read.column_values import as_numbers, raw_column
from thresher.data.read.data_frames import DataFrame, to_polars
from thresher.data.schema import Schema
from thresher.data.table import Bag, EncodedRows as EncodedRows, read_schema, verify_files
from thresher.data.vocabulary.indexed_vocabulary import IndexedVocabulary, Spelling
from thresher.errors import FormatError, WrongValueError

FEW_ROWS = 1000


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The values of one field that are features, by count and then by value: value `i` has local id `i + 1`."""

    values: pl.Series
    counts: NDArray[np.int64]  # occurrences in the rows the vocabulary was built from

    @property
    def size(self) -> int:
        """Number of local ids, including 0, the unknown feature."""
        return len(self.values) + 1

    @cached_property
    def _enum(self) -> pl.Enum:
        try:
            return pl.Enum(self.values)
        except ValueError as error:
            raise FormatError(f"a vocabulary is damaged ({error}); encode the data again") from None

    @cached_property
    def _by_hash(self) -> tuple[NDArray[np.uint64], NDArray[np.int32]] | None:
        """The sorted hashes of all values, and their local ids; None if two hashes are equal."""
        hashes = self.values.hash(seed=0).to_numpy()
        order = np.argsort(hashes)
        hashes = hashes[order]
        return None if (hashes[1:] == hashes[:-1]).any() else (hashes, (order + 1).astype(np.int32))

    def ids_of_hashes(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32] | None:
        """Local ids of values given by their `Series.hash(seed=0)`; None if two values have the same hash."""
        if not len(self.values):
            return np.zeros(len(hashes), np.int32)
        if self._by_hash is None:
            return None
        known, local_ids = self._by_hash
        places = np.minimum(known.searchsorted(hashes), len(known) - 1)
        return np.where(known[places] == hashes, local_ids[places], np.int32(0))

    def to_ids(self, values: pl.Series) -> NDArray[np.int32]:
        """Local ids of a String series; 0 for values that are not in the vocabulary."""
        if not len(self.values):
            return np.zeros(len(values), np.int32)
        # a cast to Enum takes time proportional to the vocabulary: too slow for the few rows of a prediction
        if 4 * len(values) < len(self.values):
            local_ids = self.ids_of_hashes(values.hash(seed=0).to_numpy())
            if local_ids is not None:
                return local_ids
        physical = values.cast(self._enum, strict=False).to_physical()
        return (physical.cast(pl.Int32) + 1).fill_null(0).to_numpy()

    @cached_property
    def spelling(self) -> Spelling:
        return Spelling.of(self.values)

    @property
    def complete(self) -> bool:
        """Whether all values are known; an indexed vocabulary may omit values of dropped features."""
        return True

    @cached_property
    def has_missing(self) -> bool:
        """Whether a missing value is a feature of its own."""
        return "" in self.values

    @property
    def example(self) -> str | None:
        """The most frequent value."""
        return self.values[0] if len(self.values) else None

    def items(self) -> Iterator[tuple[str, int]]:
        """All values with their local ids."""
        return zip(self.values.to_list(), range(1, self.size), strict=True)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        pl.DataFrame({"value": self.values, "count": self.counts}).write_parquet(path)

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        check_regular(path)
        check_polars(f"reading {path}")
        with damaged_file(str(path), "Encode the data again."):
            frame = pl.read_parquet(path, glob=False)
            values, counts = frame["value"], frame["count"]
            if values.dtype != pl.String or values.null_count() or not counts.dtype.is_integer():
                raise ValueError("expected texts and their counts")
            return cls(values, counts.to_numpy())


AnyVocabulary = Vocabulary | IndexedVocabulary


class RowEncoder:
    """Encodes raw rows as `encode` did for training; values that are not in the vocabulary become unknown."""

    def __init__(self, schema: Schema, vocabularies: Sequence[AnyVocabulary]) -> None:
        sizes = tuple(vocabulary.size for vocabulary in vocabularies)
        if sizes != schema.field_sizes:
            raise FormatError(f"the vocabularies have sizes {sizes}, but the schema has {schema.field_sizes}")
        self.schema, self.vocabularies = schema, tuple(vocabularies)
        self._offsets = np.array(schema.field_offsets, np.int32)

    @property
    def full_vocabularies(self) -> tuple[Vocabulary, ...]:
        """The vocabularies of an encoded table; those of a bundle are indexed and may omit values."""
        full = tuple(each for each in self.vocabularies if isinstance(each, Vocabulary))
        if len(full) != len(self.vocabularies):
            raise FormatError("the vocabularies of a bundle do not list all values. Use those of the encoded table.")
        return full

    def encode_frame(self, frame: DataFrame) -> EncodedRows:
        """Encode a polars or pandas frame with the raw columns; the label is not needed."""
        check_polars("encoding a data frame")
        schema = self.schema
        frame = frame if isinstance(frame, pl.DataFrame) else to_polars(frame, schema.input_columns, schema)
        texts: list[pl.Series] = []  # of the single-valued fields
        bags: list[Bag] = []
        for at, field in enumerate(schema.fields):
            raw, vocabulary = raw_column(frame, field.column), self.vocabularies[at]
            if field.pooling is None:
                texts.append(vocabulary.spelling.respell(field_values(field, raw), raw.dtype))
            else:
                values, offsets = bag_values(field, raw)
                local_ids = vocabulary.to_ids(vocabulary.spelling.respell(field_values(field, values), values.dtype))
                bags.append(Bag(at, local_ids + np.int32(self._offsets[at]), offsets, field.pooling))
        ids = self._ids(texts, len(frame))
        if not schema.dense:
            return EncodedRows(ids, None, tuple(bags))
        dense = np.empty((len(frame), schema.num_dense), np.float32)
        for at, column in enumerate(schema.dense):
            dense[:, at], broken = dense_values(column, raw_column(frame, column.column))
            if broken.any():
                check_dense(frame, schema)  # raises, as in training
        return EncodedRows(ids, scale_dense(schema.dense, dense), tuple(bags))

    def _ids(self, texts: Sequence[pl.Series], num_rows: int) -> NDArray[np.int32]:
        ids = np.empty((num_rows, len(texts)), np.int32)
        hashes: NDArray[np.uint64] | None = None
        by_hash = texts and num_rows <= FEW_ROWS and isinstance(self.vocabularies[0], Vocabulary)
        if by_hash:  # one call for all fields: for a few rows the calls are the cost
            flat = pl.Series([value for text in texts for value in text.to_list()], dtype=pl.String)
            hashes = flat.hash(seed=0).to_numpy().reshape(len(texts), num_rows)
        for at, text in enumerate(texts):
            vocabulary = self.vocabularies[at]
            local_ids = None
            if hashes is not None and isinstance(vocabulary, Vocabulary):
                local_ids = vocabulary.ids_of_hashes(hashes[at])
            ids[:, at] = vocabulary.to_ids(text) if local_ids is None else local_ids
        return ids + self._offsets[: len(texts)]

    def save(self, folder: str | Path) -> None:
        """Write schema.json and vocabularies/."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schema.json").write_text(self.schema.to_json(), encoding="utf-8")
        for at, vocabulary in enumerate(self.full_vocabularies):
            vocabulary.save(folder / "vocabularies" / f"{at}.parquet")

    @classmethod
    def load(cls, folder: str | Path) -> "RowEncoder":
        """Load from the folder of an encoded table. The encoder of a bundle is `load_bundle(folder).encoder`."""
        folder = Path(folder)
        schema = read_schema(folder)
        names = [f"vocabularies/{at}.parquet" for at in range(schema.num_fields)]
        verify_files(folder, ["schema.json", *names])  # before the parse: polars may abort on a damaged file
        return cls(schema, [Vocabulary.load(folder / name) for name in names])


def check_dense(
    frame: pl.DataFrame, schema: Schema, *, file: str | Path | None = None, line_of: Callable[[int], int] | None = None
) -> None:
    """Raise for the first dense value that is not a number, with its file and line if known, else its row, from 0."""
    for dense in schema.dense:
        column = raw_column(frame, dense.column)
        broken = np.flatnonzero(as_numbers(column)[1])
        if len(broken):
            row = int(broken[0])
            line = None if line_of is None else line_of(row)
            value = f"{column[row : row + 1].to_list()[0]!r}" + (f" in row {row}" if line is None else "")
            raise WrongValueError(f"{value} is not a number", file=file, line=line, row=row, column=dense.column)


def count_unknown(ids: NDArray[np.int32], schema: Schema) -> NDArray[np.int64]:
    """Rows of `ids` `[rows, F]` with the unknown feature, for each single-valued field `[F]`."""
    return np.asarray((ids == np.array(schema.field_offsets[: ids.shape[1]], np.int32)).sum(axis=0))
