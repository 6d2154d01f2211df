import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from thresher.compact.encoding import MAX_CODE, Quantized, pack_values, quantize, unpack_values
from thresher.compact.layouts import SCALE_BLOCK, VALUE_TYPES, compact_bytes
from thresher.compact.table import CompactTable

finite = arrays(np.float32, st.integers(0, 200), elements=st.floats(-1e4, 1e4, width=32))


def rounded(values, value_type):
    return unpack_values(pack_values(values, value_type), value_type, np.arange(len(values)))


@given(finite)
def test_half_floats_round_as_torch_does(values):
    for value_type, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        expected = torch.from_numpy(values).to(dtype).float().numpy()
        np.testing.assert_array_equal(rounded(values, value_type), expected)


@given(finite, st.sampled_from(["int8", "int4"]))
def test_quantization_error_is_at_most_that_of_the_largest_scale(values, value_type):
    block, most = SCALE_BLOCK[value_type], MAX_CODE[value_type]
    unpacked = rounded(values, value_type)
    for first in range(0, len(values), block):
        part, got = values[first : first + block], unpacked[first : first + block]
        step = np.abs(part).max() / most
        plain = np.rint(part / (step or 1)) * step
        assert np.square(part - got).sum() <= np.square(part - plain).sum() * 1.001 + 1e-30


@pytest.mark.parametrize("value_type", ["int8", "int4"])
def test_codes_and_scales_survive_packing(value_type):
    most = MAX_CODE[value_type]
    codes = np.random.default_rng(0).integers(-most, most + 1, 101).astype(np.int8)
    scales = np.random.default_rng(1).random(-(-101 // SCALE_BLOCK[value_type]), np.float32)
    table = CompactTable.from_entries((101, 1), np.arange(101), Quantized(codes, scales), value_type=value_type)
    values = codes * np.repeat(scales, SCALE_BLOCK[value_type])[:101]
    np.testing.assert_array_equal(table.entries()[1], values)
    np.testing.assert_array_equal(table.lookup(np.arange(101))[:, 0], values)


def test_a_block_of_zeros_stays_zero():
    assert not quantize(np.zeros(70, np.float32), "int8").codes.any()


@pytest.mark.parametrize("value_type", ["fp16", "int8", "int4"])
def test_values_that_do_not_fit_are_refused(value_type):
    with pytest.raises(ValueError, match=r"does not fit in fp16|NaN or infinite"):
        pack_values(np.array([1.0, np.inf], np.float32), value_type)
    with pytest.raises(ValueError, match="NaN or infinite"):
        pack_values(np.array([1.0, np.nan], np.float32), value_type)


@pytest.mark.parametrize("value_type", VALUE_TYPES)
@pytest.mark.parametrize("density", [1.0, 0.98, 0.3, 0.02])
def test_every_type_works_in_every_layout(value_type, density):
    generator = np.random.default_rng(0)
    mask = generator.random((900, 24)) < density
    weight = generator.standard_normal(mask.shape).astype(np.float32) * 1e-3
    weight[::7] = 0  # kept zeros
    table = CompactTable.from_mask(mask, weight, value_type=value_type)
    np.testing.assert_array_equal(table.mask(), mask)
    dense = table.to_dense()
    np.testing.assert_array_equal(table.lookup(np.arange(900)), dense)
    tolerance = {"fp32": 0, "fp16": 2e-6, "bf16": 2e-5, "int8": 3e-5, "int4": 8e-4}[value_type]
    np.testing.assert_allclose(dense, np.where(mask, weight, 0), atol=tolerance)
    assert table.storage_bytes == compact_bytes(mask, value_type)


def test_smaller_value_types_give_fewer_bytes():
    generator = np.random.default_rng(0)
    mask = generator.random((3000, 64)) < 0.05
    table = CompactTable.from_mask(mask, generator.standard_normal(mask.shape))
    sizes = {value_type: table.to_value_type(value_type).storage_bytes for value_type in VALUE_TYPES}
    assert sizes["fp32"] > sizes["fp16"] == sizes["bf16"] > sizes["int8"] > sizes["int4"]
    assert table.to_value_type("fp32") is table
