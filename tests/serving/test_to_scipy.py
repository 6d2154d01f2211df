import numpy as np
import pytest

from thresher.embeddings.method_registry import build_embedding, embedding_config
from thresher.errors import FormatError
from thresher.models.fm import FmConfig
from thresher.models.model_registry import build_model
from thresher.serving.bundle import open_bundle, save_bundle
from thresher.serving.to_scipy import export_csr

sparse = pytest.importorskip("scipy.sparse", reason="needs scipy")


def test_every_table_is_a_matrix_scipy_reads(tmp_path, make_encoder, make_model):
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


def test_methods_with_parts_of_their_own_stay_with_the_bundle(tmp_path, make_encoder):
    encoder = make_encoder()
    counts = list(range(encoder.schema.num_features, 0, -1))
    embedding = build_embedding(encoder.schema.field_sizes, embedding_config("mde"), feature_counts=counts)
    folder = save_bundle(tmp_path / "bundle", build_model(embedding, FmConfig()), FmConfig(), encoder)
    with pytest.raises(FormatError, match="parts of its own"):
        export_csr(folder, tmp_path / "csr")
    assert not (tmp_path / "csr").exists()
