import json

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file
from scipy.sparse import load_npz

from thresher.experiment import quantize
from thresher.serving.bundle import open_bundle
from thresher.serving.predictor import load_bundle

pytestmark = pytest.mark.usefixtures("without_pictures")


def test_export_a_bundle_of_a_run(finished, thresher, refused, tmp_path):
    out = tmp_path / "small"
    result = thresher("export", finished.out, "--budget", "50", "--out", out, "--json")
    assert json.loads(result.stdout)["num_parameters"] == 50
    source = finished.out / "bundles" / "50"
    np.testing.assert_array_equal(
        load_bundle(out).predict(finished.source), load_bundle(source).predict(finished.source)
    )
    assert "already exists" in refused("export", finished.out, "--budget", "50", "--out", out)
    assert thresher("export", finished.out, "--budget", "20%", "--out", out, "--force").exit_code == 0
    assert load_bundle(out).bundle.num_parameters > 50
    message = thresher("export", finished.out, "--budget", "0.05k", "--out", out, "--force", "--json").stdout
    assert (json.loads(message)["budget"], json.loads(message)["num_parameters"]) == ("50", 50)
    assert "It has: 20%, 50" in refused("export", finished.out, "--budget", "7k", "--out", tmp_path / "other")


def test_export_without_budget_takes_the_best_on_validation(finished, thresher, tmp_path):
    thresher("export", finished.out, "--out", tmp_path / "best")
    results = json.loads((finished.out / "results.json").read_text())
    best = max(results["points"], key=lambda point: (point["validation_auc"], -point["num_parameters"]))
    assert load_bundle(tmp_path / "best").bundle.num_parameters == best["num_parameters"]


@pytest.mark.parametrize("value_type", ["fp16", "int8"])
def test_quantized_export_is_measured(finished, thresher, tmp_path, value_type):
    out = tmp_path / "small"
    words = ["export", finished.out, "--budget", "20%", "--value-type", value_type, "--out", out]
    message = json.loads(thresher(*words, "--json").stdout)
    bundle, before = open_bundle(out), open_bundle(finished.out / "bundles" / "20pct")
    assert bundle.tables["embedding"].value_type == value_type
    assert bundle.storage_bytes < 0.8 * before.storage_bytes
    assert (
        message["validation_auc"]
        == bundle.metadata["validation_auc"]
        == pytest.approx(message["validation_auc_before"], abs=0.02)
    )
    assert message["validation_auc_before"] == pytest.approx(before.metadata["validation_auc"])
    assert bundle.metadata["storage_bytes"] == bundle.tables["embedding"].storage_bytes
    printed = thresher(*words, "--force")
    assert f"{value_type}: validation AUC" in printed.stderr
    assert f"value type {value_type}" in " ".join(thresher("show", out).stdout.split())


def test_sizes_agree_when_first_order_weights_are_searched(clicks, fast, thresher, tmp_path):
    run = tmp_path / "run"
    thresher(
        "prune", clicks, "--label", "clicked", "--budgets", "50", "--out", run, "--set", "embedding.first_order=true",
        *fast,
    )  # fmt: skip
    (point,) = json.loads((run / "results.json").read_text())["points"]
    assert point["num_parameters"] == 50
    shown = json.loads(thresher("show", run / "bundles" / "50", "--json").stdout)
    assert sum(table["num_parameters"] for table in shown["tables"]) == shown["num_parameters"] == 50
    words = ["export", run, "--budget", "50", "--value-type", "fp16", "--out", tmp_path / "small", "--json"]
    assert json.loads(thresher(*words).stdout)["num_parameters"] == 50
    small = open_bundle(tmp_path / "small")
    assert small.metadata["num_parameters"] == small.num_parameters == 50
    assert small.metadata["storage_bytes"] == small.storage_bytes < point["storage_bytes"]


