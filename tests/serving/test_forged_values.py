"""Bundles with right checksums, but values or sizes that no model has, are refused by both readers."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from forged_files import reseal
from fuzz.mutations import make_corpus
from thresher.errors import FormatError
from thresher.serving.numpy_predictor import NumpyPredictor
from thresher.serving.predictor import Predictor

READERS = [Predictor, NumpyPredictor]


@pytest.fixture
def bundle(tmp_path):
    make_corpus(tmp_path)
    return tmp_path / "bundle"


def _metadata(path):
    content = path.read_bytes()
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_tables_must_be_finite(bundle, reader, value):
    path = bundle / "tables" / "embedding.safetensors"
    arrays, metadata = load_file(path), _metadata(path)
    arrays["values"][3] = value
    save_file(arrays, path, metadata)
    reseal(bundle)
    with pytest.raises(FormatError, match="'values' has values that are NaN or infinite"):
        reader.load(bundle)


@pytest.mark.parametrize("reader", READERS)
def test_networks_must_be_finite(bundle, reader):
    path = bundle / "network.safetensors"
    arrays = load_file(path)
    arrays["deep_term.layers.0.weight"][0, 0] = np.inf
    save_file(arrays, path)
    reseal(bundle)
    with pytest.raises(FormatError, match="NaN or infinite"):
        reader.load(bundle)


@pytest.mark.parametrize("reader", READERS)
def test_tables_must_have_a_row_for_each_feature(bundle, reader):
    path = bundle / "schema.json"
    content = json.loads(path.read_text())
    content["fields"][0]["size"] = 10**10
    path.write_text(json.dumps(content))
    reseal(bundle)
    with pytest.raises(FormatError):
        reader.load(bundle)
