import torch
from hypothesis import given, strategies as st

from thresher.kernels.distinct import find_distinct
from thresher.kernels.interactions import fm_from_rows, sum_from_rows
from thresher.kernels.rows import collect_rows, expand_rows


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
def test_sum_from_rows_sums_over_fields_without_removed_ids(batch, data):
    table, ids = batch
    for dtype, rtol in ((torch.float32, 1e-4), (torch.float64, 1e-10)):  # the kernel, the twin
        distinct = find_distinct(ids.clone(), table.shape[0])
        removed = torch.tensor(data.draw(st.lists(st.booleans(), min_size=distinct.num_ids, max_size=distinct.num_ids)))
        distinct = distinct.without(removed.bool())
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
