import numpy as np
import pytest

from thresher.compact.repeats import distinct_rows
from thresher.compact.table import CompactTable


def repeated(num_features=2000, num_distinct=10, density=0.5, width=32, num_full=0):
    generator = np.random.default_rng(0)
    mask = generator.random((num_distinct, width)) < density
    mask[:num_full] = True
    values = generator.standard_normal(mask.shape).astype(np.float32)
    rows = generator.integers(0, num_distinct, num_features)
    return mask[rows], values[rows]


@pytest.mark.parametrize("density", [1.0, 0.5, 0.05])
@pytest.mark.parametrize("value_type", ["fp32", "bf16", "int8"])
def test_rows_that_repeat_are_stored_once_and_read_alike(density, value_type):
    mask, values = repeated(density=density)
    table = CompactTable.from_mask(mask, values, value_type=value_type)
    assert table.layout.has_pool
    assert table.storage_bytes < 2 * 2000 + 10 * 32 * 5 + 600
    assert table.num_parameters == mask.sum()
    np.testing.assert_array_equal(table.mask(), mask)
    np.testing.assert_array_equal(table.lookup(np.arange(2000)), table.to_dense())
    np.testing.assert_allclose(table.to_dense(), np.where(mask, values, 0), atol=0.03)


@pytest.mark.parametrize(("width", "density", "content"), [(4, 0.9, "masks"), (64, 0.05, "columns")])
def test_a_pool_with_full_rows_is_read_back_from_its_file(tmp_path, width, density, content):
    mask, values = repeated(3000, 40, density=density, width=width, num_full=14)
    table = CompactTable.from_mask(mask, values)
    assert (table.layout.has_pool, table.layout.content) == (True, content)
    assert table.layout.num_full_rows > 0
    table.save(tmp_path / "table.safetensors")
    loaded = CompactTable.load(tmp_path / "table.safetensors")
    np.testing.assert_array_equal(loaded.to_dense(), np.where(mask, values, 0))


def test_rows_that_differ_in_one_column_or_one_bit_are_told_apart():
    begins = np.array([0, 2, 4, 6])
    columns = np.array([0, 1, 0, 1, 0, 2, 0, 1])
    values = np.array([1, 2, 1, 2, 1, 2, 1, np.nextafter(np.float32(2), 3)], np.float32)
    assert distinct_rows(begins, columns, values).tolist() == [0, 0, 2, 3]
    assert distinct_rows(begins[2:] - 4, columns[4:], values[4:]) is None


def test_rows_of_one_table_that_never_repeat_have_no_pool():
    values = np.random.default_rng(0).standard_normal((500, 16))
    assert not CompactTable.from_mask(np.ones((500, 16), bool), values).layout.has_pool
