import pytest
import torch

from thresher.kernels import compact_lookup as kernels
from thresher.kernels import thread_pool


def table(num_features=60, embedding_dim=9, density=0.3):
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(num_features, embedding_dim, generator=generator) < density
    row_starts = torch.cat([torch.zeros(1, dtype=torch.int64), mask.sum(1).cumsum(0)]).int()
    columns = mask.nonzero()[:, 1].to(torch.uint8)
    return torch.randn(int(mask.sum()), generator=generator), row_starts, columns


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("ids_dtype", [torch.int32, torch.int64])
def test_kernel_and_twin_agree_in_values_and_gradients(monkeypatch, threads, ids_dtype):
    monkeypatch.setattr(thread_pool, "PARALLEL_CELLS", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    values, row_starts, columns = table()
    ids = torch.randint(60, (500,), dtype=ids_dtype)
    weights = torch.randn(500, 9)
    results = []
    for look_up in (kernels.compact_lookup, kernels.compact_lookup_torch):
        leaf = values.clone().requires_grad_()
        vectors = look_up(leaf, row_starts, columns, ids, 9)
        (vectors * weights).sum().backward()
        results.append((vectors.detach(), leaf.grad))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=0)
    torch.testing.assert_close(results[0][1], results[1][1])


def test_gradients_are_the_same_bits_with_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(thread_pool, "PARALLEL_CELLS", 0)
    values, row_starts, columns = table()
    ids, weights = torch.randint(60, (2000,)), torch.randn(2000, 9)
    gradients = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        leaf = values.clone().requires_grad_()
        (kernels.compact_lookup(leaf, row_starts, columns, ids, 9) * weights).sum().backward()
        gradients.append(leaf.grad)
    assert torch.equal(gradients[0], gradients[1])
    assert torch.equal(gradients[0], gradients[2])


def test_the_gradient_is_the_derivative():
    values, row_starts, columns = table(num_features=12, embedding_dim=4)
    ids = torch.randint(12, (3, 5))
    assert torch.autograd.gradcheck(
        lambda leaf: kernels.compact_lookup(leaf, row_starts, columns, ids, 4), values.double().requires_grad_()
    )


@pytest.mark.parametrize("bad", [-1, 60])
def test_ids_outside_the_table_are_never_read(bad):
    values, row_starts, columns = table()
    with pytest.raises(IndexError):
        kernels.compact_lookup(values, row_starts, columns, torch.tensor([1, bad]), 9)
