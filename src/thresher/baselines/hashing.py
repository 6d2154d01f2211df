"""Methods whose features share rows: hashing, frequency-based double hashing, quotient–remainder.

    hash                v_i = V[h(i)]
    double-hash         v_i = V[h₁(i)] ∘ V[h₂(i)]  for rare features; frequent ones have a row of their own
    quotient-remainder  v_i = R[i mod m] ∘ Q[i div m]: no two features of a field share both rows

`∘` adds, multiplies or concatenates. `h(x) = ((a·x + b) mod p) mod m` with `p = 2³¹ − 1` and `a`, `b` drawn from the
seed. Weinberger et al., "Feature hashing for large scale multitask learning" (2009); Zhang et al., "Model size
reduction using frequency based double hashing for recommender systems" (2020); Shi, Mudigere, Naumov, Yang,
"Compositional embeddings using complementary partitions for memory-efficient recommendation systems" (2020).

Sizes are not learned. Values never seen in training are their field's unknown feature, which shares rows too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from thresher.baselines.shared_rows import (
    Combine,
    FieldRows,
    SharedRows,
    SharedRowsConfig,
    capped_sizes,
    check_pieces,
    combine,
    new_factor,
)
from thresher.embeddings.base import EmbeddingConfig, new_table
from thresher.embeddings.feature_groups import FeatureRuns
from thresher.embeddings.method_registry import register_embedding
from thresher.embeddings.stored_form import StoredForm, check_shape, register_stored_form
from thresher.errors import ConfigError

PRIME = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class HashConfig(SharedRowsConfig):
    """Settings of `hash`."""

    seed: int = 0
    """Seed of the hash function."""

    @classmethod
    def grid(cls) -> Sequence[Self]:
        return [cls(embedding_dim=width) for width in (16, 8, 32)]


@dataclass(frozen=True, kw_only=True)
class DoubleHashConfig(HashConfig):
    """Which features have a row of their own, and how the others share rows."""

    frequent_share: float = 0.5
    """Share of the `num_buckets` rows that belong to the most frequent features, one for each."""
    num_hashes: int = 2
    """Rows combined to the vector of a rare feature."""
    combine: Combine = "add"
    """How these rows are combined."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_pieces(self.embedding_dim, self.num_hashes, self.combine)
        if not 0 <= self.frequent_share < 1:
            raise ConfigError(f"frequent_share is {self.frequent_share}; it must be 0 or more, and below 1")


