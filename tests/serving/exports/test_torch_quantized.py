import numpy as np
import pytest
import torch

from raw_columns import make_predictor, raw_rows
from thresher.compact.table import CompactTable
from thresher.errors import FormatError
from thresher.serving.exports.export import to_csr
from thresher.serving.exports.torch_quantized import RowwiseEmbedding, export_quantized


@pytest.mark.parametrize(("row_type", "tolerance"), [("int8", 0.01), ("int4", 0.2)])
def test_kept_rows_are_rounded_and_dropped_rows_are_zero(row_type, tolerance):
    random = np.random.default_rng(0)
    mask = random.random((500, 16)) < 0.3
    mask[::2] = False
    weight = random.standard_normal(mask.shape).astype(np.float32)
    table = CompactTable.from_mask(mask, weight)
    embedding = RowwiseEmbedding((200, 300), table, row_type)
    ids = torch.arange(500).view(50, 10)
    np.testing.assert_allclose(embedding(ids).reshape(500, 16), weight * mask, atol=tolerance * 2)
    assert not embedding(ids[:, ::2]).any()
    row_bytes = 16 + 8 if row_type == "int8" else 8 + 4
    assert embedding.storage_bytes() == mask.any(axis=1).sum() * row_bytes + 500 * 4


def test_a_program_gives_nearly_the_probabilities_of_the_predictor(tmp_path):
    predictor = make_predictor(tmp_path / "bundle", ("city", "log", "parts"), 2)
    path = export_quantized(predictor.bundle, tmp_path / "model.pt2")
    program = torch.export.load(path).module()
    for rows in (raw_rows(50), raw_rows(1)):
        encoded = predictor.encoder.encode_frame(rows)
        found = program(torch.from_numpy(encoded.ids).long(), torch.from_numpy(encoded.dense))
        np.testing.assert_allclose(found.detach().numpy(), predictor.predict_rows(encoded), atol=0.02)


def test_pruned_entries_that_are_not_zero_are_refused():
    table = CompactTable.from_entries(
        (6, 2), np.array([0, 5]), np.array([1.0, 2.0], np.float32), placeholder=(torch.ones(2, 2), [3, 3])
    )
    with pytest.raises(FormatError, match="cannot store a table whose pruned entries"):
        RowwiseEmbedding((3, 3), table)
    with pytest.raises(FormatError, match="cannot store a table whose pruned entries"):
        to_csr(table)
