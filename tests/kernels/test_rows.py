import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from thresher.kernels.distinct import find_distinct
from thresher.kernels.fm import fm_from_rows
from thresher.kernels.linear import sum_from_rows
from thresher.kernels.rows import collect_rows, expand_rows, lookup_rows, row_gradient


@st.composite
def batches(draw):
    """Table `[N, D]` in float64 and ids `[B, F]`."""
    N, D = draw(st.integers(1, 40)), draw(st.sampled_from([1, 3, 16, 20]))
    B, F = draw(st.integers(0, 9)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    table = torch.randn(N, D, generator=generator, dtype=torch.float64)
    return table, torch.randint(N, (B, F), generator=generator)


def plain_fm(vectors):
    pairs = torch.einsum("bfd,bgd->bfg", vectors, vectors)
    return (pairs.sum((1, 2)) - pairs.diagonal(dim1=1, dim2=2).sum(1)) / 2


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
def test_fm_from_rows_is_the_sum_over_pairs_of_fields(batch):
    table, ids = batch
    for dtype, rtol in ((torch.float32, 1e-4), (torch.float64, 1e-10)):  # the kernel, the twin
        distinct = find_distinct(ids, table.shape[0])
        rows = table[distinct.ids].to(dtype).requires_grad_()
        upstream = torch.linspace(-1, 2, ids.shape[0], dtype=torch.float64)
        term = fm_from_rows(rows, distinct)
        term.backward(upstream.to(dtype))
        expected_rows = table[distinct.ids].requires_grad_()
        expected = plain_fm(expected_rows[distinct.places.long()])
        expected.backward(upstream)
        torch.testing.assert_close(term.double(), expected, rtol=rtol, atol=rtol)
        torch.testing.assert_close(rows.grad.double(), expected_rows.grad, rtol=rtol, atol=rtol)


@given(batches(), st.data())
def test_sum_from_rows_is_the_sum_over_fields_of_the_ids_not_left_out(batch, data):
    table, ids = batch
    for dtype, rtol in ((torch.float32, 1e-4), (torch.float64, 1e-10)):  # the kernel, the twin
        distinct = find_distinct(ids.clone(), table.shape[0])
        left_out = torch.tensor(
            data.draw(st.lists(st.booleans(), min_size=distinct.num_ids, max_size=distinct.num_ids))
        )
        distinct = distinct.without(left_out.bool())
        rows = table[distinct.ids, :1].to(dtype).requires_grad_()
        upstream = torch.linspace(-1, 2, ids.shape[0], dtype=torch.float64)
        total = sum_from_rows(rows, distinct)
        total.backward(upstream.to(dtype))
        expected_rows = table[distinct.ids, :1].requires_grad_()
        padded = torch.cat((expected_rows, torch.zeros(1, 1, dtype=torch.float64)))
        expected = padded[distinct.places.long()].sum((1, 2))
        expected.backward(upstream)
        torch.testing.assert_close(total.double(), expected, rtol=rtol, atol=rtol)
        torch.testing.assert_close(rows.grad.double(), expected_rows.grad, rtol=rtol, atol=rtol)


@given(batches())
def test_collecting_is_the_transpose_of_expanding(batch):
    table, ids = batch
    distinct = find_distinct(ids, table.shape[0])
    grad = torch.randn(*ids.shape, table.shape[1], generator=torch.Generator().manual_seed(1))
    rows = torch.randn(distinct.num_ids, table.shape[1], generator=torch.Generator().manual_seed(2))
    left = (expand_rows(rows, distinct).double() * grad).sum()
    right = (rows.double() * collect_rows(grad, distinct)).sum()
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-4)


def test_a_row_gradient_is_what_torch_calls_coalesced():
    grad = row_gradient(torch.Size((5, 2)), torch.tensor([1, 4]), torch.ones(2, 2))
    assert grad.is_coalesced()
    assert grad.to_dense().sum(1).tolist() == [0, 2, 0, 0, 2]


def test_results_do_not_depend_on_the_number_of_threads():
    table = torch.randn(500, 16)
    ids = (torch.rand(64, 10) ** 3 * 500).long()
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            distinct = find_distinct(ids.clone(), 500)
            rows = table[distinct.ids].requires_grad_()
            term = fm_from_rows(rows, distinct)
            term.sum().backward()
            results.append(
                (term.detach(), rows.grad, collect_rows(expand_rows(table[distinct.ids], distinct), distinct))
            )
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
