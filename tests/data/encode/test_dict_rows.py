"""Dicts are encoded as the same values in a frame."""

import math
import pickle

import numpy as np
import polars as pl
import pytest

from thresher.data.encode.dict_rows import DictRows, NotPlainError
from thresher.data.encode.row_encoder import RowEncoder, Vocabulary
from thresher.data.schema import DenseColumn, Field, Label, Schema
from thresher.data.vocabulary.indexed_vocabulary import IndexedVocabulary, Spelling
from thresher.data.vocabulary.value_index import ValueIndex
from thresher.serving.request_rows import rows_to_frame

VALUES = {
    "plain": ["3", "4", "", "Köln", "0.5", "True", "1e-05"],
    "floats": ["3.0", "4.0", "", "-7.0"],
    "flag": ["true", "false"],
    "hashed": [str(number) for number in range(30)] + [""],
    "log": [str(number) for number in range(-3, 60)] + [""],
    "parts": ["0", "1", "2", "3", ""],
    "hour": [str(number) for number in range(24)],
    "tags": ["a", "b", "c d", "3"],
}
SETTINGS = {
    "hashed": {"transform": "hash", "num_buckets": 50},
    "log": {"transform": "log2", "shift": 1.5},
    "parts": {"transform": "quantiles", "edges": (0.5, 2.0, 40.0)},
    "hour": {"transform": "date", "date_part": "hour"},
    "tags": {"pooling": "mean", "separator": "|"},
}
CELLS = ["3", "3.0", 3, 3.0, -7, "-7.0", None, "", math.nan, 0.5, "0.5", True, False, "True", "Köln", 1e-5, 1e20, "x",
         "2.5", "1e3", 1e300, "inf", "5 ", " 12", -0.0, 2**53, 2**70, "2024-03-05 09:30:00", "2024-03-05", "a|b|z",
         "a||3", 40, 39.999, "0x10", "1_0", "٣", "+4", ".5", "5.", "1e400"]  # fmt: skip


def make_encoders():
    fields = tuple(Field(name=name, size=len(v) + 1, **SETTINGS.get(name, {})) for name, v in VALUES.items())
    dense = (DenseColumn(name="x", mean=0.3, scale=1.7), DenseColumn(name="y", scaling="log", mean=1.0, scale=0.4))
    schema = Schema(fields=fields, label=Label(column="clicked"), dense=dense)
    full = [Vocabulary(pl.Series("value", v), np.ones(len(v), np.int64)) for v in VALUES.values()]
    indexed = [
        IndexedVocabulary(
            index=ValueIndex.build(list(v), range(1, len(v) + 1)),
            size=len(v) + 1,
            spelling=vocabulary.spelling,
            has_missing="" in v,
        )
        for v, vocabulary in zip(VALUES.values(), full, strict=True)
    ]
    return RowEncoder(schema, full), RowEncoder(schema, indexed), DictRows(schema, indexed)


@pytest.mark.parametrize("cell", CELLS, ids=repr)
def test_a_row_gets_the_ids_of_a_frame(cell):
    full, indexed, dicts = make_encoders()
    number = cell if isinstance(cell, float | int | None) and cell != 1e300 and not isinstance(cell, bool) else "0.25"
    row = dict.fromkeys(VALUES, cell) | {"x": number, "y": number}
    expected = full.encode_frame(frame := rows_to_frame(row, full.schema))
    results = [indexed.encode_frame(frame)]
    try:
        results.append(dicts.encode([row]))
    except NotPlainError:
        assert not isinstance(cell, str | None) or cell == "1e400" or isinstance(cell, bool)
    for found in results:
        assert found.ids.tolist() == expected.ids.tolist()
        assert np.array_equal(found.dense, expected.dense)
        assert found.bags[0].values.tolist() == expected.bags[0].values.tolist()
        assert found.bags[0].offsets.tolist() == expected.bags[0].offsets.tolist()


@pytest.mark.parametrize("others", [[], [3, None, True]], ids=["texts", "texts and others"])
def test_many_rows_get_the_ids_of_single_rows(others):
    _, _, dicts = make_encoders()
    cells = [*"abc", "Köln", "3", "3.0", "-7", "-7.0", "", "true", "True", "17", "x" * 50, *others] * 5
    rows = [dict.fromkeys(VALUES, cell) | {"x": 1, "y": 2} for cell in cells]
    rows = [row | {"log": 5, "parts": 1, "hour": "2024-03-05 09:30:00", "tags": "a|b"} for row in rows]
    single = [dicts.encode([row]).ids[0].tolist() for row in rows]
    assert dicts.encode(rows).ids.tolist() == single
    assert len({tuple(ids) for ids in single}) > 5


def test_many_numbers_get_the_buckets_of_a_frame():
    full, _, dicts = make_encoders()
    numbers = np.exp(np.random.default_rng(0).uniform(-3, 20, 3000)).tolist() + list(range(200))
    rows = [dict.fromkeys(VALUES, number) | {"tags": "a", "x": number, "y": -number} for number in numbers]
    expected, found = full.encode_frame(rows_to_frame(rows, full.schema)), dicts.encode(rows)
    assert np.array_equal(found.ids, expected.ids)
    assert np.array_equal(found.dense, expected.dense)


def test_many_rows_of_a_frame_are_found_by_the_kernels():
    full, indexed, _ = make_encoders()
    frame = pl.DataFrame({name: (values * 200)[:200] for name, values in VALUES.items()})
    frame = frame.with_columns(x=pl.lit(1.0), y=pl.lit(2.0))
    assert np.array_equal(indexed.encode_frame(frame).ids, full.encode_frame(frame).ids)


def test_rows_without_a_column_are_left_to_the_frame():
    with pytest.raises(NotPlainError):
        make_encoders()[2].encode([{"plain": "3"}])


def test_an_encoder_of_one_column_can_be_pickled():
    schema = Schema(fields=(Field(name="flag", size=3),), label=Label(column="clicked"))
    index = ValueIndex.build(VALUES["flag"], [1, 2])
    vocabulary = IndexedVocabulary(index=index, size=3, spelling=Spelling(), has_missing=False)
    rows = pickle.loads(pickle.dumps(DictRows(schema, [vocabulary])))
    assert rows.encode([{"flag": "false"}, {"flag": "other"}]).ids.tolist() == [[2], [0]]
