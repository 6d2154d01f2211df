import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from safetensors.numpy import load_file, save_file
from torch import nn

from forged_files import change_json, reseal
from thresher.compact.embedding import CompactEmbedding, quantize_aware_
from thresher.compact.method_table import StoredEmbedding
from thresher.embeddings.method_registry import build_embedding, embedding_config
from thresher.errors import ConfigError, FormatError, ThresherError
from thresher.models.model_registry import build_model
from thresher.serving.bundle import open_bundle, save_bundle
from thresher.serving.change_bundle import convert_bundle, extend_bundle
from thresher.serving.numpy_predictor import NumpyPredictor


@pytest.mark.parametrize("num_dense", [0, 2])
@pytest.mark.parametrize("name", ["lr", "fm", "deepfm", "autoint"])
def test_an_opened_bundle_gives_the_same_logits(tmp_path, make_encoder, make_model, name, num_dense):
    encoder = make_encoder(num_dense)
    model, config = make_model(encoder, name)
    save_bundle(tmp_path / "bundle", model, config, encoder, metadata={"budget": "1k"})
    bundle = open_bundle(tmp_path / "bundle")
    ids = torch.randint(encoder.schema.num_features, (20, 3), dtype=torch.int32)
    inputs = (ids, torch.randn(20, 2)) if num_dense else (ids,)
    with torch.no_grad():
        torch.testing.assert_close(bundle.model(*inputs), model(*inputs), rtol=0, atol=0)
    assert bundle.metadata == {"budget": "1k"}
    assert bundle.model_config == config
    assert bundle.num_parameters == model.num_parameters()


def test_tables_are_compact_and_not_in_the_network_file(tmp_path, make_encoder, make_model):
    model, config = make_model(make_encoder(), "deepfm")
    save_bundle(tmp_path, model, config, make_encoder())
    bundle = open_bundle(tmp_path)
    assert set(bundle.tables) == {"embedding", "linear_term.weights"}
    assert isinstance(bundle.model.linear_term.weights, StoredEmbedding)
    assert bundle.storage_bytes == model.embedding.storage_bytes() + 4 * make_encoder().schema.num_features
    assert not any("embedding" in name or "weights" in name for name in bundle.model.state_dict())


@pytest.mark.parametrize("method", ["uniform", "pep"])
def test_uniform_and_pep_embeddings_can_be_saved(tmp_path, make_encoder, make_model, method):
    encoder = make_encoder()
    _, config = make_model(encoder)
    embedding = build_embedding(encoder.schema.field_sizes, embedding_config(method))
    if method == "pep":
        embedding.clock.fill_(-3.0)
    model = build_model(embedding, config).eval()
    save_bundle(tmp_path, model, config, encoder)
    ids = torch.randint(encoder.schema.num_features, (20, 3))
    with torch.no_grad():
        torch.testing.assert_close(open_bundle(tmp_path).model(ids), model(ids))


def test_first_order_weights_count_if_pruned(tmp_path, make_encoder, make_model):
    encoder = make_encoder()
    sizes = encoder.schema.field_sizes
    model, config = make_model(encoder, "fm")
    whole = open_bundle(save_bundle(tmp_path / "whole", model, config, encoder))
    assert whole.num_parameters == model.num_parameters()
    assert whole.searched_bytes == whole.tables["embedding"].storage_bytes < whole.storage_bytes
    mask = torch.zeros(sum(sizes), 1, dtype=torch.bool)
    mask[1:4] = True
    model.linear_term.weights = CompactEmbedding.from_mask(sizes, mask, torch.ones_like(mask, dtype=torch.float32))
    pruned = open_bundle(save_bundle(tmp_path / "pruned", model, config, encoder))
    assert pruned.num_parameters == model.num_parameters() + 3
    assert pruned.searched_bytes == pruned.storage_bytes
    again = open_bundle(convert_bundle(tmp_path / "pruned", tmp_path / "int8", "int8"))
    assert again.num_parameters == pruned.num_parameters


def test_first_order_weights_count_if_searched_although_all_are_kept(tmp_path, make_encoder, make_model):
    encoder = make_encoder()
    sizes = encoder.schema.field_sizes
    model, config = make_model(encoder, "fm")
    mask = torch.ones(sum(sizes), 1, dtype=torch.bool)
    model.linear_term.weights = CompactEmbedding.from_mask(sizes, mask, torch.ones_like(mask, dtype=torch.float32))
    bundle = open_bundle(save_bundle(tmp_path / "bundle", model, config, encoder))
    assert bundle.num_parameters == model.num_parameters() + sum(sizes)
    for again in (
        convert_bundle(bundle.folder, tmp_path / "int8", "int8"),
        extend_bundle(bundle.folder, tmp_path / "same", encoder),
    ):
        assert open_bundle(again).num_parameters == bundle.num_parameters
        assert open_bundle(again).searched_bytes == open_bundle(again).storage_bytes


