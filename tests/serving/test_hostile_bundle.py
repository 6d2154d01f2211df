"""Whatever `bundle.json`, the schema or the network file say, opening a bundle ends well or with a message of ours."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.errors import ThresherError
from thresher.serving.bundle import open_bundle, save_bundle
from thresher.serving.numpy_reader import NumpyPredictor


@pytest.fixture(scope="module")
def saved(tmp_path_factory, make_encoder, make_model):
    model, config = make_model(make_encoder(), "deepfm")
    return save_bundle(tmp_path_factory.mktemp("hostile") / "bundle", model, config, make_encoder())


def try_to_open(folder):
    """Open and use; anything but our own errors goes through."""
    try:
        bundle = open_bundle(folder, verify=False)
        bundle.model(torch.zeros(2, bundle.encoder.schema.num_fields, dtype=torch.int64))
        NumpyPredictor.load(folder, verify=False)
    except ThresherError as error:
        return str(error)
    return None


@settings(max_examples=150)
@given(st.sampled_from(["bundle.json", "schema.json", "network.safetensors"]), st.data())
def test_changed_bytes(saved, name, data):
    path = saved / name
    whole = path.read_bytes()
    content = bytearray(whole)
    head = min(len(content), 3000)  # where the structure is
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, head - 1))] = data.draw(st.integers(0, 255))
    try:
        path.write_bytes(content)
        try_to_open(saved)
    finally:
        path.write_bytes(whole)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150)
@given(st.sampled_from(["format", "version", "model", "tables", "facts", "files"]), anything)
def test_changed_values(saved, key, value):
    path = saved / "bundle.json"
    whole = path.read_text()
    try:
        path.write_text(json.dumps(json.loads(whole) | {key: value}))
        try_to_open(saved)
    finally:
        path.write_text(whole)


def test_a_network_of_other_shapes_is_refused(saved):
    from safetensors.numpy import load_file, save_file

    path = saved / "network.safetensors"
    whole = path.read_bytes()
    try:
        tensors = load_file(path)
        save_file({name: np.zeros((2, 2), np.float32) for name in tensors}, path)
        assert "do not fit" in try_to_open(saved)
        path.unlink()
        assert "network.safetensors is missing" in try_to_open(saved)
    finally:
        path.write_bytes(whole)
    assert try_to_open(saved) is None
