"""MDE: widths by the rule, counts and bytes by hand, the same vectors from a stored table."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from thresher.baselines.mde import MdeConfig, MdeEmbedding
from thresher.compact.method_table import MethodTable, load_any_table, to_table
from thresher.embeddings.feature_groups import (
    FeatureRuns,
    MixedDimensionEmbedding,
    field_popularity_groups,
    popularity_blocks,
)
from thresher.errors import ConfigError, FormatError

SIZES = (3, 5)
COUNTS = (0, 64, 16, 0, 64, 8, 4, 4)


def mde(**settings):
    torch.manual_seed(0)
    return MdeEmbedding(SIZES, MdeConfig(**settings), feature_counts=COUNTS)


def test_sizes_parameters_and_bytes_by_hand():
    """160 counts in 2 blocks: ids 1 and 4 (128 counts), then the six others (32 counts).

    Mean popularity 64 and 32/6: sizes 8 · 1 and 8 · (1/12)^0.5 = 2.31 → 2.
    """
    table = mde(embedding_dim=8, num_blocks=2, temperature=0.5)
    assert table.sizes == (8, 2)
    assert table.num_parameters() == 2 * 8 + 6 * 2 + 2 * 8  # two tables, one projection 2 × 8; width 8 needs none
    runs = 5  # ids 0 | 1 | 2, 3 | 4 | 5, 6, 7
    assert table.storage_bytes() == 44 * 4 + runs * (4 + 1 + 4)
    assert table.size_of_feature().tolist() == [2, 8, 2, 2, 8, 2, 2, 2]


def test_fields_get_widths_by_their_cardinality():
    table = mde(embedding_dim=8, blocks="field", temperature=1.0)
    assert table.sizes == (8, 5)  # 8 · 3/5 = 4.8
    assert table.num_parameters() == 3 * 8 + 5 * 5 + 5 * 8
    assert table.storage_bytes() == table.num_parameters() * 4 + 2 * 9


def test_temperature_zero_is_uniform_and_base_dim_projects_all():
    assert mde(embedding_dim=8, temperature=0.0).num_parameters() == 8 * 8
    table = mde(embedding_dim=8, base_dim=4, temperature=0.0, num_blocks=2)
    assert table.num_parameters() == 8 * 4 + 2 * 4 * 8


def test_vectors_are_rows_times_projection_with_gradients_to_both():
    table = mde(embedding_dim=8, num_blocks=2, temperature=0.5)
    ids = torch.tensor([[1, 7], [0, 4]])
    vectors = table(ids)
    popular, others, projection = table.tables["0"], table.tables["1"], table.projections["group_1"]
    torch.testing.assert_close(vectors[0, 0], popular[0])
    torch.testing.assert_close(vectors[1, 1], popular[1])
    torch.testing.assert_close(vectors[1, 0], others[0] @ projection)
    torch.testing.assert_close(vectors[0, 1], others[5] @ projection)
    vectors.sum().backward()
    assert popular.grad.tolist() == [[1.0] * 8] * 2
    assert projection.grad.abs().sum() > 0
    assert others.grad[1:5].abs().sum() == 0


def test_a_stored_table_gives_the_same_vectors_and_its_stated_size(tmp_path):
    table = mde(embedding_dim=8, num_blocks=2, temperature=0.5)
    stored = to_table(table)
    stored.save(tmp_path / "t.safetensors")
    loaded = load_any_table(tmp_path / "t.safetensors")
    assert isinstance(loaded, MethodTable)
    ids = torch.arange(8).view(2, 4)
    assert torch.equal(loaded.lookup(ids), table(ids))
    assert loaded.storage_bytes == table.storage_bytes()
    assert loaded.num_parameters == table.num_parameters()
    damaged = bytearray((tmp_path / "t.safetensors").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "t.safetensors").write_bytes(damaged)
    with pytest.raises(FormatError, match="damaged"):
        load_any_table(tmp_path / "t.safetensors")


def test_a_group_of_width_zero_gives_zeros_and_equal_widths_may_share_a_projection():
    runs = FeatureRuns.of(np.array([0, 1, 2, 2]), 3)
    table = MixedDimensionEmbedding((4,), 4, runs, (0, 2, 2), share_projections=True)
    assert table.num_parameters() == 1 * 2 + 2 * 2 + 2 * 4
    assert table(torch.tensor([0])).tolist() == [[0.0] * 4]
    assert table(torch.empty(0, 2, dtype=torch.int32)).shape == (0, 2, 4)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60), st.integers(1, 9))
def test_blocks_are_ordered_by_count_and_never_empty(counts, num_blocks):
    blocks = popularity_blocks(counts, num_blocks)
    assert set(blocks) == set(range(blocks.max() + 1))
    assert blocks.max() < num_blocks
    counts = np.array(counts)
    for block in range(blocks.max()):
        assert counts[blocks == block].min() >= counts[blocks == block + 1].max()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_runs_find_each_feature_once(groups):
    groups = np.array(groups)
    runs = FeatureRuns.of(groups, 4)
    places = set()
    for feature, group in enumerate(groups):
        run = np.searchsorted(runs.starts, feature, side="right") - 1
        assert runs.groups[run] == group
        places.add((group, int(runs.rows[run] + feature - runs.starts[run])))
    assert places == {(group, row) for group in range(4) for row in range(runs.group_sizes[group])}


def test_field_blocks_are_numbered_field_by_field():
    assert field_popularity_groups(SIZES, COUNTS, 2).tolist() == [1, 0, 1, 3, 2, 3, 3, 3]


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigError, match="feature_counts"):
        MdeEmbedding(SIZES, MdeConfig())
    for settings, name in (
        ({"base_dim": 99}, "base_dim"),
        ({"temperature": 2.0}, "temperature"),
        ({"num_blocks": 0}, "num_blocks"),
    ):
        with pytest.raises(ConfigError, match=name):
            MdeConfig(**settings)