def test_the_model_of_a_bundle_can_be_saved_again(tmp_path, make_encoder, make_model):
    encoder = make_encoder()
    model, config = make_model(encoder, "fm")
    bundle = open_bundle(save_bundle(tmp_path / "bundle", model, config, encoder))
    again = save_bundle(tmp_path / "again", bundle.model, config, encoder)
    assert set(open_bundle(again).searched_tables) == set(bundle.searched_tables) == {"embedding"}


def test_files_hold_no_pickle(tmp_path, make_encoder, make_model):
    model, config = make_model(make_encoder(), "deepfm")
    save_bundle(tmp_path, model, config, make_encoder())
    suffixes = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".md", ".safetensors"}


def test_an_embedding_without_compact_form_cannot_be_saved(tmp_path, make_encoder, make_model):
    class Strange(nn.Module):
        pass

    model, config = make_model(make_encoder())
    shutil.rmtree(tmp_path)
    model.embedding = Strange()
    with pytest.raises(FormatError, match="Strange has no compact form"):
        save_bundle(tmp_path, model, config, make_encoder())
    assert not tmp_path.exists()


@pytest.fixture
def saved(tmp_path, make_encoder, make_model):
    model, config = make_model(make_encoder(), "deepfm")
    return save_bundle(tmp_path / "bundle", model, config, make_encoder())


def test_changed_and_missing_files_are_detected(saved):
    for path in sorted(saved.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            with pytest.raises(FormatError, match=path.name):
                open_bundle(saved)
            path.unlink()
            with pytest.raises(FormatError, match=f"{path.name} does not exist"):
                open_bundle(saved)
            path.write_bytes(content)
    open_bundle(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "version 99"),
        ({"format": "other"}, "'other'"),
        ({"model": {"name": "nothing"}}, "cannot be built"),
        ({"model": {"name": "fm"}}, "do not fit"),
        ({"tables": {"embedding": [3, 4]}}, "has 3 rows"),
        ({"tables": {"../embedding": [3, 4]}}, "is not a valid table name"),
        ({"tables": 3}, "damaged"),
        ({"metadata": None}, "damaged"),
        ({"searched": 3}, "damaged"),
        ({"searched": None}, "damaged"),
        ({"searched": ["nothing"]}, "does not have"),
    ],
)
def test_inconsistent_manifests_are_rejected(saved, change, message):
    path = saved / "bundle.json"
    change_json(path, change)
    reseal(saved)
    with pytest.raises(FormatError, match=message):
        open_bundle(saved)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b", "n" * 300, "a\nb", "C:\\x"])
def test_a_manifest_names_only_files_inside_its_folder(saved, name):
    entry = {"bytes": 1, "sha256": "0" * 64}
    change_json(saved / "manifest.json", {"files": {name: entry}})
    with pytest.raises(FormatError, match=r"outside|not a valid name"):
        open_bundle(saved)


def test_saving_replaces_an_existing_bundle(saved, make_encoder, make_model):
    model, config = make_model(make_encoder(), "lr")
    (saved / "left_over").write_text("old")
    save_bundle(saved, model, config, make_encoder())
    assert not (saved / "left_over").exists()
    assert set(open_bundle(saved).tables) == {"linear_term.weights"}
    assert [path.name for path in saved.parent.iterdir()] == ["bundle"]


def test_values_are_stored_exactly(tmp_path, make_encoder, make_model):
    model, config = make_model(make_encoder())
    save_bundle(tmp_path, model, config, make_encoder())
    table = open_bundle(tmp_path).tables["embedding"]
    np.testing.assert_array_equal(table.entries()[1], model.embedding.values.detach().numpy())


def test_opening_a_bundle_does_not_change_the_random_state(saved):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    open_bundle(saved)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(("value_type", "tolerance"), [("fp16", 1e-3), ("bf16", 1e-2), ("int8", 2e-2), ("int4", 0.3)])
def test_a_rounded_bundle_is_smaller_and_predicts_nearly_the_same(saved, tmp_path, value_type, tolerance):
    smaller = convert_bundle(saved, tmp_path / value_type, value_type)
    before, after = open_bundle(saved), open_bundle(smaller)
    assert after.storage_bytes < before.storage_bytes
    assert {table.value_type for table in after.tables.values()} == {value_type}
    ids = torch.randint(39, (50, 3))
    assert (after.model(ids) - before.model(ids)).abs().mean() < tolerance
    again = convert_bundle(smaller, tmp_path / "again", "fp32")  # rounding cannot be undone
    assert open_bundle(again).storage_bytes == after.storage_bytes


