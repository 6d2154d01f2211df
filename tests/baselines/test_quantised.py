"""The quantised dense table: exact while training, as stored in evaluation, and of the bytes it says."""

import pytest
import torch

from thresher.baselines.quantised import QuantisedConfig, QuantisedTable, round_to_int8
from thresher.compact.stored import to_compact
from thresher.search.budget import Budget
from thresher.search.immediate import largest_within

SIZES = (4, 9)
ALL = torch.arange(13)


def table(value_type, embedding_dim=10):
    torch.manual_seed(0)
    return QuantisedTable(SIZES, QuantisedConfig(embedding_dim=embedding_dim, value_type=value_type))


@pytest.mark.parametrize(("value_type", "num_bytes"), [("fp16", 13 * 10 * 2), ("int8", 13 * 10 + 3 * 4)])
def test_the_stored_table_has_its_stated_size_and_the_vectors_of_evaluation(value_type, num_bytes):
    quantised = table(value_type).eval()
    assert quantised.num_parameters() == 130
    assert quantised.storage_bytes() == num_bytes
    stored = to_compact(quantised)
    assert stored.value_type == value_type
    assert stored.storage_bytes == num_bytes
    assert torch.equal(stored.lookup(ALL), quantised(ALL))


def test_rounding_is_within_half_a_step_and_only_in_evaluation():
    quantised = table("int8")
    assert torch.equal(quantised(ALL), quantised.weight)
    quantised.eval()
    error = (quantised(ALL) - quantised.weight).abs().max()
    assert 0 < error <= quantised.weight.abs().max() / 127 / 2 + 1e-7
    assert torch.equal(round_to_int8(torch.zeros(3, 2)), torch.zeros(3, 2))


def test_rounding_follows_the_weights():
    quantised = table("fp16").eval()
    before = quantised(ALL)
    with torch.no_grad():
        quantised.weight.mul_(2)
    assert torch.equal(quantised(ALL), before * 2)
    quantised.train()
    optimizer = torch.optim.Adam(quantised.parameters(), fused=True, lr=0.1)
    quantised(ALL).sum().backward()
    optimizer.step()
    quantised.eval()
    torch.testing.assert_close(quantised(ALL), quantised.weight.detach(), atol=1e-3, rtol=1e-3)
    quantised.load_state_dict(table("fp16").state_dict())
    assert torch.equal(quantised(ALL), before)


def test_at_equal_bytes_it_is_wider_than_a_plain_table():
    fitted = largest_within(Budget.parse("1KB"), QuantisedConfig(), [100], None)
    assert fitted.embedding_dim == 9  # 900 bytes and 15 scales; a plain table of 1 kB has width 2
