"""Damaged files are refused with our own error or give the same content; a small version of `make fuzz`."""

import random

import pytest

from fuzz.mutations import make_corpus, mutate
from thresher.errors import ThresherError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize("kind", range(6))
def test_damage_is_refused_or_harmless(corpus, kind):
    artefact, chance = corpus[kind], random.Random(kind)
    files = [path for path in artefact.files() if path.is_file()]
    donors, expected = [path.read_bytes() for path in files], artefact.read(artefact.path)
    refused = 0
    for _ in range(12):
        path = chance.choice(files)
        whole = path.read_bytes()
        path.write_bytes(mutate(whole, chance, donors))
        try:
            assert artefact.read(artefact.path) == expected
        except ThresherError:
            refused += 1
        finally:
            path.write_bytes(whole)
    assert refused > 6
