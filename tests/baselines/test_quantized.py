"""The quantized dense table: exact while training, as stored in evaluation, and of the bytes it says."""

import pytest
import torch

from thresher.baselines.quantized import QuantizedConfig, QuantizedTable, round_to_int8
from thresher.compact.method_table import to_compact
from thresher.search.budget import Budget
from thresher.search.immediate import largest_within

SIZES = (4, 9)
ALL = torch.arange(13)


def table(value_type, embedding_dim=10):
    torch.manual_seed(0)
    return QuantizedTable(SIZES, QuantizedConfig(embedding_dim=embedding_dim, value_type=value_type))


@pytest.mark.parametrize(("value_type", "num_bytes"), [("fp16", 13 * 10 * 2), ("int8", 13 * 10 + 3 * 4)])
def test_the_stored_table_has_its_stated_size_and_the_vectors_of_evaluation(value_type, num_bytes):
    quantized = table(value_type).eval()
    assert quantized.num_parameters() == 130
    assert quantized.storage_bytes() == num_bytes
    stored = to_compact(quantized)
    assert stored.value_type == value_type
    assert stored.storage_bytes == num_bytes
    assert torch.equal(stored.lookup(ALL), quantized(ALL))


def test_rounding_is_within_half_a_step_and_only_in_evaluation():
    quantized = table("int8")
    assert torch.equal(quantized(ALL), quantized.weight)
    quantized.eval()
    error = (quantized(ALL) - quantized.weight).abs().max()
    assert 0 < error <= quantized.weight.abs().max() / 127 / 2 + 1e-7
    assert torch.equal(round_to_int8(torch.zeros(3, 2)), torch.zeros(3, 2))


def test_rounding_follows_the_weights():
    quantized = table("fp16").eval()
    before = quantized(ALL)
    with torch.no_grad():
        quantized.weight.mul_(2)
    assert torch.equal(quantized(ALL), before * 2)
    quantized.train()
    optimizer = torch.optim.Adam(quantized.parameters(), fused=True, lr=0.1)
    quantized(ALL).sum().backward()
    optimizer.step()
    quantized.eval()
    torch.testing.assert_close(quantized(ALL), quantized.weight.detach(), atol=1e-3, rtol=1e-3)
    quantized.load_state_dict(table("fp16").state_dict())
    assert torch.equal(quantized(ALL), before)


def test_at_equal_bytes_it_is_wider_than_a_plain_table():
    fitted = largest_within(Budget.parse("1KB"), QuantizedConfig(), [100], None)
    assert fitted.embedding_dim == 9  # 900 bytes and 15 scales; a plain table of 1 kB has width 2
