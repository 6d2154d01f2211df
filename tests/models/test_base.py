"""Pooling of multi-valued fields."""

import pytest
import torch

from thresher.data.table import Bag
from thresher.models.base import embed_fields, pool


@pytest.mark.parametrize("pooling", ["mean", "sum"])
def test_pool_means_and_sums(pooling):
    vectors, offsets = torch.randn(5, 3), torch.tensor([0, 2, 2, 5])
    rows = [vectors[0:2], vectors[2:2], vectors[2:5]]
    expected = [row.sum(0) / (max(len(row), 1) if pooling == "mean" else 1) for row in rows]
    torch.testing.assert_close(pool(vectors, offsets, pooling), torch.stack(expected))


def test_pool_passes_gradients():
    vectors, offsets = torch.randn(5, 3, dtype=torch.float64, requires_grad=True), torch.tensor([0, 2, 2, 5])
    assert torch.autograd.gradcheck(lambda v: pool(v, offsets, "mean"), vectors)


def test_embed_fields_keeps_the_order_of_fields():
    table = torch.arange(10.0)[:, None]
    ids = torch.tensor([[1, 4], [2, 5]])
    first = Bag(0, torch.tensor([7, 9], dtype=torch.int32), torch.tensor([0, 2, 2]), "mean")
    third = Bag(2, torch.tensor([6, 6, 7]), torch.tensor([0, 1, 3]), "sum")
    vectors = embed_fields(lambda i: torch.nn.functional.embedding(i, table), ids, [third, first])
    assert vectors[..., 0].tolist() == [[8.0, 1.0, 6.0, 4.0], [0.0, 2.0, 13.0, 5.0]]


def test_a_bag_with_one_value_equals_a_single_valued_field():
    table, ids = torch.nn.Embedding(6, 4), torch.tensor([[1, 4], [2, 5], [0, 3]])
    ragged = Bag(1, ids[:, 1], torch.arange(4), "mean")
    torch.testing.assert_close(embed_fields(table, ids[:, :1], [ragged]), embed_fields(table, ids))
