"""MGQE: nearest open centroids, straight-through gradients, counts and bytes by hand, codes that answer alike."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from thresher.baselines.mgqe import MgqeCodes, MgqeConfig, MgqeEmbedding, code_bits, pack_codes, unpack_codes
from thresher.compact.method_table import load_any_table, to_table
from thresher.errors import ConfigError

SIZES = (4, 6)
COUNTS = (0, 50, 3, 2, 1, 40, 5, 4, 3, 2)
CONFIG = MgqeConfig(
    embedding_dim=6, num_subspaces=3, num_centroids=9, num_rare_centroids=3, frequent_share=0.2, pull=0.0
)


def mgqe(config=CONFIG):
    torch.manual_seed(0)
    return MgqeEmbedding(SIZES, config, feature_counts=COUNTS)


def test_parameters_and_bytes_by_hand():
    """Ids 1 and 5 are frequent: 3 codes of 4 bits each, 24 bits. The eight others: 3 codes of 2 bits each, 48 bits."""
    table = mgqe()
    centroids = 3 * 9 * 2
    assert table.num_parameters() == centroids + 3  # 72 bits are 2.25 parameters of 32 bits
    runs = 5  # 0 | 1 | 2, 3, 4 | 5 | 6 …
    assert table.storage_bytes() == centroids * 4 + 3 + 6 + runs * 9


def test_each_piece_is_its_nearest_open_centroid():
    table = mgqe()
    vectors = table(torch.arange(10)).view(10, 3, 2)
    for feature in range(10):
        limit = 9 if feature in (1, 5) else 3
        for piece in range(3):
            query = table.weight[feature].view(3, 2)[piece]
            nearest = (table.centroids[piece, :limit] - query).square().sum(1).argmin()
            assert torch.equal(vectors[feature, piece], table.centroids[piece, nearest])
            assert table.codes()[feature, piece] == nearest


def test_gradients_pass_straight_through_to_query_and_centroid():
    table = mgqe()
    table(torch.tensor([[5, 5]])).sum().backward()
    assert table.weight.grad[5].tolist() == [2.0] * 6
    assert table.weight.grad.abs().sum() == 12
    for piece, code in enumerate(table.codes()[5]):
        assert table.centroids.grad[piece, code].tolist() == [2.0, 2.0]
    assert table.centroids.grad.abs().sum() == 12


def test_the_pull_is_the_gradient_of_the_mean_squared_distance():
    table = mgqe(MgqeConfig(**{**vars(CONFIG), "pull": 0.5}))
    (table(torch.arange(10)) * 0).sum().backward()
    with torch.no_grad():
        chosen = table(torch.arange(10))
    expected = 2 * 0.5 / 10 * (table.weight - chosen)
    torch.testing.assert_close(table.weight.grad, expected)
    torch.testing.assert_close(table.centroids.grad.sum((0, 1)), -expected.view(10, 3, 2).sum((0, 1)))


def test_only_codes_and_centroids_are_stored_and_they_answer_alike(tmp_path):
    table = mgqe()
    to_table(table).save(tmp_path / "t.safetensors")
    loaded = load_any_table(tmp_path / "t.safetensors")
    ids = torch.arange(10).view(5, 2).int()
    assert torch.equal(loaded.lookup(ids), table(ids))
    assert loaded.storage_bytes == table.storage_bytes()
    assert loaded.num_parameters == table.num_parameters()
    assert isinstance(loaded._embedding, MgqeCodes)
    assert "weight" not in loaded.form.tensors


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_all_frequent_or_none_is_stored_too(share):
    table = mgqe(MgqeConfig(**{**vars(CONFIG), "frequent_share": share}))
    ids = torch.arange(10)
    assert torch.equal(to_table(table).lookup(ids), table(ids))


@given(st.integers(1, 16), st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=50))
def test_packed_codes_come_back_from_any_place(bits, codes):
    codes = np.array(codes) % (1 << bits)
    stream = torch.from_numpy(pack_codes(codes, bits))
    assert len(stream) == -(-len(codes) * bits // 8)
    assert unpack_codes(stream, torch.arange(len(codes)), bits).tolist() == codes.tolist()


def test_bits_of_a_code():
    assert [code_bits(k) for k in (1, 2, 3, 64, 256, 512)] == [0, 1, 2, 6, 8, 9]


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigError, match="must divide"):
        MgqeConfig(embedding_dim=10, num_subspaces=4)
    with pytest.raises(ConfigError, match="num_rare_centroids"):
        MgqeConfig(num_centroids=16, num_rare_centroids=64)
    with pytest.raises(ConfigError, match="feature_counts"):
        MgqeEmbedding(SIZES, CONFIG)