@register_stored_form("HashEmbedding")
@register_embedding("hash", HashConfig)
class HashEmbedding(SharedRows):
    """`v_i = V[h(i)]`; a field whose rows all fit is not hashed."""

    config_type = HashConfig
    multipliers: Tensor  # int64 [1, 2]

    def __init__(
        self, field_sizes: Sequence[int], config: HashConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        num_rows = capped_sizes(field_sizes, config.num_buckets)
        self.rows = FieldRows(field_sizes, num_rows)
        self.register_buffer("multipliers", _multipliers(1, config.seed))
        self.weight = new_table(sum(num_rows), config.embedding_dim)

    def forward(self, ids: Tensor) -> Tensor:
        field, local = self.rows.split(ids)
        row = hashed(local, self.multipliers[0], self.rows.num_rows[field])
        row = torch.where(self.rows.whole[field], local, row)
        return functional.embedding(row + self.rows.first_row[field], self.weight)  # [..., D]


@register_stored_form("DoubleHashEmbedding")
@register_embedding("double-hash", DoubleHashConfig)
class DoubleHashEmbedding(SharedRows):
    """A row of its own for each frequent feature (group 0 of `runs`), `num_hashes` shared rows for the others."""

    config_type = DoubleHashConfig
    config: DoubleHashConfig
    multipliers: Tensor  # int64 [num_hashes, 2]
    run_starts: Tensor
    run_groups: Tensor
    run_rows: Tensor

    def __init__(
        self,
        field_sizes: Sequence[int],
        config: DoubleHashConfig,
        *,
        feature_counts: Sequence[int] | None = None,
        runs: FeatureRuns | None = None,
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        num_buckets = min(config.num_buckets, self.num_features)
        num_own = min(round(config.frequent_share * num_buckets), num_buckets - 1)
        if runs is None:
            if feature_counts is None:
                raise ConfigError("double-hash treats frequent features separately and needs feature_counts")
            groups = np.ones(self.num_features, np.int64)
            groups[np.argsort(-np.asarray(feature_counts), kind="stable")[:num_own]] = 0
            runs = FeatureRuns.of(groups, 2)
        if runs.group_sizes[0] != num_own:
            raise ValueError(f"{runs.group_sizes[0]} frequent features, but {num_own} rows for them")
        self.group_sizes = runs.group_sizes
        for part in ("starts", "groups", "rows"):
            self.register_buffer(f"run_{part}", torch.from_numpy(getattr(runs, part)))
        self.register_buffer("multipliers", _multipliers(config.num_hashes, config.seed))
        width = config.embedding_dim // config.num_hashes if config.combine == "concatenate" else config.embedding_dim
        self.own = new_factor(num_own, config.embedding_dim)
        self.shared = new_factor(num_buckets - num_own, width, config.num_hashes if config.combine == "multiply" else 1)

    def forward(self, ids: Tensor) -> Tensor:
        ids = ids.long().contiguous()
        run = torch.searchsorted(self.run_starts.long(), ids, right=True) - 1
        frequent = (self.run_groups[run] == 0)[..., None]  # [..., 1]
        row = self.run_rows[run] + ids - self.run_starts[run]
        pieces = [functional.embedding(hashed(ids, pair, len(self.shared)), self.shared) for pair in self.multipliers]
        vectors = combine(pieces, self.config.combine)  # [..., D]
        if not len(self.own):
            return vectors
        own = functional.embedding(torch.where(frequent[..., 0], row, 0), self.own)
        return torch.where(frequent, own, vectors)

    def _metadata(self) -> dict[str, Any]:
        return {"group_sizes": self.group_sizes}

    @classmethod
    def _from_form(cls, field_sizes: Sequence[int], config: EmbeddingConfig, form: StoredForm) -> Self:
        assert isinstance(config, DoubleHashConfig)
        check_shape(form.tensors, "multipliers", (config.num_hashes, 2))
        return cls(field_sizes, config, runs=FeatureRuns.from_stored(form, 2, sum(field_sizes)))


@dataclass(frozen=True, kw_only=True)
class QuotientRemainderConfig(SharedRowsConfig):
    """`num_buckets` is the number of rows of the remainder table; the size of the quotient table follows from it."""

    combine: Combine = "multiply"
    """How the rows of the quotient table and of the remainder table are combined."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_pieces(self.embedding_dim, 2, self.combine)

    def budget_values(self, field_sizes: Sequence[int]) -> Sequence[int]:
        # below the root of the largest field the quotient table grows faster than the other shrinks
        root = np.ceil(np.sqrt(max(field_sizes)))
        return range(int(np.minimum(field_sizes, root).sum()), sum(field_sizes) + 1)

    @classmethod
    def grid(cls) -> Sequence[Self]:
        return [cls(embedding_dim=16), cls(embedding_dim=8), cls(embedding_dim=16, combine="add")]


@register_stored_form("QuotientRemainderEmbedding")
@register_embedding("quotient-remainder", QuotientRemainderConfig)
class QuotientRemainderEmbedding(SharedRows):
    """`v_i = R[i mod m_f] ∘ Q[i div m_f]`, with `m_f` rows for field `f`."""

    config_type = QuotientRemainderConfig
    config: QuotientRemainderConfig

    def __init__(
        self,
        field_sizes: Sequence[int],
        config: QuotientRemainderConfig,
        *,
        feature_counts: Sequence[int] | None = None,
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        remainders = capped_sizes(field_sizes, config.num_buckets)
        quotients = [-(-size // rows) for size, rows in zip(field_sizes, remainders, strict=True)]
        self.remainders, self.quotients = FieldRows(field_sizes, remainders), FieldRows(field_sizes, quotients)
        width = config.embedding_dim // 2 if config.combine == "concatenate" else config.embedding_dim
        num_factors = 2 if config.combine == "multiply" else 1
        self.remainder = new_factor(sum(remainders), width, num_factors)
        self.quotient = new_factor(sum(quotients), width, num_factors)

    def forward(self, ids: Tensor) -> Tensor:
        field, local = self.remainders.split(ids)
        num_rows = self.remainders.num_rows[field]
        remainder = functional.embedding(local % num_rows + self.remainders.first_row[field], self.remainder)
        quotient = functional.embedding(local // num_rows + self.quotients.first_row[field], self.quotient)
        return combine([remainder, quotient], self.config.combine)  # [..., D]


def hashed(values: Tensor, multiplier: Tensor, num_buckets: Tensor | int) -> Tensor:
    """`((a·x + b) mod p) mod m`, in 64 bits."""
    return (multiplier[0] * values + multiplier[1]) % PRIME % num_buckets


def _multipliers(num_hashes: int, seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng([seed, 0x7E]).integers(1, PRIME, size=(num_hashes, 2)))
