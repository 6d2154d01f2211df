import pytest
import torch
from hypothesis import given, strategies as st
from torch.nn import functional

from thresher.kernels import compiling
from thresher.kernels.distinct import find_distinct
from thresher.kernels.rows import (
    collect_rows,
    compact_lookup,
    compact_lookup_by_torch,
    expand_rows,
    lookup_rows,
    row_gradient,
)


@st.composite
def batches(draw):
    """Table `[N, D]` in float64 and ids `[B, F]`."""
    N, D = draw(st.integers(1, 40)), draw(st.sampled_from([1, 3, 16, 20]))
    B, F = draw(st.integers(0, 9)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    table = torch.randn(N, D, generator=generator, dtype=torch.float64)
    return table, torch.randint(N, (B, F), generator=generator)


@given(batches())
def test_look_up_and_expand_are_the_plain_embedding_and_its_gradient(batch):
    table, ids = batch
    for dtype, rtol in ((torch.float32, 1e-5), (torch.float64, 1e-12)):  # the kernel, the twin
        weight = table.to(dtype, copy=True).requires_grad_()
        distinct = find_distinct(ids, weight.shape[0])
        vectors = expand_rows(lookup_rows(weight, distinct), distinct)
        vectors.square().sum().backward()
        expected_weight = table.clone().requires_grad_()
        expected = functional.embedding(ids, expected_weight)
        expected.square().sum().backward()
        torch.testing.assert_close(vectors.double(), expected, rtol=rtol, atol=0)
        assert weight.grad.is_sparse
        torch.testing.assert_close(weight.grad.to_dense().double(), expected_weight.grad, rtol=rtol, atol=1e-9)


@given(batches())
def test_collecting_is_the_transpose_of_expanding(batch):
    table, ids = batch
    distinct = find_distinct(ids, table.shape[0])
    grad = torch.randn(*ids.shape, table.shape[1], generator=torch.Generator().manual_seed(1))
    rows = torch.randn(distinct.num_ids, table.shape[1], generator=torch.Generator().manual_seed(2))
    left = (expand_rows(rows, distinct).double() * grad).sum()
    right = (rows.double() * collect_rows(grad, distinct)).sum()
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-4)


def test_a_row_gradient_is_coalesced():
    grad = row_gradient(torch.Size((5, 2)), torch.tensor([1, 4]), torch.ones(2, 2))
    assert grad.is_coalesced()
    assert grad.to_dense().sum(1).tolist() == [0, 2, 0, 0, 2]


def compact_table(num_features=60, embedding_dim=9, density=0.3):
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(num_features, embedding_dim, generator=generator) < density
    row_starts = torch.cat([torch.zeros(1, dtype=torch.int64), mask.sum(1).cumsum(0)]).int()
    columns = mask.nonzero()[:, 1].to(torch.uint8)
    return torch.randn(int(mask.sum()), generator=generator), row_starts, columns


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("ids_dtype", [torch.int32, torch.int64])
def test_compact_lookup_and_twin_agree(monkeypatch, threads, ids_dtype):
    monkeypatch.setattr(compiling, "PARALLEL_CELLS", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    values, row_starts, columns = compact_table()
    ids = torch.randint(60, (500,), dtype=ids_dtype)
    weights = torch.randn(500, 9)
    results = []
    for look_up in (compact_lookup, compact_lookup_by_torch):
        leaf = values.clone().requires_grad_()
        vectors = look_up(leaf, row_starts, columns, ids, 9)
        (vectors * weights).sum().backward()
        results.append((vectors.detach(), leaf.grad))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=0)
    torch.testing.assert_close(results[0][1], results[1][1])


def test_compact_gradients_are_identical_for_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(compiling, "PARALLEL_CELLS", 0)
    values, row_starts, columns = compact_table()
    ids, weights = torch.randint(60, (2000,)), torch.randn(2000, 9)
    gradients = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        leaf = values.clone().requires_grad_()
        (compact_lookup(leaf, row_starts, columns, ids, 9) * weights).sum().backward()
        gradients.append(leaf.grad)
    assert torch.equal(gradients[0], gradients[1])
    assert torch.equal(gradients[0], gradients[2])


def test_the_compact_gradient_is_the_derivative():
    values, row_starts, columns = compact_table(num_features=12, embedding_dim=4)
    ids = torch.randint(12, (3, 5))
    assert torch.autograd.gradcheck(
        lambda leaf: compact_lookup(leaf, row_starts, columns, ids, 4), values.double().requires_grad_()
    )


@pytest.mark.parametrize("bad", [-1, 60])
def test_compact_lookup_refuses_ids_outside_the_table(bad):
    values, row_starts, columns = compact_table()
    with pytest.raises(IndexError):
        compact_lookup(values, row_starts, columns, torch.tensor([1, bad]), 9)
