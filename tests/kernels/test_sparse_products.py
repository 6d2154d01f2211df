import numpy as np
import pytest

from thresher.kernels.sparse_products import MAX_DENSITY, multiply_nonzero, sparse_product


@pytest.mark.parametrize("density", [0.0, 0.02, MAX_DENSITY * 0.9, 0.5, 1.0])
@pytest.mark.parametrize("rows", [1, 40])
def test_products_equal_those_of_numpy(density, rows):
    random = np.random.default_rng(0)
    inputs = random.standard_normal((rows, 300)).astype(np.float32)
    inputs[random.random(inputs.shape) >= density] = 0
    weight = random.standard_normal((300, 7)).astype(np.float32)
    np.testing.assert_allclose(sparse_product(inputs, weight), inputs @ weight, atol=1e-4)


def test_rows_with_too_many_entries_are_left_to_the_dense_product():
    inputs, weight = np.ones((2, 10), np.float32), np.ones((10, 3), np.float32)
    out = np.zeros((2, 3), np.float32)
    assert not multiply_nonzero(inputs, weight, 19, out)
    assert not out.any()
    assert multiply_nonzero(inputs, weight, 20, out)
    np.testing.assert_array_equal(out, 10)
