"""RowEncoder: raw rows → feature ids with the schema and vocabularies of a table, for prediction and new files."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.schema import Schema
from thresher.data.transforms import as_numbers, field_values
from thresher.data.vocabulary import Vocabulary
from thresher.errors import DataError, FormatError


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Rows ready for a model."""

    ids: NDArray[np.int32]  # [n, F], global feature ids
    dense: NDArray[np.float32] | None = None  # [n, K]


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
        ids = np.empty((len(frame), schema.num_fields), np.int32)
        for at, (field, vocabulary, offset) in enumerate(
            zip(schema.fields, self.vocabularies, schema.field_offsets, strict=True)
        ):
            ids[:, at] = vocabulary.to_ids(field_values(field, raw_column(frame, field.column))) + offset
        if not schema.dense:
            return EncodedRows(ids)
        dense = np.empty((len(frame), schema.num_dense), np.float32)
        for at, column in enumerate(schema.dense):
            numbers, _ = as_numbers(raw_column(frame, column.column))
            dense[:, at] = np.nan_to_num((numbers - column.mean) / column.scale)  # missing: the mean
        return EncodedRows(ids, dense)

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
