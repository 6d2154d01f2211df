import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from thresher.data.datasets import FIELDS, read_movielens
from thresher.data.encode.row_encoder import RowEncoder, Vocabulary
from thresher.data.schema import Field, Label, Schema
from thresher.errors import FormatError, MissingExtraError
from thresher.serving.bundle import save_bundle
from thresher.serving.exports.export import export_onnx
from thresher.serving.predictor import load_bundle

pytestmark = pytest.mark.slow  # the exporter takes seconds
onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")


def start_session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module", params=[("fm", 0, "fp32"), ("deepfm", 2, "int8"), ("autoint", 0, "bf16")])
def onnx_file(request, tmp_path_factory, make_encoder, make_model):
    name, num_dense, value_type = request.param
    folder = tmp_path_factory.mktemp("onnx")
    encoder = make_encoder(num_dense)
    model, config = make_model(encoder, name, density=0.1, embedding_dim=16)
    save_bundle(folder / "bundle", model, config, encoder, value_type=value_type)
    return load_bundle(folder / "bundle"), export_onnx(folder / "bundle", folder / "model.onnx")


@pytest.mark.parametrize("num_rows", [1, 3, 200])
def test_onnx_gives_the_same_probabilities_for_any_number_of_rows(onnx_file, raw_frame, num_rows):
    predictor, path = onnx_file
    frame = raw_frame(num_rows, predictor.schema.num_dense)
    rows = predictor.encoder.encode_frame(frame)
    session = start_session(path)
    inputs = {"ids": rows.ids.astype(np.int64)} | ({} if rows.dense is None else {"dense": rows.dense})
    (probabilities,) = session.run(["probability"], inputs)
    np.testing.assert_allclose(probabilities, predictor.predict(frame), atol=1e-5)


@pytest.mark.parametrize("outside", ["negative", "past the last"])
def test_onnxruntime_rejects_ids_out_of_range(onnx_file, raw_frame, outside):
    predictor, path = onnx_file
    rows = predictor.encoder.encode_frame(raw_frame(4, predictor.schema.num_dense))
    ids = rows.ids.astype(np.int64)
    ids[2, 1] = -1 if outside == "negative" else predictor.schema.num_features
    session = start_session(path)
    inputs = {"ids": ids} | ({} if rows.dense is None else {"dense": rows.dense})
    with pytest.raises(Exception, match=r"invalid index|out of data bounds"):
        session.run(["probability"], inputs)


def test_onnx_has_only_standard_operations_and_no_dense_table(onnx_file):
    predictor, path = onnx_file
    model = onnx.load(path)
    onnx.checker.check_model(model)
    assert {opset.domain for opset in model.opset_import} <= {"", "ai.onnx"}
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    arrays = [onnx.numpy_helper.to_array(array) for array in model.graph.initializer]
    N, D = predictor.bundle.tables["embedding"].shape
    assert not any(array.shape == (N, D) or array.size == N * D for array in arrays)


def test_onnx_metadata_lists_the_fields(onnx_file):
    predictor, path = onnx_file
    metadata = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    fields = json.loads(metadata["fields"])
    assert [field["name"] for field in fields] == list(predictor.schema.field_names)
    assert [field["offset"] for field in fields] == list(predictor.schema.field_offsets)


def test_onnx_is_about_as_small_as_the_tables_of_the_bundle(tmp_path, make_model, make_encoder):
    plain = make_encoder()
    values = pl.Series("value", [f"value {at}" for at in range(50_000)])
    fields = (replace(plain.schema.fields[0], size=50_001), *plain.schema.fields[1:])
    vocabularies = (Vocabulary(values, np.arange(50_000, 0, -1)), *plain.vocabularies[1:])
    encoder = RowEncoder(replace(plain.schema, fields=fields), vocabularies)
    model, config = make_model(encoder, "deepfm", density=0.01, embedding_dim=64)
    folder = save_bundle(tmp_path / "bundle", model, config, encoder)
    path = export_onnx(folder, tmp_path / "model.onnx")
    files = [folder / "network.safetensors", *(folder / "tables").iterdir()]
    assert path.stat().st_size < 1.2 * sum(file.stat().st_size for file in files)


def test_onnx_export_rejects_multi_valued_fields_and_missing_packages(tmp_path, make_encoder, make_model, monkeypatch):
    plain = make_encoder()
    fields = (*plain.schema.fields[:2], replace(plain.schema.fields[2], pooling="mean"))
    model, config = make_model(plain)
    encoder = RowEncoder(replace(plain.schema, fields=fields), plain.vocabularies)
    save_bundle(tmp_path / "bundle", model, config, encoder)
    with pytest.raises(FormatError, match="'kind' is multi-valued"):
        export_onnx(tmp_path / "bundle", tmp_path / "model.onnx")
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[onnx\]' in a clone.*'thresher-embeddings\[onnx\]'"):
        export_onnx(tmp_path / "bundle", tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_onnx_gives_the_same_probabilities_on_movielens(tmp_path, movielens_dir, make_model):
    rows, first = read_movielens(movielens_dir)
    sample = rows.sample(5000, seed=0)
    fields, vocabularies = [], []
    for name in FIELDS:
        timestamp = name == "timestamp"
        values = [str(bucket) for bucket in range(500)] if timestamp else sorted(set(sample[name].to_list()))[::2]
        vocabularies.append(Vocabulary(pl.Series("value", values), np.ones(len(values), np.int64)))
        transform = {"transform": "log2", "shift": float(first)} if timestamp else {}
        fields.append(Field(name=name, size=len(values) + 1, **transform))
    encoder = RowEncoder(Schema(fields=tuple(fields), label=Label(column="label")), vocabularies)
    model, config = make_model(encoder, "fm", density=0.05, embedding_dim=64)
    predictor = load_bundle(save_bundle(tmp_path / "bundle", model, config, encoder))
    path = export_onnx(predictor.bundle, tmp_path / "model.onnx")
    session = start_session(path)
    ids = encoder.encode_frame(sample).ids.astype(np.int64)
    (probabilities,) = session.run(None, {"ids": ids})
    np.testing.assert_allclose(probabilities, predictor.predict(sample), atol=1e-5)
