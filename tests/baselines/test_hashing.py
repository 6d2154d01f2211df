"""Shared rows: which rows make a vector, counts and bytes by hand, the same vectors from a stored table."""

import pytest
import torch
from hypothesis import given, strategies as st

from thresher.baselines.hashing import (
    PRIME,
    DoubleHashConfig,
    DoubleHashEmbedding,
    HashConfig,
    HashEmbedding,
    QuotientRemainderConfig,
    QuotientRemainderEmbedding,
    hashed,
)
from thresher.baselines.shared_rows import capped_sizes
from thresher.compact.method_table import load_any_table, to_table
from thresher.embeddings.method_registry import build_embedding
from thresher.embeddings.stored_form import StoredForm, build_stored
from thresher.errors import BudgetError, ConfigError
from thresher.search.budget import Budget
from thresher.search.immediate import largest_within

SIZES = (3, 9)
COUNTS = (0, 9, 8, 0, 30, 20, 7, 6, 5, 4, 3, 2)
ALL = torch.arange(12)


def hash_table(**settings):
    torch.manual_seed(0)
    return HashEmbedding(SIZES, HashConfig(embedding_dim=4, num_buckets=8, **settings))


def double_hash(**settings):
    torch.manual_seed(0)
    config = DoubleHashConfig(embedding_dim=4, num_buckets=8, frequent_share=0.25, **settings)
    return DoubleHashEmbedding(SIZES, config, feature_counts=COUNTS)


def quotient_remainder(combine="multiply"):
    torch.manual_seed(0)
    config = QuotientRemainderConfig(embedding_dim=4, num_buckets=6, combine=combine)
    return QuotientRemainderEmbedding(SIZES, config)


FIELD_ROWS = 3 * 2 * 4  # first id, rows, first row: int32 for two fields


def test_hash_counts_and_shares_rows_inside_large_fields_alone():
    table = hash_table()
    assert table.num_parameters() == 8 * 4  # 3 rows for the small field, 5 for the large one
    assert table.storage_bytes() == 8 * 4 * 4 + FIELD_ROWS + 2 * 8
    assert torch.equal(table(ALL[:3]), table.weight[:3])
    multiply, add = table.multipliers[0].tolist()
    rows = [3 + (multiply * local + add) % PRIME % 5 for local in range(9)]
    assert torch.equal(table(ALL[3:]), table.weight[rows])
    assert not torch.equal(table(ALL), hash_table(seed=1)(ALL))


def test_double_hash_gives_the_frequent_rows_of_their_own():
    table = double_hash()
    assert table.num_parameters() == 2 * 4 + 6 * 4
    runs = 3  # ids 0–3 | 4, 5 | 6–11
    assert table.storage_bytes() == 8 * 4 * 4 + runs * 9 + 2 * 2 * 8
    assert torch.equal(table(torch.tensor([4, 5])), table.own)
    one, other = (hashed(ALL, pair, 6) for pair in table.multipliers)
    expected = table.shared[one] + table.shared[other]
    rare = [0, 1, 2, 3, *range(6, 12)]
    assert torch.equal(table(ALL)[rare], expected[rare])


@pytest.mark.parametrize(
    ("combine", "width"), [("add", 4), ("multiply", 4), ("concatenate", 2)]
)  # fmt: skip
def test_quotient_remainder_is_unique_to_each_feature(combine, width):
    table = quotient_remainder(combine)  # remainders 3 + 3 rows, quotients 1 + 3 rows
    assert table.num_parameters() == (6 + 4) * width
    assert table.storage_bytes() == (6 + 4) * width * 4 + 2 * FIELD_ROWS
    vectors = table(ALL)
    remainder, quotient = table.remainder[3 + 8 % 3], table.quotient[1 + 8 // 3]
    last = {
        "add": remainder + quotient,
        "multiply": remainder * quotient,
        "concatenate": torch.cat([remainder, quotient]),
    }
    torch.testing.assert_close(vectors[11], last[combine])
    assert len(torch.unique(vectors[3:], dim=0)) == 9


@pytest.mark.parametrize("combine", ["add", "multiply", "concatenate"])
def test_gradients_reach_every_row_a_feature_has(combine):
    table = double_hash(combine=combine)
    table(torch.tensor([4, 7])).sum().backward()
    rows = {int(hashed(torch.tensor(7), pair, 6)) for pair in table.multipliers}
    assert set(table.shared.grad.abs().sum(1).nonzero().flatten().tolist()) == rows
    assert table.own.grad[0].tolist() == [1.0] * 4
    assert table.own.grad[1].tolist() == [0.0] * 4


@pytest.mark.parametrize("build", [hash_table, double_hash, quotient_remainder])
def test_a_stored_table_gives_the_same_vectors_and_its_stated_size(build, tmp_path):
    table = build()
    to_table(table).save(tmp_path / "t.safetensors")
    loaded = load_any_table(tmp_path / "t.safetensors")
    assert torch.equal(loaded.lookup(ALL), table(ALL))
    assert loaded.storage_bytes == table.storage_bytes()
    assert loaded.num_parameters == table.num_parameters()


@given(st.lists(st.integers(1, 400), min_size=1, max_size=12), st.integers(1, 3000))
def test_rows_are_within_the_buckets_and_as_even_as_they_can_be(sizes, num_buckets):
    rows = capped_sizes(sizes, num_buckets)
    assert all(1 <= row <= size for row, size in zip(rows, sizes, strict=True))
    if num_buckets >= len(sizes):
        assert sum(rows) <= num_buckets
        cut = [row for row, size in zip(rows, sizes, strict=True) if row < size]
        if cut:
            assert len(set(cut)) == 1
            assert sum(rows) + len(cut) > num_buckets  # one more row for each would be too many


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        (HashConfig(embedding_dim=4), 10),
        (DoubleHashConfig(embedding_dim=4), 10),
        (QuotientRemainderConfig(embedding_dim=4, combine="add"), 10),
    ],
)
def test_budgets_are_met_by_rows(config, rows):
    fitted = largest_within(Budget.parse("40"), config, SIZES, COUNTS)
    assert build_embedding(SIZES, fitted, feature_counts=COUNTS).num_parameters() == rows * 4
    with pytest.raises(BudgetError, match="num_buckets"):
        largest_within(Budget.parse("4"), config, SIZES, COUNTS)


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigError, match="equal pieces"):
        DoubleHashConfig(embedding_dim=5, combine="concatenate")
    with pytest.raises(ConfigError, match="frequent_share"):
        DoubleHashConfig(frequent_share=1.0)
    with pytest.raises(ConfigError, match="num_buckets"):
        HashConfig(num_buckets=0)
    with pytest.raises(ConfigError, match="feature_counts"):
        DoubleHashEmbedding(SIZES, DoubleHashConfig())


@pytest.mark.parametrize("build", [hash_table, double_hash, quotient_remainder])
def test_a_stored_form_with_another_methods_settings_is_refused(build):
    form = build().to_stored()
    lying = StoredForm(form.kind, form.tensors, {**form.metadata, "config": {"method": "mde"}})
    with pytest.raises(ConfigError, match="stored form: method: expected one of"):
        build_stored(SIZES, lying)