def test_quantization_aware_retraining(finished, thresher, tmp_path):
    words = ["export", finished.out, "--budget", "20%", "--value-type", "int4"]
    rounded = json.loads(thresher(*words, "--out", tmp_path / "a", "--json").stdout)
    trained = json.loads(thresher(*words, "--retrain", "--out", tmp_path / "b", "--json").stdout)
    assert trained["validation_auc"] >= rounded["validation_auc"]
    bundle = open_bundle(tmp_path / "b")
    assert bundle.tables["embedding"].value_type == "int4"
    assert bundle.metadata["quantization_aware"]


def test_quantization_aware_retraining_uses_the_settings_of_the_run(thresher, clicks, fast, tmp_path, monkeypatch):
    run, given = tmp_path / "run", []
    settings = ["teacher_share=0.5", "training.early_stopping_metric=logloss", "training.optimizer.learning_rate=0.02"]
    words = [word for setting in settings for word in ("--set", setting)]
    thresher("prune", clicks, "--label", "clicked", "--budgets", "20%", "--out", run, *fast, *words)
    retrain = quantize.retrain_quantized
    monkeypatch.setattr(
        quantize, "retrain_quantized", lambda *args, **more: given.append((args[3], more)) or retrain(*args, **more)
    )
    words = ["export", run, "--value-type", "int4", "--retrain", "--force", "--out", tmp_path / "small"]
    assert "soft labels of this run are missing" not in thresher(*words).stderr
    (run / "dense" / "soft_labels.npy").unlink()
    assert "soft labels of this run are missing" in thresher(*words).stderr
    for config, _ in given:
        assert config.early_stopping_metric == "logloss"
        assert config.optimizer.learning_rate == pytest.approx(0.002)
    distilled, hard = (more["soft_labels"] for _, more in given)
    assert distilled.teacher_share == 0.5
    assert hard is None


def test_quantized_export_without_data_is_not_measured(finished, thresher, refused, tmp_path):
    bundle = finished.out / "bundles" / "20pct"
    printed = thresher("export", bundle, "--value-type", "int8", "--out", tmp_path / "small")
    assert "not measured" in printed.stderr
    metadata = open_bundle(tmp_path / "small").metadata
    assert "validation_auc" not in metadata
    assert metadata["before_rounding"]["validation_auc"] == open_bundle(bundle).metadata["validation_auc"]
    assert "only compact tables of float32 values" in refused(
        "export", tmp_path / "small", "--value-type", "int4", "--out", tmp_path / "other"
    )


def test_export_dense_weights_and_scipy_tables(finished, thresher, tmp_path):
    bundle = open_bundle(finished.out / "bundles" / "50")
    dense, csr = tmp_path / "weights.safetensors", tmp_path / "csr"
    assert thresher("export", finished.out, "--budget", "50", "--to", "dense", "--out", dense).exit_code == 0
    state = load_file(dense)
    np.testing.assert_array_equal(state["embedding.weight"], bundle.tables["embedding"].to_dense())
    assert state["linear_term.bias"].shape == bundle.model.linear_term.bias.shape
    printed = thresher("export", bundle.folder, "--to", "csr", "--out", csr)
    assert printed.stdout.strip() == str(csr)
    table = load_npz(csr / "embedding.npz")
    assert table.nnz == 50
    np.testing.assert_array_equal(table.toarray(), state["embedding.weight"])
    assert (csr / "network.safetensors").exists()
    assert thresher("export", bundle.folder, "--to", "csr", "--out", csr, "--force").exit_code == 0


def test_exported_torch_program_predicts_the_same(finished, thresher, tmp_path):
    import torch

    bundle = finished.out / "bundles" / "20pct"
    assert thresher("export", bundle, "--to", "torch", "--out", tmp_path / "model.pt2").exit_code == 0
    predictor = load_bundle(bundle)
    frame = pl.read_csv(finished.source).head(20)
    ids = torch.from_numpy(predictor.encoder.encode_frame(frame).ids).long()
    probabilities = torch.export.load(tmp_path / "model.pt2").module()(ids)
    np.testing.assert_allclose(probabilities.detach().numpy(), predictor.predict(frame), atol=1e-6)


