import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import torch

from forged_files import change_json, reseal
from thresher.compact.embedding import CompactEmbedding
from thresher.data.encode.row_encoder import RowEncoder, Vocabulary
from thresher.errors import FormatError
from thresher.models.autoint import AutoIntConfig
from thresher.models.layers import DeepTerm, DeepTermConfig
from thresher.models.model_registry import build_model
from thresher.serving.bundle import save_bundle
from thresher.serving.numpy_layers import deep_layers, deep_term
from thresher.serving.numpy_predictor import NumpyPredictor
from thresher.serving.predictor import Predictor, load_bundle


@pytest.mark.parametrize("num_dense", [0, 2])
@pytest.mark.parametrize("name", ["lr", "fm", "deepfm", "autoint"])
def test_probabilities_equal_those_of_torch(tmp_path, make_encoder, make_model, raw_frame, name, num_dense):
    encoder = make_encoder(num_dense)
    model, config = make_model(encoder, name)
    save_bundle(tmp_path, model, config, encoder, value_type="fp16")
    frame = raw_frame(50, num_dense)
    reader = NumpyPredictor.load(tmp_path)
    expected = load_bundle(tmp_path).predict(frame)
    np.testing.assert_allclose(reader.predict(frame), expected, atol=1e-6)
    assert reader.predict(frame.to_dicts()[0]) == pytest.approx(expected[0], abs=1e-6)


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("hidden_sizes", [(), (5,), (8, 7, 6, 5)])
def test_deep_terms_of_any_depth(hidden_sizes, batch_norm):
    torch.manual_seed(0)
    term = DeepTerm(3, 4, 0, DeepTermConfig(hidden_sizes=hidden_sizes, batch_norm=batch_norm)).eval()
    for parameter in term.parameters():
        torch.nn.init.normal_(parameter)
    network = {f"deep_term.{name}": tensor.numpy() for name, tensor in term.state_dict().items()}
    vectors = torch.randn(9, 3, 4)
    expected = term(vectors).detach().numpy()
    layers = deep_layers(network)
    found = deep_term(layers, vectors.flatten(1).numpy() @ layers[0].weight)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_predictor_stays_the_same_when_its_bundle_is_replaced(tmp_path, make_encoder, make_model, raw_frame):
    encoder, rows = make_encoder(), raw_frame(9).to_dicts()
    model, config = make_model(encoder, "fm")
    others = RowEncoder(encoder.schema, [Vocabulary(v.values.reverse(), v.counts) for v in encoder.vocabularies])
    for reader in (NumpyPredictor, Predictor):
        save_bundle(tmp_path / "bundle", model, config, encoder)
        expected = reader.load(tmp_path / "bundle").predict(rows)
        before = reader.load(tmp_path / "bundle")
        save_bundle(tmp_path / "bundle", model, config, others)
        np.testing.assert_array_equal(before.predict(rows), expected)
        assert not np.array_equal(reader.load(tmp_path / "bundle").predict(rows), expected)


def test_multi_valued_fields_are_pooled(tmp_path, make_encoder, make_model, raw_frame):
    from dataclasses import replace

    plain = make_encoder()
    fields = (*plain.schema.fields[:2], replace(plain.schema.fields[2], pooling="sum", separator="|"))
    encoder = RowEncoder(replace(plain.schema, fields=fields), plain.vocabularies)
    model, config = make_model(plain, "deepfm")
    save_bundle(tmp_path, model, config, encoder)
    frame = raw_frame(20).with_columns(kind=pl.Series(["a|b|b", "", "never", "b"] * 5))
    expected = load_bundle(tmp_path).predict(frame)
    np.testing.assert_allclose(NumpyPredictor.load(tmp_path).predict(frame), expected, atol=1e-6)


@pytest.mark.parametrize("settings", [{"residual": False, "linear_term": True}, {"deep_term": False, "num_heads": 4}])
def test_variants_of_autoint(tmp_path, make_encoder, raw_frame, settings):
    torch.manual_seed(0)
    encoder = make_encoder()
    sizes, config = encoder.schema.field_sizes, AutoIntConfig(num_layers=2, attention_dim=8, **settings)
    weight = torch.randn(sum(sizes), 4)
    model = build_model(CompactEmbedding.from_mask(sizes, weight > 0, weight), config)
    save_bundle(tmp_path, model.eval(), config, encoder)
    frame = raw_frame(50)
    np.testing.assert_allclose(
        NumpyPredictor.load(tmp_path).predict(frame), load_bundle(tmp_path).predict(frame), atol=1e-6
    )


def test_other_models_are_rejected(tmp_path, make_encoder, make_model):
    model, config = make_model(make_encoder(), "fm")
    save_bundle(tmp_path, model, config, make_encoder())
    change_json(tmp_path / "bundle.json", {"model": {"name": "mine"}})
    reseal(tmp_path)
    with pytest.raises(FormatError, match=r"supports lr, fm, deepfm, autoint, not 'mine'.*load_bundle"):
        NumpyPredictor.load(tmp_path)


PROGRAM = """
import sys
sys.modules["torch"] = None  # importing torch now fails
if sys.argv[2] == "numpy only":
    sys.modules["numba"] = sys.modules["polars"] = None
import numpy as np
from thresher.serving.numpy_predictor import NumpyPredictor
reader = NumpyPredictor.load(sys.argv[1])
if sys.argv[2] == "numpy only":
    print(reader.predict_ids(np.array([[1, 7, 37], [0, 5, 36]]))[0])
else:
    print(reader.predict({"city": "Köln", "age": 1, "kind": "a"}))
"""


@pytest.mark.parametrize("packages", ["numpy only", "with polars"])
def test_torch_is_not_imported_and_ids_need_only_numpy(tmp_path, make_encoder, make_model, packages):
    encoder = make_encoder()
    model, config = make_model(encoder, "deepfm")
    save_bundle(tmp_path, model, config, encoder)
    run = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path, packages], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    expected = load_bundle(tmp_path).predict({"city": "Köln", "age": 1, "kind": "a"})
    assert float(run.stdout) == pytest.approx(expected, abs=1e-6)
