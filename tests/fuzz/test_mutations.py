"""Damaged files are refused with our own error or give the same content; a small version of `make fuzz`."""

import random
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from forged_files import change_json, reseal
from fuzz.mutations import make_corpus, mutate
from thresher.errors import FormatError, ThresherError
from thresher.report.frontier import Frontier
from thresher.serving.numpy_predictor import NumpyPredictor
from thresher.serving.predictor import Predictor


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize("kind", range(14))
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
            assert artefact.read(artefact.path) == expected or not artefact.sealed
        except ThresherError:
            refused += 1
        finally:
            path.write_bytes(whole)
    assert refused > 5


def test_a_bundle_whose_network_lacks_a_tensor_is_refused_by_both_readers(corpus, tmp_path):
    bundle = Path(shutil.copytree(corpus[1].path, tmp_path / "bundle"))
    network = load_file(bundle / "network.safetensors")
    last = max(name for name in network if name.startswith("deep_term.layers") and name.endswith("bias"))
    save_file({name: tensor for name, tensor in network.items() if name != last}, bundle / "network.safetensors")
    reseal(bundle)
    for reader in (NumpyPredictor, Predictor):
        with pytest.raises(FormatError, match=r"bundle|network"):
            reader.load(bundle)


@pytest.mark.parametrize("change", [{"points": "x"}, {"points": [7]}, {"dense": {"label": 3}}, {"floor": []}])
def test_results_with_values_of_other_types_are_refused(corpus, tmp_path, change):
    path = Path(shutil.copy(corpus[5].path, tmp_path))
    change_json(path, change)
    with pytest.raises(FormatError, match=r"results\.json"):
        Frontier.load(path)
