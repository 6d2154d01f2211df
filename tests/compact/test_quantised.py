import pytest
import torch
from torch import nn

from thresher.compact.convert import to_compact
from thresher.compact.embedding import CompactEmbedding
from thresher.compact.quantised import QuantisedEmbedding, quantise_aware_
from thresher.compact.table import CompactTable
from thresher.compact.value_types import MAX_CODE, SCALE_BLOCK
from thresher.errors import ConfigError


def trained(num_features=100, embedding_dim=16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(num_features, embedding_dim, generator=generator) < 0.3
    weight = torch.randn(num_features, embedding_dim, generator=generator) * 0.2
    return CompactEmbedding.from_mask([num_features], mask, weight)


@pytest.mark.parametrize("value_type", ["int8", "int4"])
def test_it_starts_from_the_rounded_values_and_stores_what_it_computes_with(value_type, tmp_path):
    embedding = trained()
    quantised = QuantisedEmbedding(embedding, value_type)
    ids = torch.arange(100)
    plain = embedding.to_table().to_value_type(value_type)
    torch.testing.assert_close(quantised(ids).detach(), plain.lookup(ids))
    with torch.no_grad():
        quantised.scale_shift.add_(torch.randn_like(quantised.scale_shift) * 0.1)
        quantised.values.add_(torch.randn_like(quantised.values) * 0.05)
    table = to_compact(quantised)
    table.save(tmp_path / "table.safetensors")
    loaded = CompactTable.load(tmp_path / "table.safetensors")
    assert loaded.value_type == value_type
    assert loaded.num_parameters == quantised.num_parameters() == len(embedding.values)
    assert quantised.storage_bytes() == loaded.storage_bytes < embedding.storage_bytes()
    torch.testing.assert_close(loaded.lookup(ids), quantised(ids).detach(), rtol=0, atol=0)


def test_gradients_are_those_of_learned_step_size_quantisation():
    quantised = QuantisedEmbedding(trained(num_features=30), "int4")
    with torch.no_grad():
        quantised.scale_shift.fill_(-0.5)  # some values are clipped now
    weight = torch.randn_like(quantised.values)
    (quantised.rounded_values() * weight).sum().backward()
    block, most = SCALE_BLOCK["int4"], MAX_CODE["int4"]
    scale = quantised.scales().detach().repeat_interleave(block)[: len(weight)]
    ratio = quantised.values.detach() / scale
    inside = ratio.abs() <= most
    assert 0 < inside.float().mean() < 1
    torch.testing.assert_close(quantised.values.grad, weight * inside)
    of_scale = weight * torch.where(inside, ratio.round() - ratio, ratio.sign() * most) * scale
    blocks = torch.arange(len(weight)) // block
    expected = torch.zeros_like(quantised.scale_shift).index_add(0, blocks, of_scale)
    torch.testing.assert_close(quantised.scale_shift.grad, expected, rtol=1e-4, atol=1e-5)


def test_training_with_rounding_beats_rounding_after_training():
    """Four bits, a small regression: going on with rounded values must win back part of what rounding cost."""
    torch.manual_seed(0)
    embedding = trained(num_features=40)
    ids = torch.randint(40, (512, 2))
    target = embedding(ids).detach().sum((1, 2))
    rounded_after = embedding.to_table().to_value_type("int4")
    loss_after = (rounded_after.lookup(ids).sum((1, 2)) - target).square().mean().item()
    quantised = QuantisedEmbedding(embedding, "int4")
    optimizer = torch.optim.Adam(quantised.parameters(), lr=1e-3)
    losses = []
    for _ in range(300):
        optimizer.zero_grad()
        loss = (quantised(ids).sum((1, 2)) - target).square().mean()
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    assert losses[0] == pytest.approx(loss_after, rel=1e-4)
    assert min(losses) < 0.5 * loss_after  # a training restores its best weights


def test_all_compact_tables_of_a_model_are_replaced_and_others_left_alone():
    model = nn.ModuleDict({"a": trained(), "b": trained(seed=1), "plain": nn.Embedding(3, 2)})
    assert quantise_aware_(model, "int8") == ["a", "b"]
    assert type(model["a"]) is type(model["b"]) is QuantisedEmbedding
    assert type(model["plain"]) is nn.Embedding
    with pytest.raises(ConfigError, match="no CompactEmbedding"):
        quantise_aware_(nn.Sequential(nn.Linear(2, 2)), "int8")
    with pytest.raises(ConfigError, match="int8 and int4"):
        QuantisedEmbedding(trained(), "fp16")


def test_blocks_of_zeros_and_empty_tables_train():
    mask = torch.zeros(10, 4, dtype=torch.bool)
    empty = QuantisedEmbedding(CompactEmbedding.from_mask([10], mask, torch.zeros(10, 4)), "int8")
    assert not empty(torch.arange(10)).any()
    zeros = QuantisedEmbedding(CompactEmbedding.from_mask([10], ~mask, torch.zeros(10, 4)), "int8")
    zeros(torch.arange(10)).sum().backward()
    assert torch.isfinite(zeros.values.grad).all()
    assert torch.isfinite(zeros.scale_shift.grad).all()
