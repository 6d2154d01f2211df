import numpy as np
import pytest

from thresher.compact import row_terms
from thresher.compact.layouts import VALUE_TYPES
from thresher.compact.row_terms import choose_row_terms, row_terms_by_numpy
from thresher.compact.table import CompactTable
from thresher.errors import OutsideTableError


def make_table(num_features=300, width=12, density=0.05, value_type="fp32", seed=0):
    draw = np.random.default_rng(seed)
    mask = draw.random((num_features, width)) < density
    mask[draw.random(num_features) < 0.3] = False
    mask[:, draw.random(width) < 0.3] = False
    values = draw.standard_normal(mask.shape).astype(np.float32)
    return CompactTable.from_mask(mask, values, value_type=value_type)


def expected_terms(table, ids, weight):
    vectors = table.to_dense()[ids].astype(np.float64)
    terms = 0.5 * (vectors.sum(1) ** 2 - (vectors**2).sum(1)).sum(1)
    return terms, vectors.reshape(len(ids), -1) @ weight


@pytest.mark.parametrize("value_type", VALUE_TYPES)
@pytest.mark.parametrize(
    ("num_rows", "num_fields", "width", "num_outputs"), [(1, 3, 12, 5), (70, 7, 5, 1), (90, 3, 64, 0)]
)
def test_terms_equal_those_of_dense_vectors(num_rows, num_fields, width, num_outputs, value_type, monkeypatch):
    monkeypatch.setattr(row_terms, "MAX_CELLS", 200)  # several parts
    table, draw = make_table(width=width, value_type=value_type), np.random.default_rng(1)
    ids = draw.integers(0, table.num_features, (num_rows, num_fields))
    weight = draw.standard_normal((num_fields * width, num_outputs)).astype(np.float32)
    terms, product = expected_terms(table, ids, weight)
    for found in (table.row_terms(ids.astype(np.int32), weight), by_numpy(table, ids, weight)):
        np.testing.assert_allclose(found[0], terms, atol=1e-4)
        np.testing.assert_allclose(found[1], product, atol=1e-4)


def by_numpy(table, ids, weight):
    return row_terms_by_numpy(table.layout, table.arrays, ids, weight)


def test_full_rows_among_partial_ones():
    mask = np.zeros((500, 4), bool)
    mask[::25] = True
    mask[3::40, 1] = True
    table = CompactTable.from_mask(mask, np.random.default_rng(0).standard_normal(mask.shape))
    ids = np.arange(500).reshape(100, 5)
    weight = np.random.default_rng(1).standard_normal((20, 3)).astype(np.float32)
    for found in (table.row_terms(ids, weight), by_numpy(table, ids, weight)):
        for one, expected in zip(found, expected_terms(table, ids, weight), strict=True):
            np.testing.assert_allclose(one, expected, atol=1e-5)


def test_rows_that_keep_much_are_left_to_dense_arrays():
    table, ids = make_table(density=1.0), np.arange(30).reshape(10, 3)
    assert table.row_terms(ids, np.ones((36, 2), np.float32)) is None
    assert by_numpy(table, ids, np.ones((36, 2), np.float32)) is None


def test_ids_outside_the_table_and_weights_that_do_not_fit_raise():
    table, weight = make_table(), np.ones((24, 1), np.float32)
    for compute in (table.row_terms, lambda ids, weight: by_numpy(table, ids, weight)):
        with pytest.raises(OutsideTableError, match="id 300 is outside a table of 300 rows"):
            compute(np.array([[0, 1], [300, 2]]), weight)
    with pytest.raises(ValueError, match="weight has 24 rows: expected 3 × 12"):
        table.row_terms(np.array([[0, 1, 2]]), weight)


def test_without_numba_the_numpy_twin_is_chosen(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "thresher.kernels.sparse_products", None)
    table = make_table()
    assert choose_row_terms(table.layout, table.arrays).func is row_terms_by_numpy
