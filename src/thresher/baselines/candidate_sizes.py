"""CandidateSizes: every candidate width of a group of features at once, weighted by how likely it is to be chosen.

    v_i = Σ_c p_gc · V[i, :d_c] · P_c,   p_g = softmax(size_logits_g),   P_c: d_c × D   (none where d_c = D)

What DartsEmb and AutoDim search with; they differ in their groups and in how `p` is drawn. Candidates share the columns
of one table, so a narrower one is the beginning of a wider. After the search each group has one width: `fixed`.

Not here: learning `size_logits` on validation batches (`thresher.baselines.bilevel`). Unlike the authors of AutoEmb and
AutoDim we do not normalise the candidates' vectors: their lengths tell which of them carries the signal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding, Role, new_table
from thresher.embeddings.feature_groups import FeatureRuns, Integers
from thresher.embeddings.mixed_dimension import MixedDimensionEmbedding
from thresher.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class CandidateSizesConfig(EmbeddingConfig):
    """The widths to choose among.

    Attributes:
        candidate_sizes: widths to choose among, ascending. The PEP paper's: {1, 2, 8}, {2, 4, 16} and {4, 8, 32}.
        embedding_dim: what all are projected to; no projection is needed where it is the largest candidate.
    """

    embedding_dim: int = 8
    candidate_sizes: tuple[int, ...] = (1, 2, 8)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_candidate_sizes(self.candidate_sizes, self.embedding_dim)


class CandidateSizesEmbedding(FieldEmbedding):
    """Ids `[...]` → the weighted sum of all candidates `[..., D]`.

    Args:
        group_of_feature: `[N]`, 0 … G − 1.
    """

    search_algorithm = "bilevel"
    derives: ClassVar[str] = "sizes"
    group_of_feature: Tensor

    def __init__(self, field_sizes: Sequence[int], config: CandidateSizesConfig, group_of_feature: Integers) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        num_groups = int(group_of_feature.max()) + 1
        self.runs = FeatureRuns.of(group_of_feature, num_groups)
        groups = torch.from_numpy(group_of_feature.astype("int64"))
        self.register_buffer("group_of_feature", groups, persistent=False)
        self.weight = new_table(self.num_features, config.candidate_sizes[-1])
        self.projections = nn.ParameterDict(
            {f"size_{size}": new_table(size, self.embedding_dim) for size in config.candidate_sizes
             if size < self.embedding_dim}
        )  # fmt: skip
        self.size_logits = nn.Parameter(torch.zeros(num_groups, len(config.candidate_sizes)))  # [G, C]

    def forward(self, ids: Tensor) -> Tensor:
        distinct, places = torch.unique(ids, return_inverse=True)  # [U], [...]
        shares = functional.embedding(self.group_of_feature[distinct.long()], self.shares())  # [U, C]
        rows = functional.embedding(distinct, self.weight)  # [U, largest size]
        vectors = torch.stack(
            [self._project(rows[:, :size], size) for size in self.config.candidate_sizes], dim=1
        )  # [U, C, D]
        return functional.embedding(places, (shares[..., None] * vectors).sum(1))  # [..., D]

    def shares(self) -> Tensor:
        """How likely each candidate is, `[G, C]`."""
        return torch.softmax(self.size_logits, dim=1)

    def _project(self, rows: Tensor, size: int) -> Tensor:
        name = f"size_{size}"
        return rows @ self.projections[name] if name in self.projections else rows

    def chosen_sizes(self) -> tuple[int, ...]:
        """The likeliest candidate of each group."""
        return tuple(self.config.candidate_sizes[choice] for choice in self.size_logits.argmax(1).tolist())

    @torch.no_grad()
    def fixed(self, sizes: Sequence[int]) -> MixedDimensionEmbedding:
        """Each group with the width given to it, holding this table's present values."""
        fixed = MixedDimensionEmbedding(
            self.field_sizes, self.embedding_dim, self.runs, sizes, share_projections=True
        )  # fmt: skip
        for group, table in fixed.tables.items():
            rows = self.weight[self.group_of_feature == int(group)]  # in the order of ids, as the runs number them
            table.copy_(rows[:, : table.shape[1]])
        for name, projection in fixed.projections.items():
            projection.copy_(self.projections[name])
        return fixed

    def num_parameters(self) -> int:
        """Of the widths that are likeliest now, as they would be retrained."""
        return self._as_chosen().num_parameters()

    def storage_bytes(self) -> int:
        return self._as_chosen().storage_bytes()

    def _as_chosen(self) -> MixedDimensionEmbedding:
        """An embedding of the likeliest widths, to ask for its size."""
        sizes = self.chosen_sizes()
        with torch.device("meta"):
            return MixedDimensionEmbedding(
                self.field_sizes, self.embedding_dim, self.runs, sizes, share_projections=True
            )

    def parameter_groups(self) -> Mapping[Role, Sequence[nn.Parameter]]:
        return {"embeddings": [self.weight, *self.projections.values()], "choices": [self.size_logits]}


def check_candidate_sizes(sizes: Sequence[int], embedding_dim: int) -> None:
    """Raise unless these are widths one may choose among in a table of this width."""
    if not sizes or list(sizes) != sorted(set(sizes)) or sizes[0] < 1 or sizes[-1] > embedding_dim:
        raise ConfigError(
            f"candidate_sizes are {list(sizes)}; they must be ascending, from 1 to embedding_dim ({embedding_dim})"
        )
