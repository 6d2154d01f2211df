"""Tables of foreign models under PEP: called as the module they stand for, thresholded as `PepEmbedding` does it.

Each is still an `nn.Embedding`, `nn.EmbeddingBag` or `nn.Linear`, holds the same `weight` Parameter under the same
name, and answers bit for bit what the plain module answers as long as its threshold is 0.
Not here: which modules are chosen, and how one takes another's place (`attach`).
"""

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.embeddings.thresholds import soft_threshold
from thresher.kernels.distinct import DistinctIds, find_distinct


class ForeignTable(PepEmbedding):
    """What the three below share: a table `[N, D]` that is somebody else's Parameter; it counts as one field.

    Args:
        plain: the module it stands for, and which will become it: settings such as `padding_idx` are read there.
        config: how its thresholds are shaped and pressed; the width is the table's own.
        thresholds: the Parameter to learn, perhaps shared with other tables.
        padding_id: the row that is no feature to any holder of the table.
    """

    sparse: bool = False
    padding_idx: int | None = None

    def __init__(self, plain: nn.Module, config: PepConfig, thresholds: nn.Parameter, padding_id: int | None) -> None:
        weight = plain._parameters["weight"]
        assert weight is not None
        super().__init__(
            [len(weight)],
            replace(config, embedding_dim=weight.shape[1]),
            weight=weight,
            thresholds=thresholds,
            padding_id=padding_id,
        )
        self.to(weight.device)

    def dense_gradients_reason(self) -> str | None:
        return "an attached table keeps the kind of gradient it had"

    def pruned_rows(self, distinct: Tensor) -> Tensor:
        """The rows `[U, D]` of distinct ids `[U]` after Eq. 8; gradients are row-sparse if the table's always were."""
        if self.training:
            self.seen[distinct] = True
        values = functional.embedding(distinct, self.weight, self.padding_idx, sparse=self.sparse)  # [U, D]
        rows = self.granularity.rows_of(distinct, self.field_of_feature)  # [U]
        raw = functional.embedding(rows, self.thresholds, sparse=self.has_sparse_thresholds)  # [U, 1 | D]
        return cut(values, self.threshold_function(self.clock + raw))

    @property
    def has_sparse_thresholds(self) -> bool:
        """Whether gradients of the thresholds are row-sparse, as the table's own: where each row has its own."""
        return self.sparse and self.granularity.rows == "feature"

    def pruned_weight(self) -> Tensor:
        return cut(self.weight, self.threshold())


def cut(values: Tensor, threshold: Tensor) -> Tensor:
    """Eq. 8, but no change at all where the threshold is 0: an entry that is 0 there must still get its gradient."""
    return torch.where(threshold > 0, soft_threshold(values, threshold), values)


class BagSettings(Protocol):
    """How bags are pooled; an `nn.EmbeddingBag` has these."""

    mode: str
    padding_idx: int | None
    include_last_offset: bool
    scale_grad_by_freq: bool


def pool_bags(
    bag: BagSettings,
    vectors: Tensor,
    found: DistinctIds,
    offsets: Tensor | None,
    per_sample_weights: Tensor | None,
) -> Tensor:
    """Pool the vectors `[U, D]` of distinct ids into bags `[B, D]`, by the settings of `bag`.

    With padding the distinct ids must be ascending.
    """
    places = found.places.long() if offsets is None else found.places.to(offsets.dtype)
    padding = None
    if bag.padding_idx is not None:  # its place among the distinct ids; where it is absent, an unused row plays it
        padding = int((found.ids < bag.padding_idx).sum())
        if not bool((found.ids[padding : padding + 1] == bag.padding_idx).any()):
            vectors, padding = functional.pad(vectors, (0, 0, 0, 1)), len(vectors)
    return functional.embedding_bag(
        places,
        vectors,
        offsets,
        scale_grad_by_freq=bag.scale_grad_by_freq,
        mode=bag.mode,
        per_sample_weights=per_sample_weights,
        include_last_offset=bag.include_last_offset,
        padding_idx=padding,
    )


# The three below end the chain of constructors: a table's settings come from the module it stands for.


class _Embedding(nn.Embedding):
    def __init__(self) -> None:
        nn.Module.__init__(self)


class _EmbeddingBag(nn.EmbeddingBag):
    def __init__(self) -> None:
        nn.Module.__init__(self)


class _Linear(nn.Linear):
    def __init__(self) -> None:
        nn.Module.__init__(self)


def rows_to_look_up(ids: Tensor, num_features: int) -> DistinctIds:
    """The distinct ids of a batch; all of them while a graph is traced, when nobody knows how many will be distinct."""
    if torch.compiler.is_compiling():
        return DistinctIds(
            ids.flatten().long(), torch.arange(ids.numel(), device=ids.device).view_as(ids), num_features
        )
    return find_distinct(ids, num_features)


class AttachedEmbedding(ForeignTable, _Embedding):
    """Ids `[...]` → vectors `[..., D]`."""

    weight: nn.Parameter

    def forward(self, input: Tensor) -> Tensor:
        found = rows_to_look_up(input, self.num_embeddings)
        vectors = self.pruned_rows(found.ids)  # [U, D]
        return functional.embedding(found.places, vectors, scale_grad_by_freq=self.scale_grad_by_freq)  # [..., D]


class AttachedBag(ForeignTable, _EmbeddingBag):
    """Bags of ids → pooled vectors `[B, D]`."""

    weight: nn.Parameter

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        find = rows_to_look_up if self.padding_idx is None else find_distinct
        found = find(input, self.num_embeddings)
        return pool_bags(self, self.pruned_rows(found.ids), found, offsets, per_sample_weights)  # [B, D]


class AttachedLinear(ForeignTable, _Linear):
    """A linear layer tied to an attached table: it multiplies with the pruned rows, all of them."""

    weight: nn.Parameter

    def __init__(self, plain: nn.Linear, config: PepConfig, thresholds: nn.Parameter, padding_id: int | None) -> None:
        super().__init__(plain, config, thresholds, padding_id)
        self.register_parameter("bias", plain.bias)  # also where there is none, as nn.Linear does

    def forward(self, input: Tensor) -> Tensor:
        if self.training:
            self.seen.fill_(True)
        return functional.linear(input, self.pruned_weight(), self.bias)


def foreign_table(
    plain: nn.Module, config: PepConfig, thresholds: nn.Parameter, padding_id: int | None
) -> ForeignTable:
    """The attached form of a plain module."""
    if isinstance(plain, nn.Embedding):
        return AttachedEmbedding(plain, config, thresholds, padding_id)
    if isinstance(plain, nn.EmbeddingBag):
        return AttachedBag(plain, config, thresholds, padding_id)
    assert isinstance(plain, nn.Linear)
    return AttachedLinear(plain, config, thresholds, padding_id)
