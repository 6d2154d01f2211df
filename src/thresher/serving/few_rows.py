"""A few rows as dicts → feature ids without polars, whose fixed costs would exceed the rest of a prediction."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from thresher.data.encode.dict_rows import DictRows, NotPlainError
from thresher.data.table import EncodedRows
from thresher.data.vocabulary.indexed_vocabulary import IndexedVocabulary

if TYPE_CHECKING:
    from thresher.data.encode.row_encoder import RowEncoder

FEW_ROWS = 64


def dict_rows(encoder: "RowEncoder") -> DictRows | None:
    """The encoder of dicts of a bundle's encoder; None if its vocabularies are not indexed."""
    vocabularies = [each for each in encoder.vocabularies if isinstance(each, IndexedVocabulary)]
    return DictRows(encoder.schema, vocabularies) if len(vocabularies) == encoder.schema.num_fields else None


def encode_few(encoder: DictRows | None, rows: Sequence[Any], limit: int | None) -> EncodedRows | None:
    """The ids of a few dicts; None if there are many, or if only polars can encode or reject them."""
    if encoder is None or not rows or (limit is not None and len(rows) > limit):
        return None
    if not all(isinstance(row, Mapping) for row in rows):
        return None
    try:
        return encoder.encode(rows)
    except NotPlainError:
        return None
