"""FBGEMM's own module reads the rows, where it is installed."""

import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from raw_columns import make_predictor, raw_rows
from thresher.compact.table import CompactTable
from thresher.errors import FormatError, MissingExtraError
from thresher.serving.bundle import open_bundle
from thresher.serving.exports.export import probability_model
from thresher.serving.exports.fbgemm import FbgemmEmbedding, encode_rows, export_fbgemm, load_fbgemm, stored_type

INSTALL = "needs fbgemm: pip install --no-deps fbgemm-gpu-cpu==1.8.0"


@pytest.fixture
def fbgemm():
    pytest.importorskip("fbgemm_gpu", reason=INSTALL)


def pruned_table(width=16, num_features=500):
    random = np.random.default_rng(0)
    mask = random.random((num_features, width)) < 0.3
    mask[::2] = False
    weight = random.standard_normal(mask.shape).astype(np.float32)
    return CompactTable.from_mask(mask, weight), weight * mask


@pytest.mark.parametrize(("row_type", "tolerance"), [("fp32", 0.0), ("fp16", 0.002), ("int8", 0.02), ("int4", 0.4)])
def test_kept_rows_are_rounded_and_dropped_rows_are_zero(fbgemm, row_type, tolerance):
    table, dense = pruned_table()
    embedding = FbgemmEmbedding((200, 300), table, row_type)
    ids = torch.arange(500).view(50, 10)
    np.testing.assert_allclose(embedding(ids).reshape(500, 16), dense, atol=tolerance)
    assert not embedding(ids[:, ::2]).any()
    row_bytes = {"fp32": 64, "fp16": 32, "int8": 16 + 4, "int4": 8 + 4}[row_type]
    assert embedding.storage_bytes() == dense.any(axis=1).sum() * row_bytes + 500 * 4


def test_a_model_over_its_rows_gives_nearly_the_probabilities_of_the_predictor(fbgemm, tmp_path):
    predictor = make_predictor(tmp_path / "bundle", ("city", "log", "parts", "tags"), 2)
    sizes = predictor.schema.field_sizes
    encoded = predictor.encoder.encode_frame(raw_rows(50))
    expected = predictor.predict_rows(encoded)
    for row_type, tolerance in (("fp32", 1e-6), ("int8", 0.02)):
        model = probability_model(
            predictor.bundle, lambda table, row_type=row_type: FbgemmEmbedding(sizes, table, row_type)
        )
        with torch.no_grad():
            found = model(*predictor._inputs(encoded, slice(0, 50))[:2], *bags_as_matrices(encoded))
        np.testing.assert_allclose(found.numpy(), expected, atol=tolerance)


def bags_as_matrices(encoded):
    """The multi-valued fields as padded ids and masks, as the exported model takes them."""
    ids, masks = [], []
    for bag in encoded.bags:
        sizes = np.diff(bag.offsets)
        mask = np.arange(max(sizes.max(), 1)) < sizes[:, None]
        padded = np.zeros(mask.shape, np.int64)
        padded[mask] = bag.values
        ids.append(torch.from_numpy(padded))
        masks.append(torch.from_numpy(mask.astype(np.float32)))
    return tuple(ids), tuple(masks)


def test_a_written_folder_gives_the_tables_of_the_bundle(fbgemm, tmp_path):
    bundle = open_bundle(make_predictor(tmp_path / "bundle", ("city", "log"), 0).bundle.folder)
    modules = load_fbgemm(export_fbgemm(bundle, tmp_path / "rows", row_type="fp32"))
    assert set(modules) == set(bundle.tables)
    ids = torch.arange(bundle.encoder.schema.num_features, dtype=torch.int32)
    for name, table in bundle.tables.items():
        found = modules[name](ids, torch.tensor([0, len(ids)], dtype=torch.int32))
        np.testing.assert_array_equal(found, table.to_dense())


def test_rows_of_an_odd_number_of_bytes_stay_in_float32():
    assert [stored_type(width, "int8") for width in (1, 2, 7, 64)] == ["fp32", "int8", "fp32", "int8"]
    assert [stored_type(width, "int4") for width in (1, 2, 4, 6)] == ["fp32", "fp32", "int4", "fp32"]
    assert stored_type(1, "fp16") == "fp16"
    table, dense = pruned_table(width=1)
    parts = encode_rows(table, "int8")
    np.testing.assert_array_equal(parts["rows"].view(torch.float32)[:, 0], dense[dense.any(axis=1), 0])


def test_a_missing_package_and_a_wrong_folder_are_named(monkeypatch, tmp_path):
    with pytest.raises(FormatError, match=r"no fbgemm\.json"):
        load_fbgemm(tmp_path)
    monkeypatch.setitem(sys.modules, "fbgemm_gpu", None)
    with pytest.raises(MissingExtraError, match="pip install --no-deps fbgemm-gpu-cpu"):
        FbgemmEmbedding((500,), pruned_table()[0])


@pytest.mark.parametrize("change", ["index", "rows", "file"])
def test_a_damaged_folder_is_refused(fbgemm, tmp_path, change):
    folder = tmp_path / "tables"
    predictor = make_predictor(tmp_path / "bundle", ("city", "parts"), 0)
    export_fbgemm(predictor.bundle, folder)
    tensors = load_file(folder / "tables.safetensors")
    if change == "index":
        tensors["embedding.index_remapping"][3] = len(tensors["embedding.rows"])
    elif change == "rows":
        tensors["embedding.rows"] = tensors["embedding.rows"][1:].clone()
    save_file(tensors, folder / "tables.safetensors")
    if change == "file":
        (folder / "tables.safetensors").write_bytes(b"nothing")
    with pytest.raises(FormatError, match=r"tables is damaged .* Export it again\."):
        load_fbgemm(folder)
