import os

import pytest
import torch
from torch import nn

from thresher.compact.embedding import CompactEmbedding, QuantizedEmbedding, quantize_aware_
from thresher.compact.encoding import MAX_CODE
from thresher.compact.layouts import SCALE_BLOCK, compact_bytes
from thresher.compact.method_table import to_compact
from thresher.compact.table import CompactTable
from thresher.errors import ConfigError, OutsideTableError
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
def test_training_equals_masked_dense_training(embedding_dim):
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


def test_a_state_dict_restores_values_and_positions():
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


def test_a_round_trip_through_a_table_changes_nothing():
    embedding, mask, weight = random_embedding()
    weight[3] = 0.0
    embedding = CompactEmbedding.from_mask([150, 50], mask, weight)
    again = CompactEmbedding.from_table([150, 50], to_compact(embedding))
    assert torch.equal(again.values, embedding.values)
    assert torch.equal(again.mask(), mask)


def test_to_compact_converts_plain_tables_and_refuses_other_modules():
    plain = nn.Embedding(20, 4)
    assert torch.equal(torch.from_numpy(to_compact(plain).to_dense()), plain.weight.detach())
    with pytest.raises(TypeError, match="Linear has no compact form"):
        to_compact(nn.Linear(2, 2))


def test_ids_outside_the_table_raise():
    embedding, _, _ = random_embedding()
    with pytest.raises(OutsideTableError, match="id 200 is outside a table of 200 rows"):
        embedding(torch.tensor([3, 200]))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="field_sizes"):
        CompactEmbedding.from_mask([3], torch.ones(4, 2, dtype=torch.bool), torch.ones(4, 2))


@pytest.mark.parametrize("value_type", [None, "int8", "int4"])
def test_reading_the_weight_gives_the_vectors_and_gradients_of_all_lookups(value_type):
    embedding, mask, _ = random_embedding()
    if value_type is not None:
        embedding = QuantizedEmbedding(embedding, value_type)
    factors = torch.randn(200, 16)
    found = []
    for vectors in (embedding(torch.arange(200)), embedding.weight):
        gradients = torch.autograd.grad((vectors * factors).sum(), list(embedding.parameters()))
        found.append((vectors, *gradients))
    for called, read in zip(*found, strict=True):
        torch.testing.assert_close(read, called)
    assert not embedding.weight[~mask].any()


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


def trained(num_features=100, embedding_dim=16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(num_features, embedding_dim, generator=generator) < 0.3
    weight = torch.randn(num_features, embedding_dim, generator=generator) * 0.2
    return CompactEmbedding.from_mask([num_features], mask, weight)


@pytest.mark.parametrize("value_type", ["int8", "int4"])
def test_quantized_training_starts_from_rounded_values_and_stores_its_own(value_type, tmp_path):
    embedding = trained()
    quantized = QuantizedEmbedding(embedding, value_type)
    ids = torch.arange(100)
    plain = embedding.to_table().to_value_type(value_type)
    torch.testing.assert_close(quantized(ids).detach(), plain.lookup(ids))
    with torch.no_grad():
        quantized.scale_shift.add_(torch.randn_like(quantized.scale_shift) * 0.1)
        quantized.values.add_(torch.randn_like(quantized.values) * 0.05)
    table = to_compact(quantized)
    table.save(tmp_path / "table.safetensors")
    loaded = CompactTable.load(tmp_path / "table.safetensors")
    assert loaded.value_type == value_type
    assert loaded.num_parameters == quantized.num_parameters() == len(embedding.values)
    assert quantized.storage_bytes() == loaded.storage_bytes < embedding.storage_bytes()
    torch.testing.assert_close(loaded.lookup(ids), quantized(ids).detach(), rtol=0, atol=0)


def test_gradients_are_those_of_learned_step_size_quantization():
    quantized = QuantizedEmbedding(trained(num_features=30), "int4")
    with torch.no_grad():
        quantized.scale_shift.fill_(-0.5)  # some values are clipped now
    weight = torch.randn_like(quantized.values)
    (quantized.used_values() * weight).sum().backward()
    block, most = SCALE_BLOCK["int4"], MAX_CODE["int4"]
    scale = quantized.scales().detach().repeat_interleave(block)[: len(weight)]
    ratio = quantized.values.detach() / scale
    inside = ratio.abs() <= most
    assert 0 < inside.float().mean() < 1
    torch.testing.assert_close(quantized.values.grad, weight * inside)
    of_scale = weight * torch.where(inside, ratio.round() - ratio, ratio.sign() * most) * scale
    blocks = torch.arange(len(weight)) // block
    expected = torch.zeros_like(quantized.scale_shift).index_add(0, blocks, of_scale)
    torch.testing.assert_close(quantized.scale_shift.grad, expected, rtol=1e-4, atol=1e-5)


def test_training_with_rounding_beats_rounding_after_training():
    """Four bits, a small regression: training with rounded values must recover part of the loss."""
    torch.manual_seed(0)
    embedding = trained(num_features=40)
    ids = torch.randint(40, (512, 2))
    target = embedding(ids).detach().sum((1, 2))
    rounded_after = embedding.to_table().to_value_type("int4")
    loss_after = (rounded_after.lookup(ids).sum((1, 2)) - target).square().mean().item()
    quantized = QuantizedEmbedding(embedding, "int4")
    optimizer = torch.optim.Adam(quantized.parameters(), lr=1e-3)
    losses = []
    for _ in range(300):
        optimizer.zero_grad()
        loss = (quantized(ids).sum((1, 2)) - target).square().mean()
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    assert losses[0] == pytest.approx(loss_after, rel=1e-4)
    assert min(losses) < 0.5 * loss_after  # training restores its best weights


def test_quantize_aware_replaces_only_compact_tables():
    model = nn.ModuleDict({"a": trained(), "b": trained(seed=1), "plain": nn.Embedding(3, 2)})
    assert quantize_aware_(model, "int8") == ["a", "b"]
    assert type(model["a"]) is type(model["b"]) is QuantizedEmbedding
    assert type(model["plain"]) is nn.Embedding
    with pytest.raises(ConfigError, match="no CompactEmbedding"):
        quantize_aware_(nn.Sequential(nn.Linear(2, 2)), "int8")
    with pytest.raises(ConfigError, match="int8 and int4"):
        QuantizedEmbedding(trained(), "fp16")


def test_blocks_of_zeros_and_empty_tables_train():
    mask = torch.zeros(10, 4, dtype=torch.bool)
    empty = QuantizedEmbedding(CompactEmbedding.from_mask([10], mask, torch.zeros(10, 4)), "int8")
    assert not empty(torch.arange(10)).any()
    zeros = QuantizedEmbedding(CompactEmbedding.from_mask([10], ~mask, torch.zeros(10, 4)), "int8")
    zeros(torch.arange(10)).sum().backward()
    assert torch.isfinite(zeros.values.grad).all()
    assert torch.isfinite(zeros.scale_shift.grad).all()
