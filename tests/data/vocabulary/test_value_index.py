import copy
import pickle
import random

import numpy as np
import pytest

from thresher.data.vocabulary import field_lookup
from thresher.data.vocabulary.field_lookup import FieldLookup
from thresher.data.vocabulary.value_index import ValueIndex

TEXTS = {
    "text": ["Köln", "", "Ulm", "a|b", "x" * 300, "\u2028", "03", "-0"],
    "decimal": [str(number) for number in range(-300, 3000, 7)] + ["007", "+5", "", "12345678901234567890", "5 "],
    "large": [str(10**17 + number) for number in range(50)] + [str(-(10**17))],
    "hex": [f"{number * 2654435761 % 2**32:08x}" for number in range(500)] + ["", "0581E03F", "12345", "zz"],
    "long hex": [f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}" for number in range(100)],
}


@pytest.mark.parametrize("kind", TEXTS)
def test_every_text_is_found_and_no_other(kind):
    texts = TEXTS[kind]
    index = ValueIndex.build(texts, range(1, len(texts) + 1))
    index.check()
    assert [index.find(text) for text in texts] == list(range(1, len(texts) + 1))
    assert dict(index.items()) == dict(zip(texts, range(1, len(texts) + 1), strict=True))
    others = [text + "0" for text in texts] + [f"0{text}" for text in texts] + ["٣", "1_0", " 7", "\ud800", "0x1f"]
    expected = dict(zip(texts, range(1, len(texts) + 1), strict=True))
    asked = [*others, *texts]
    found = [expected.get(text, 0) for text in asked]
    assert [index.find(text) for text in asked] == found
    assert index.find_all(asked).tolist() == found  # by the kernels
    assert index.find_all(asked[:5]).tolist() == found[:5]


@pytest.fixture
def without_numba(monkeypatch):
    monkeypatch.setattr(field_lookup, "_kernel", lambda: None)


def test_the_kernel_agrees_with_the_search_without_numba(monkeypatch):
    texts = list(dict.fromkeys(TEXTS["hex"] + TEXTS["decimal"]))
    index = ValueIndex.build(texts, range(1, len(texts) + 1))
    by_kernel = index.find_all(texts)
    assert field_lookup._kernel() is not None
    monkeypatch.setattr(field_lookup, "_kernel", lambda: None)
    again = ValueIndex(index.arrays, index.base)
    assert np.array_equal(again.find_all(texts), by_kernel)
    assert np.array_equal(again.find_all(texts[3:90]), by_kernel[3:90])


@pytest.mark.parametrize("num_rows", [1, 4, 700])
@pytest.mark.parametrize("numba", [True, False])
def test_all_fields_are_found_together(numba, num_rows, request):
    if not numba:
        request.getfixturevalue("without_numba")
    draw = random.Random(num_rows)
    indexes = [ValueIndex.build(texts, range(1, len(texts) + 1)) for texts in TEXTS.values()]
    asked = [text + end for texts in TEXTS.values() for text in texts for end in ("", "", "0", "\0")] + [
        "٣",
        "\ud800",
        "-",
    ]
    texts = [draw.choice([*own, *asked]) for _ in range(num_rows) for own in TEXTS.values()]
    offsets = [1000 * at for at in range(len(indexes))]
    expected = [
        index.find(text) + offset
        for index, text, offset in zip(indexes * num_rows, texts, offsets * num_rows, strict=True)
    ]
    lookup = FieldLookup(indexes, offsets)
    for _ in range(2):
        found = lookup.find(texts)
        assert found.dtype == np.int32
        assert found.reshape(-1).tolist() == expected
    with pytest.raises(TypeError):
        lookup.find([*texts[1:], None])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda lookup: pickle.loads(pickle.dumps(lookup))])
def test_a_copy_of_a_used_lookup_reads_arrays_of_its_own(copied):
    texts = TEXTS["decimal"]
    built = ValueIndex.build(texts, range(1, len(texts) + 1))
    index = ValueIndex({name: np.array(array) for name, array in built.arrays.items()}, built.base)
    lookup = FieldLookup([index], [0])
    expected = lookup.find(texts).tolist()
    other = copied(lookup)
    for array in index.arrays.values():
        array[:] = 0
    assert other.find(texts).tolist() == expected != lookup.find(texts).tolist()


def test_an_empty_index_knows_nothing():
    index = ValueIndex.build([], [])
    index.check()
    assert (len(index), index.find(""), index.find_all(["a"] * 40).tolist()) == (0, 0, [0] * 40)


def test_hexadecimal_hashes_take_fewer_bytes_than_their_texts():
    texts = TEXTS["hex"][:500]
    assert ValueIndex.build(texts, range(1, 501)).num_bytes < 500 * 8


@pytest.mark.parametrize("name", ["number_keys", "text_sizes", "bucket_starts", "bucket_bytes", "text_ids"])
def test_damaged_arrays_are_rejected(name):
    texts = TEXTS["decimal"]
    index = ValueIndex.build(texts, range(1, len(texts) + 1))
    damaged = dict(index.arrays)
    damaged[name] = damaged[name][::-1].copy() if name != "text_ids" else damaged[name][:-1]
    with pytest.raises(ValueError, match=r"ascend|span|id per key"):
        ValueIndex(damaged, index.base).check()