@pytest.mark.slow
def test_int8_onnx_predicts_the_same(finished, thresher, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    words = ["export", finished.out, "--budget", "20%", "--value-type", "int8"]
    assert thresher(*words, "--out", tmp_path / "bundle").exit_code == 0
    assert thresher(*words, "--to", "onnx", "--out", tmp_path / "model.onnx").exit_code == 0
    predictor = load_bundle(tmp_path / "bundle")
    frame = pl.read_csv(finished.source).head(20)
    ids = predictor.encoder.encode_frame(frame).ids.astype(np.int64)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"ids": ids})[0], predictor.predict(frame), atol=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "tflite"], "Use one of: bundle, onnx"),
        (["--value-type", "int2"], "Use one of: fp32"),
        (["--to", "dense", "--value-type", "int8"], "stores float32 values"),
        (["--retrain"], "--value-type int8 or int4"),
        (["--to", "onnx"], "writes a .onnx file"),
        (["--to", "torch"], "writes a .pt2 file"),
    ],
)
def test_invalid_export_options(finished, refused, tmp_path, words, message):
    assert message in refused("export", finished.out, "--out", tmp_path / "x", *words)
    assert not (tmp_path / "x").exists()


def test_export_does_not_replace_other_folders(finished, refused, tmp_path):
    letters = tmp_path / "letters"
    letters.mkdir()
    (letters / "dear.txt").write_text("Dear")
    assert "is not an export" in refused("export", finished.out, "--out", letters, "--force")
    assert (letters / "dear.txt").exists()
    bundle = finished.out / "bundles" / "50"
    assert "Leave --budget out" in refused("export", bundle, "--budget", "50", "--out", tmp_path / "x")
    assert "Name the run" in refused("export", bundle, "--value-type", "int8", "--retrain", "--out", tmp_path / "x")


@pytest.mark.parametrize("to", ["bundle", "csr"])
def test_export_does_not_delete_other_files_in_its_folder(finished, thresher, refused, tmp_path, to):
    out = tmp_path / "small"
    words = ["export", finished.out, "--budget", "50", "--to", to, "--out", out, "--force"]
    assert thresher(*words).exit_code == 0
    (out / "notes").mkdir()
    (out / "notes" / "dear.txt").write_text("Dear")
    assert "files that are not part of an export: notes/dear.txt" in refused(*words)
    assert (out / "notes" / "dear.txt").exists()
    (out / "notes" / "dear.txt").unlink()
    assert thresher(*words).exit_code == 0


def test_export_does_not_delete_other_tables_in_its_folder(finished, thresher, refused, tmp_path):
    out = tmp_path / "tables"
    words = ["export", finished.out, "--to", "csr", "--out", out, "--force"]
    assert thresher(*words).exit_code == 0
    assert thresher(*words).exit_code == 0  # its own files alone
    (out / "mine.npz").write_text("dear")
    assert "files that are not part of an export: mine.npz" in refused(*words)
    assert (out / "mine.npz").read_text() == "dear"


@pytest.mark.parametrize("name", ["features.npz", "bundle.json"])
def test_folder_with_a_known_file_name_is_not_an_export(finished, refused, tmp_path, name):
    data = tmp_path / "data"
    data.mkdir()
    for file in (name, "labels.csv"):
        (data / file).write_text("{}")
    assert "is not an export" in refused("export", finished.out, "--to", "csr", "--out", data, "--force")
    assert len(list(data.iterdir())) == 2


def test_tables_that_are_not_compact_cannot_be_quantized(thresher, refused, clicks, fast, tmp_path):
    run = tmp_path / "hashed"
    words = ["prune", clicks, "--label", "clicked", "--method", "hash", "--budgets", "60%", "--out", run, *fast]
    assert thresher(*words).exit_code == 0
    message = refused("export", run, "--value-type", "int8", "--out", tmp_path / "x")
    assert "Leave the value type unchanged" in message
    assert thresher("export", run, "--out", tmp_path / "x").exit_code == 0
    assert "HashEmbedding" in thresher("show", tmp_path / "x").stdout
    assert "no field to draw" in refused("show", tmp_path / "x", "--figure", tmp_path / "figure")
