"""Rows added for new ids: old rows do not change, new ones have the requested values."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from thresher.attach.compact_tables import CompactBag
from thresher.attach.extend import Growth, extend_embedding, extend_table
from thresher.compact.embedding import CompactEmbedding
from thresher.compact.table import CompactTable
from thresher.errors import ConfigError


def naive(dense, old_sizes, new_sizes, start, given_rows=None):
    """Field by field: the old rows, then the new ones."""
    blocks, given = [], iter(() if given_rows is None else given_rows)
    for block, new in zip(dense.split(old_sizes), new_sizes, strict=True):
        added = new - len(block)
        first = block[0] if start == "unknown" else torch.zeros_like(block[0])
        rows = [next(given) if given_rows is not None else first for _ in range(added)]
        blocks += [block, *(row[None] for row in rows)]
    return torch.cat(blocks)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=4), st.integers(0, 10**6))
def test_extended_tables_have_the_old_rows_then_the_new_ones(sizes, seed):
    torch.manual_seed(seed)
    old, new = tuple(size for size, _ in sizes), tuple(size + added for size, added in sizes)
    growth, dense = Growth(old, new), torch.randn(sum(old), 3)
    mask = torch.rand(dense.shape) < 0.5
    embedding = CompactEmbedding.from_mask(old, mask, dense)
    table = CompactTable.from_mask(mask, dense)
    rows = torch.randn(sum(new) - sum(old), 3) * (torch.rand(sum(new) - sum(old), 3) < 0.5)
    for start in ("unknown", "zeros", rows):
        expected = naive(dense * mask, old, new, start, rows if start is rows else None)
        extended = extend_embedding(embedding, growth, start)
        assert extended.field_sizes == new
        assert torch.equal(extended(torch.arange(sum(new))).detach(), expected)
        assert np.array_equal(extend_table(table, growth, start).to_dense(), expected.numpy())


def test_fields_must_not_shrink_or_disappear():
    for new in ((2, 4), (3,)):
        with pytest.raises(ConfigError, match="cannot grow"):
            Growth((3, 4), new)


def test_given_rows_must_match_the_new_features():
    embedding = CompactEmbedding.from_mask([3], torch.ones(3, 2, dtype=torch.bool), torch.ones(3, 2))
    with pytest.raises(ConfigError, match=r"start has shape \[2, 2\]; expected \[1, 2\]"):
        extend_embedding(embedding, Growth.of_table(3, 4), torch.ones(2, 2))


def test_a_table_without_unknown_feature_starts_with_zeros():
    embedding = CompactEmbedding.from_mask([3], torch.ones(3, 2, dtype=torch.bool), torch.ones(3, 2))
    growth = Growth.of_table(3, 5)
    assert extend_embedding(embedding, growth)(torch.tensor([2, 3, 4])).tolist() == [[1, 1], [0, 0], [0, 0]]
    with pytest.raises(ConfigError, match="needs a table with an unknown feature"):
        extend_embedding(embedding, growth, "unknown")


def test_scale_grad_by_freq_is_kept_and_bags_are_rejected():
    positions, values = torch.arange(6), torch.ones(6)
    scaled = CompactEmbedding([3], 2, positions, values)
    scaled.scale_grad_by_freq = True
    assert extend_embedding(scaled, Growth.of_table(3, 5)).scale_grad_by_freq
    with pytest.raises(ConfigError, match=r"compact nn.EmbeddingBag cannot be extended.*extend_ticket"):
        extend_embedding(CompactBag(nn.EmbeddingBag(3, 2), positions, values), Growth.of_table(3, 5))


def test_growth_of_another_table_is_rejected():
    mask = torch.ones(3, 2, dtype=torch.bool)
    embedding, table = CompactEmbedding.from_mask([3], mask, torch.ones(3, 2)), CompactTable.from_mask(mask, mask)
    for extend, it in ((extend_embedding, embedding), (extend_table, table)):
        with pytest.raises(ConfigError, match="the table has 3 rows, but old_sizes sum to 4"):
            extend(it, Growth.of_table(4, 5))
        with pytest.raises(ConfigError, match=r"start must be .*got 'zero'"):
            extend(it, Growth.of_table(3, 5), "zero")


@pytest.mark.parametrize(("value_type", "step"), [("fp16", 0.0), ("int8", 1 / 127), ("int4", 1 / 7)])
def test_quantized_values_change_by_at_most_one_step_of_their_scale(value_type, step):
    torch.manual_seed(0)
    mask, dense = torch.rand(40, 8) < 0.5, torch.randn(40, 8)
    table = CompactTable.from_mask(mask, dense, value_type=value_type)
    extended = extend_table(table, Growth((40,), (50,))).to_dense()
    assert np.abs(extended[:40] - table.to_dense()).max() <= step * dense.abs().max().item()
