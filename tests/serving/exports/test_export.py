import os
import shutil
import warnings

import numpy as np
import pytest
import torch

from thresher.embeddings.method_registry import build_embedding, embedding_config
from thresher.embeddings.uniform import UniformConfig, UniformEmbedding
from thresher.errors import FormatError
from thresher.models.fm import FmConfig
from thresher.models.model_registry import build_model
from thresher.serving.bundle import open_bundle, save_bundle
from thresher.serving.exports.export import dense_state_dict, export_csr, export_program
from thresher.serving.predictor import load_bundle


@pytest.fixture
def saved(tmp_path, make_encoder, make_model):
    encoder = make_encoder(2)
    model, config = make_model(encoder, "deepfm")
    return save_bundle(tmp_path / "bundle", model, config, encoder)


def test_an_exported_program_gives_the_same_probabilities(saved, tmp_path, raw_frame):
    predictor = load_bundle(saved)
    path = export_program(saved, tmp_path / "model.pt2")
    rows = predictor.encoder.encode_frame(raw_frame(40, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.load(path).module()
        probabilities = program(torch.from_numpy(rows.ids).long(), torch.from_numpy(rows.dense))
    expected = torch.from_numpy(predictor.predict_rows(rows))
    torch.testing.assert_close(probabilities.detach(), expected, rtol=0, atol=1e-6)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bundle", "model.pt2"]
    with pytest.raises(FormatError, match=r"\.pt2"):
        export_program(saved, tmp_path / "model.bin")


@pytest.mark.slow
@pytest.mark.skipif(
    not any(shutil.which(name) for name in (os.environ.get("CXX") or "g++", "clang++", "cl")),
    reason="AOTInductor needs a C++ compiler",
)
@pytest.mark.filterwarnings("ignore")  # about torch internals
def test_a_compiled_package_gives_the_same_probabilities_for_any_number_of_rows(
    tmp_path, make_encoder, make_model, raw_frame
):
    encoder = make_encoder()
    model, config = make_model(encoder, "fm")  # the fastest to compile
    saved = save_bundle(tmp_path / "bundle", model, config, encoder)
    path = export_program(saved, tmp_path / "model.pt2", compiled=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bundle", "model.pt2"]
    package = torch._inductor.aoti_load_package(str(path))
    predictor = load_bundle(saved)
    for num_rows in (1, 40):
        rows = predictor.encoder.encode_frame(raw_frame(num_rows))
        expected = torch.from_numpy(predictor.predict_rows(rows))
        torch.testing.assert_close(package(torch.from_numpy(rows.ids).long()), expected, rtol=0, atol=1e-6)


def test_exporting_does_not_change_the_model(saved, tmp_path):
    predictor = load_bundle(saved)
    before = {name: type(module) for name, module in predictor.model.named_modules()}
    export_program(predictor.bundle, tmp_path / "model.pt2")
    assert {name: type(module) for name, module in predictor.model.named_modules()} == before


def test_a_dense_state_dict_fits_the_plain_model(saved):
    predictor = load_bundle(saved)
    schema = predictor.schema
    embedding = UniformEmbedding(schema.field_sizes, UniformConfig(embedding_dim=8))
    model = build_model(embedding, predictor.bundle.model_config, num_dense=schema.num_dense).eval()
    model.load_state_dict(dict(dense_state_dict(saved)))
    inputs = torch.randint(39, (20, 3)), torch.randn(20, 2)
    torch.testing.assert_close(model(*inputs), predictor.model(*inputs))


def test_only_compact_tables_can_be_exported(tmp_path, make_encoder):
    encoder = make_encoder()
    counts = list(range(encoder.schema.num_features, 0, -1))
    embedding = build_embedding(encoder.schema.field_sizes, embedding_config("mde"), feature_counts=counts)
    folder = save_bundle(tmp_path / "bundle", build_model(embedding, FmConfig()), FmConfig(), encoder)
    exports = (
        lambda: export_program(folder, tmp_path / "model.pt2"),
        lambda: dense_state_dict(folder),
        lambda: export_csr(folder, tmp_path / "csr"),
    )
    for export in exports:
        with pytest.raises(FormatError, match="table 'embedding' has the form 'mixed-dimension'; only compact tables"):
            export()
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_every_table_is_exported_as_a_csr_matrix(tmp_path, make_encoder, make_model):
    sparse = pytest.importorskip("scipy.sparse", reason="needs scipy")
    encoder = make_encoder()
    model, config = make_model(encoder)
    bundle = open_bundle(save_bundle(tmp_path / "bundle", model, config, encoder))
    folder = export_csr(bundle, tmp_path / "csr")
    names = {file.stem for file in folder.glob("*.npz")}
    assert names == set(bundle.tables)
    for name, table in bundle.tables.items():
        matrix = sparse.load_npz(folder / f"{name}.npz")
        assert matrix.nnz == table.num_parameters
        np.testing.assert_array_equal(matrix.toarray(), table.to_dense())