def test_metrics_measured_before_rounding_are_marked(tmp_path, make_encoder, make_model):
    model, config = make_model(make_encoder())
    measured = {"validation_auc": 0.8, "test_auc": 0.79, "test_logloss": 0.4, "storage_bytes": 12_345}
    metadata = {"budget": "1k", "num_parameters": model.num_parameters(), "seed": 3}
    save_bundle(tmp_path / "whole", model, config, make_encoder(), metadata=metadata | measured)
    rounded = open_bundle(convert_bundle(tmp_path / "whole", tmp_path / "int4", "int4"))
    assert rounded.metadata == metadata | {"value_type": "int4", "before_rounding": measured}
    copy = open_bundle(convert_bundle(tmp_path / "whole", tmp_path / "copy", "fp32"))  # no rounding
    assert copy.metadata == metadata | measured


def test_rounded_values_cannot_be_rounded_again(saved, tmp_path):
    convert_bundle(saved, tmp_path / "int8", "int8")
    with pytest.raises(ConfigError, match="only compact tables of float32 values"):
        convert_bundle(tmp_path / "int8", tmp_path / "int4", "int4")
    assert not (tmp_path / "int4").exists()
    same = convert_bundle(tmp_path / "int8", tmp_path / "same", "fp32")
    assert open_bundle(same).metadata["value_type"] == "int8"


def test_quantized_training_keeps_its_value_type(tmp_path, make_encoder, make_model):
    model, config = make_model(make_encoder())
    quantize_aware_(model, "int8")
    with torch.no_grad():
        model.embedding.scale_shift.add_(0.3)
    ids = torch.randint(39, (50, 3))
    expected = model(ids).detach()
    bundle = open_bundle(save_bundle(tmp_path, model, config, make_encoder(), value_type="fp16"))
    assert bundle.tables["embedding"].value_type == "int8"
    assert bundle.tables["linear_term.weights"].value_type == "fp16"
    torch.testing.assert_close(bundle.model(ids), expected, rtol=0, atol=2e-3)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, make_encoder, make_model):
    """A bundle whose files the tests below change and restore: opening it must succeed or raise a ThresherError."""
    model, config = make_model(make_encoder(), "deepfm")
    return save_bundle(tmp_path_factory.mktemp("hostile") / "bundle", model, config, make_encoder())


def try_to_open(folder):
    """Open and use a bundle; return the message of a ThresherError."""
    try:
        bundle = open_bundle(folder, verify=False)
        bundle.model(torch.zeros(2, bundle.encoder.schema.num_fields, dtype=torch.int64))
        NumpyPredictor.load(folder, verify=False)
    except ThresherError as error:
        return str(error)
    return None


@settings(max_examples=150)
@given(st.sampled_from(["bundle.json", "schema.json", "network.safetensors"]), st.data())
def test_opening_a_bundle_with_changed_bytes(hostile, name, data):
    path = hostile / name
    whole = path.read_bytes()
    content = bytearray(whole)
    head = min(len(content), 3000)  # the structure is in the first bytes
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, head - 1))] = data.draw(st.integers(0, 255))
    try:
        path.write_bytes(content)
        try_to_open(hostile)
    finally:
        path.write_bytes(whole)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150)
@given(st.sampled_from(["format", "version", "model", "tables", "searched", "metadata"]), anything)
def test_opening_a_bundle_with_changed_manifest_values(hostile, key, value):
    path = hostile / "bundle.json"
    whole = path.read_text()
    try:
        change_json(path, {key: value})
        reseal(hostile)
        try_to_open(hostile)
    finally:
        path.write_text(whole)
        reseal(hostile)


def test_a_network_of_other_shapes_is_rejected(hostile):
    path = hostile / "network.safetensors"
    whole = path.read_bytes()
    try:
        tensors = load_file(path)
        save_file({name: np.zeros((2, 2), np.float32) for name in tensors}, path)
        assert "network.safetensors is damaged" in try_to_open(hostile)
        reseal(hostile)
        assert "do not fit" in try_to_open(hostile)
        path.unlink()
        assert "network.safetensors does not exist" in try_to_open(hostile)
    finally:
        path.write_bytes(whole)
        reseal(hostile)
    assert try_to_open(hostile) is None
