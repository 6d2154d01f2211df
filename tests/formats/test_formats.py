"""Sample files of the current formats load with the same content."""

import json
from pathlib import Path

import numpy as np
import pytest

from thresher.compact.table import CompactTable
from thresher.serving.numpy_predictor import NumpyPredictor
from thresher.serving.predictor import load_bundle

HERE = Path(__file__).parent
TABLES = sorted(HERE.glob("compact-table-*.safetensors"))
BUNDLES = sorted(path for path in HERE.glob("bundle-*") if path.is_dir())


def test_there_are_samples():
    assert len(TABLES) >= 5
    assert BUNDLES


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_sample_tables_load(path):
    expected = json.loads(path.with_suffix(".json").read_text())
    table = CompactTable.load(path)
    positions, values = table.entries()
    assert list(table.shape) == expected["shape"]
    assert positions.tolist() == expected["positions"]
    np.testing.assert_array_equal(values, np.array(expected["values"], np.float32))
    rows = positions // table.embedding_dim
    dense = np.zeros(table.shape, np.float32)
    dense.reshape(-1)[positions] = values
    np.testing.assert_array_equal(table.lookup(rows), dense[rows])


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_sample_bundles_predict_the_same(folder):
    sample = json.loads(folder.with_suffix(".json").read_text())
    np.testing.assert_allclose(load_bundle(folder).predict(sample["rows"]), sample["probabilities"], atol=1e-6)
    np.testing.assert_allclose(NumpyPredictor.load(folder).predict(sample["rows"]), sample["probabilities"], atol=1e-6)
