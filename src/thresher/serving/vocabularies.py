"""vocabularies.safetensors: the keys of all fields of a bundle, memory-mapped; and which features need a key.

A feature needs no key if every table of the model computes the same for it as for the unknown feature of its field, for
instance if both keep no entry and no first-order weight. Works without torch.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from thresher._internal.storage.documents import damaged_file
from thresher.compact.file import load_arrays, save_arrays
from thresher.compact.table import CompactTable
from thresher.data.schema import Schema
from thresher.data.vocabulary.indexed_vocabulary import IndexedVocabulary, Spelling
from thresher.data.vocabulary.value_index import ARRAYS, ValueIndex

if TYPE_CHECKING:
    from thresher.data.encode.row_encoder import AnyVocabulary

FILE_NAME = "vocabularies.safetensors"
FORMAT = "thresher.vocabularies"
MAX_COMPARED_WIDTH = 8  # of a table whose full rows are compared; wider rows count as different


def needs_key(tables: Iterable[Any], field_offsets: Sequence[int], num_features: int) -> npt.NDArray[np.bool_]:
    """Whether a table distinguishes a feature from the unknown one of its field, for each feature `[N]`."""
    unknown = np.repeat(field_offsets, np.diff([*field_offsets, num_features]))  # [N]
    different = np.zeros(num_features, np.bool_)
    for table in tables:
        if not isinstance(table, CompactTable):
            return np.ones(num_features, np.bool_)  # rows are shared or projected in the method's own way
        if table.embedding_dim <= MAX_COMPARED_WIDTH:
            rows = table.to_dense()
            different |= (rows != rows[unknown]).any(axis=1)
        else:
            kept = table.sizes() > 0
            different |= kept | kept[unknown]
    different[list(field_offsets)] = False
    return different


def index_vocabularies(
    schema: Schema, vocabularies: Sequence["AnyVocabulary"], keys: npt.NDArray[np.bool_]
) -> list[IndexedVocabulary]:
    """The vocabularies with only the keys of features `[N]` that need one."""
    indexed = []
    for field, offset, vocabulary in zip(schema.fields, schema.field_offsets, vocabularies, strict=True):
        needed = keys[offset : offset + field.size]
        items = [(value, local_id) for value, local_id in vocabulary.items() if needed[local_id]]
        texts, ids = zip(*items, strict=True) if items else ((), ())
        indexed.append(
            IndexedVocabulary(
                index=ValueIndex.build(texts, ids),
                size=field.size,
                spelling=vocabulary.spelling,
                has_missing=vocabulary.has_missing,
                example=vocabulary.example,
            )
        )
    return indexed


def save_vocabularies(folder: Path, vocabularies: Sequence[IndexedVocabulary]) -> None:
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    for each in vocabularies:
        for name in ARRAYS:
            parts.setdefault(str(each.index.arrays[name].dtype), []).append(each.index.arrays[name])
    arrays = {kind: np.concatenate(same) for kind, same in parts.items()}  # one array per field would need long headers
    save_arrays(folder / FILE_NAME, arrays, FORMAT, fields=_describe(vocabularies))


def count_bytes(vocabularies: Sequence[IndexedVocabulary]) -> int:
    """Bytes of `save_vocabularies`, without the few hundred of a header that differs little."""
    return sum(each.index.num_bytes for each in vocabularies) + len(json.dumps(_describe(vocabularies)).encode())


def _describe(vocabularies: Sequence[IndexedVocabulary]) -> str:
    fields = [
        {
            "arrays": [[str(each.index.arrays[name].dtype), len(each.index.arrays[name])] for name in ARRAYS],
            "base": each.index.base,
            "has_missing": each.has_missing,
            "example": each.example,
            "integers": each.spelling.integers,
            "integers_as_floats": each.spelling.integers_as_floats,
            "booleans": dict(each.spelling.booleans),
        }
        for each in vocabularies
    ]
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def load_vocabularies(folder: Path, schema: Schema, *, verify: bool = True) -> list[IndexedVocabulary]:
    """Map and check the vocabularies of a bundle."""
    path = folder / FILE_NAME
    metadata, arrays = load_arrays(path, FORMAT, verify=verify)
    with damaged_file(str(path), "Copy or export the bundle again."):
        fields = json.loads(metadata["fields"])
        if len(fields) != schema.num_fields:
            raise ValueError(f"it has {len(fields)} fields, the schema {schema.num_fields}")
        used = dict.fromkeys(arrays, 0)
        return [_read_field(field.size, each, arrays, used) for field, each in zip(schema.fields, fields, strict=True)]


def _read_field(
    size: int, content: Mapping[str, Any], arrays: Mapping[str, Any], used: dict[str, int]
) -> IndexedVocabulary:
    """The next field; `used` counts the elements of each array that earlier fields used."""
    own = {}
    for name, (kind, length) in zip(ARRAYS, content["arrays"], strict=True):
        first = used[kind]
        used[kind] = last = first + int(length)
        if not first <= last <= len(arrays[kind]):
            raise ValueError(f"{name} does not fit the array {kind}")
        own[name] = arrays[kind][first:last]
    index = ValueIndex(own, int(content["base"]))
    index.check()
    if index.largest_id >= size:
        raise ValueError(f"local id {index.largest_id} is outside a field of {size} features")
    example = content["example"]
    return IndexedVocabulary(
        index=index,
        size=size,
        spelling=Spelling.from_json(content),
        has_missing=bool(content["has_missing"]),
        example=None if example is None else str(example),
    )
