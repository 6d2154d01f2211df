"""MGQE, multi-granular quantised embeddings: a vector is a few codes into centroids that all features share.

    v_i = [ c¹(k_i1) ; … ; cˢ(k_iS) ],   k_is = argmin over k < K_i of ‖q_is − cˢ(k)‖²

`K_i` is `num_centroids` for frequent features and `num_rare_centroids` for the others. The queries `q` `[N, D]` exist
only while training. The argmin is passed straight through: a query and its centroid get the vector's gradient, and each
is drawn towards the other, as in vector quantisation. Kang et al., "Learning multi-granular quantized embeddings for
large-vocab categorical features in recommender systems" (2020), on Chen et al.'s differentiable product quantisation.

Not pruning: every feature keeps a vector of full width. What is saved is the difference of a code to a float.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher.baselines.mgqe_codes import BITS_PER_PARAMETER, code_bits, pack_codes, take_centroids
from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding, Role, new_table
from thresher.embeddings.feature_groups import FeatureRuns
from thresher.embeddings.method_registry import register_embedding
from thresher.embeddings.stored_form import StoredForm
from thresher.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class MgqeConfig(EmbeddingConfig):
    """The PEP paper's grid: embedding_dim 8, 16, 32; num_subspaces 4, 8, 16; num_centroids 64, 128, 256, 512.

    Attributes:
        num_subspaces: pieces a vector is cut into, each with centroids of its own.
        num_centroids: how many a frequent feature may choose from.
        num_rare_centroids: the first so many of them are open to the others.
        frequent_share: share of the features that count as frequent.
        pull: how strongly a query and its centroid are drawn together, against the loss.
    """

    num_subspaces: int = 4
    num_centroids: int = 256
    num_rare_centroids: int = 64
    frequent_share: float = 0.1
    pull: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_subspaces < 1 or self.embedding_dim % self.num_subspaces:
            raise ConfigError(f"num_subspaces {self.num_subspaces} must divide embedding_dim {self.embedding_dim}")
        if not 1 <= self.num_rare_centroids <= self.num_centroids <= 65_536:
            raise ConfigError(
                f"num_rare_centroids {self.num_rare_centroids} must be at most num_centroids {self.num_centroids}, "
                "and that at most 65,536"
            )
        if not 0 <= self.frequent_share <= 1:
            raise ConfigError(f"frequent_share is {self.frequent_share}; it must lie between 0 and 1")

    def budget_values(self, field_sizes: Sequence[int]) -> Sequence[int]:
        return range(self.num_subspaces, self.embedding_dim + 1, self.num_subspaces)


@register_embedding("mgqe", MgqeConfig)
class MgqeEmbedding(FieldEmbedding):
    """Ids `[...]` → centroids nearest to their queries `[..., D]`; what is stored is `MgqeCodes`."""

    def __init__(
        self, field_sizes: Sequence[int], config: MgqeConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        if feature_counts is None:
            raise ConfigError("MGQE gives frequent features more centroids and needs feature_counts")
        frequent_first = np.argsort(-np.asarray(feature_counts), kind="stable")
        groups = np.ones(self.num_features, np.int64)  # 0 frequent, 1 rare
        groups[frequent_first[: math.ceil(config.frequent_share * self.num_features)]] = 0
        self.runs = FeatureRuns.of(groups, 2)
        limits = np.where(groups == 0, config.num_centroids, config.num_rare_centroids)
        self.register_buffer("limits", torch.from_numpy(limits), persistent=False)  # centroids open to each feature
        self.limits: Tensor
        self.weight = new_table(self.num_features, self.embedding_dim)
        bound = math.sqrt(6 / (self.num_features + self.embedding_dim))  # as large as the queries
        shape = (config.num_subspaces, config.num_centroids, self.embedding_dim // config.num_subspaces)
        self.centroids = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))  # [S, K, D/S]

    def forward(self, ids: Tensor) -> Tensor:
        distinct, places = torch.unique(ids, return_inverse=True)  # [U], [...]
        queries = torch.unflatten(
            functional.embedding(distinct, self.weight), 1, self.centroids.shape[::2]
        )  # [U, S, D/S]
        with torch.no_grad():
            codes = self._codes(queries, self.limits[distinct.long()])  # [U, S]
        chosen = take_centroids(self.centroids, codes)  # [U, S, D/S]
        vectors = cast(Tensor, StraightThrough.apply(queries, chosen, self.config.pull))  # type: ignore[no-untyped-call]
        return functional.embedding(places, vectors.reshape(len(distinct), self.embedding_dim))  # [..., D]

    def _codes(self, queries: Tensor, limits: Tensor) -> Tensor:
        """The nearest open centroid of each piece: queries `[U, S, D/S]`, limits `[U]` → `[U, S]`."""
        dots = torch.einsum("usw,skw->usk", queries, self.centroids)
        distances = self.centroids.square().sum(-1) - 2 * dots  # but for ‖q‖², which is the same for all
        closed = torch.arange(self.config.num_centroids, device=limits.device) >= limits[:, None]  # [U, K]
        return distances.masked_fill(closed[:, None], torch.inf).argmin(-1)

    @torch.no_grad()
    def codes(self) -> Tensor:
        """The code of each piece of each feature, `[N, S]`."""
        queries = torch.unflatten(self.weight, 1, self.centroids.shape[::2])
        parts = zip(torch.split(queries, 8192), torch.split(self.limits, 8192), strict=True)
        return torch.cat([self._codes(*part) for part in parts])

    def _code_bits(self) -> tuple[int, int]:
        """Bits of a code, for frequent and for rare features."""
        return code_bits(self.config.num_centroids), code_bits(self.config.num_rare_centroids)

    def _code_bytes(self) -> int:
        counts = zip(self.runs.group_sizes, self._code_bits(), strict=True)
        return sum(-(-count * self.config.num_subspaces * bits // 8) for count, bits in counts)

    def num_parameters(self) -> int:
        """Its paper counts bits, of centroids and codes alike; here in units of a 32-bit parameter."""
        return self.centroids.numel() + -(-self._code_bytes() * 8 // BITS_PER_PARAMETER)

    def storage_bytes(self) -> int:
        """Centroids, packed codes, and the runs that tell frequent features from rare ones; no queries."""
        return self.centroids.nbytes + self._code_bytes() + self.runs.storage_bytes

    def parameter_groups(self) -> Mapping[Role, Sequence[nn.Parameter]]:
        return {"embeddings": [self.weight, self.centroids]}

    def to_stored(self) -> StoredForm:
        codes, runs = self.codes().cpu().numpy(), self.runs
        frequent = runs.groups[np.searchsorted(runs.starts, np.arange(self.num_features), side="right") - 1] == 0
        bits = self._code_bits()
        tensors = {
            "centroids": self.centroids.detach(),
            "frequent_codes": torch.from_numpy(pack_codes(codes[frequent], bits[0])),
            "rare_codes": torch.from_numpy(pack_codes(codes[~frequent], bits[1])),
            "run_starts": torch.from_numpy(runs.starts),
            "run_groups": torch.from_numpy(runs.groups),
            "run_rows": torch.from_numpy(runs.rows),
        }
        return StoredForm("mgqe", tensors, {"bits": bits, "num_parameters": self.num_parameters()})


class StraightThrough(torch.autograd.Function):
    """Forward: the chosen centroids. Backward: their gradient to query and centroid, and the pull between the two.

    The pull is the gradient of `pull · mean over the batch's features of ‖q − c‖²`.
    """

    @staticmethod
    def forward(context: Any, queries: Tensor, chosen: Tensor, pull: float) -> Tensor:
        context.save_for_backward(queries, chosen)
        context.pull = pull
        return chosen.clone()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        queries, chosen = context.saved_tensors
        pull = 2 * context.pull / max(1, len(queries)) * (queries - chosen)
        return gradients[0] + pull, gradients[0] - pull, None
