import os

import pytest
import torch
from torch import nn

from thresher.compact.convert import to_compact
from thresher.compact.embedding import CompactEmbedding
from thresher.compact.layouts import compact_bytes
from thresher.kernels import compiling


def random_embedding(num_features=200, embedding_dim=16, density=0.2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(num_features, embedding_dim, generator=generator) < density
    weight = torch.randn(num_features, embedding_dim, generator=generator)
    return CompactEmbedding.from_mask([num_features - 50, 50], mask, weight), mask, weight


@pytest.mark.parametrize("shape", [(1024, 7), (5,), (), (0, 3), (2, 3, 4)])
def test_vectors_are_the_masked_weight_for_ids_of_any_shape(shape):
    embedding, mask, weight = random_embedding()
    ids = torch.randint(200, shape, dtype=torch.int32)
    torch.testing.assert_close(embedding(ids), (weight * mask)[ids.long()], rtol=0, atol=0)


@pytest.mark.parametrize("embedding_dim", [1, 16, 300])
def test_it_takes_the_steps_of_masked_dense_training(embedding_dim):
    embedding, mask, weight = random_embedding(embedding_dim=embedding_dim)
    dense = nn.Parameter(weight.clone())
    optimizers = [torch.optim.Adam([p], lr=0.1, weight_decay=0.01) for p in (embedding.values, dense)]
    for step in range(5):
        ids = torch.randint(200, (64, 3), generator=torch.Generator().manual_seed(step))
        target = torch.randn(64, 3, embedding_dim, generator=torch.Generator().manual_seed(step))
        for optimizer, vectors in zip(optimizers, (embedding(ids), (dense * mask)[ids]), strict=True):
            optimizer.zero_grad()
            (vectors - target).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(embedding.values, dense[mask])


def test_a_checkpoint_brings_back_values_and_where_they_belong():
    embedding, mask, weight = random_embedding(seed=0)
    other, _, _ = random_embedding(seed=0)
    with torch.no_grad():
        other.values.zero_()
    other.load_state_dict(embedding.state_dict())
    torch.testing.assert_close(other(torch.arange(200)), weight * mask)


def test_sizes_masks_and_bytes_are_those_of_the_mask():
    embedding, mask, _ = random_embedding(num_features=3000, density=0.03)
    assert embedding.num_parameters() == mask.sum()
    assert torch.equal(embedding.mask(), mask)
    assert torch.equal(embedding.sizes(), mask.sum(1))
    assert embedding.storage_bytes() == compact_bytes(mask) == to_compact(embedding).storage_bytes
    assert embedding.parameter_groups()["embeddings"][0] is embedding.values


def test_to_a_table_and_back_nothing_changes():
    embedding, mask, weight = random_embedding()
    weight[3] = 0.0
    embedding = CompactEmbedding.from_mask([150, 50], mask, weight)
    again = CompactEmbedding.from_table([150, 50], to_compact(embedding))
    assert torch.equal(again.values, embedding.values)
    assert torch.equal(again.mask(), mask)


def test_a_plain_table_converts_too_and_others_are_told_what_to_do():
    plain = nn.Embedding(20, 4)
    assert torch.equal(torch.from_numpy(to_compact(plain).to_dense()), plain.weight.detach())
    with pytest.raises(TypeError, match="Linear has no compact form"):
        to_compact(nn.Linear(2, 2))


def test_ids_outside_the_table_raise():
    embedding, _, _ = random_embedding()
    with pytest.raises(IndexError, match="id 200 is outside a table of 200 rows"):
        embedding(torch.tensor([3, 200]))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="field_sizes"):
        CompactEmbedding.from_mask([3], torch.ones(4, 2, dtype=torch.bool), torch.ones(4, 2))


def test_who_asks_for_its_weight_is_told_what_there_is():
    embedding, _, _ = random_embedding()
    assert getattr(embedding, "weight", None) is None
    with pytest.raises(AttributeError, match=r"the table is compact and has no weight.*another Parameter"):
        _ = embedding.weight.device
    with pytest.raises(AttributeError, match="'CompactEmbedding' object has no attribute 'wieght'"):
        _ = embedding.wieght


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_it_survives_a_fork(monkeypatch):
    monkeypatch.setattr(compiling, "PARALLEL_CELLS", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    embedding, mask, weight = random_embedding()
    embedding(torch.arange(200))
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(embedding(torch.arange(200)), weight * mask) else 1)
    assert os.waitpid(child, 0)[1] == 0
