"""RowEncoder: raw rows → feature ids with the schema and vocabularies of a table, for prediction and new files."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.schema import Field, Schema
from thresher.data.transforms import bag_values, dense_values, field_values
from thresher.data.vocabulary import Vocabulary
from thresher.errors import DataError, FormatError


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

    def encode_frame(self, frame: pl.DataFrame) -> EncodedRows:
        """Encode a frame that has the raw columns; the label may be absent."""
        schema = self.schema
        ids = np.empty((len(frame), len(schema.single_fields)), np.int32)
        bags: list[EncodedBag] = []
        for at, field in enumerate(schema.fields):
            column = raw_column(frame, field.column)
            if field.pooling is None:
                ids[:, at] = self._ids(at, field, column)
            else:
                values, offsets = bag_values(field, column)
                bags.append(EncodedBag(self._ids(at, field, values), offsets))
        if not schema.dense:
            return EncodedRows(ids, None, tuple(bags))
        dense = np.empty((len(frame), schema.num_dense), np.float32)
        for at, wanted in enumerate(schema.dense):
            numbers, _ = dense_values(wanted, raw_column(frame, wanted.column))
            dense[:, at] = np.nan_to_num((numbers.astype(np.float32) - wanted.mean) / wanted.scale)
        return EncodedRows(ids, dense, tuple(bags))

    def _ids(self, at: int, field: Field, column: pl.Series) -> NDArray[np.int32]:
        offset = np.int32(self.schema.field_offsets[at])
        return self.vocabularies[at].to_ids(field_values(field, column)) + offset

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
        except OSError as error:
            raise FormatError(f"{folder}: schema.json is missing or unreadable") from error
        paths = [folder / "vocabularies" / f"{at}.parquet" for at in range(schema.num_fields)]
        return cls(schema, [Vocabulary.load(path) for path in paths])


def raw_column(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column of raw rows, or an error that names the nearest one."""
    if name in frame.columns:
        return frame[name]
    raise DataError(unknown_column(name, frame.columns))


def unknown_column(name: str, columns: Sequence[str]) -> str:
    """The words for a column that is not there."""
    near = get_close_matches(name, columns, 1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(columns[:20])}"
    return f"no column {name!r}; {hint}"
