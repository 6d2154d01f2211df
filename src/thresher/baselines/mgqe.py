"""MGQE, multi-granular quantized embeddings: a vector is a few codes into centroids shared by all features.

    v_i = [ c¹(k_i1) ; … ; cˢ(k_iS) ],   k_is = argmin over k < K_i of ‖q_is − cˢ(k)‖²

`K_i` is `num_centroids` for frequent features and `num_rare_centroids` for the others. The queries `q` `[N, D]` exist
only in training; `MgqeCodes` is the stored form. The argmin has a straight-through gradient: a query and its centroid
get the vector's gradient, and each is pulled towards the other, as in vector quantization. Kang et al., "Learning
multi-granular quantized embeddings for large-vocab categorical features in recommender systems" (2020), based on Chen
et al.'s differentiable product quantization. Nothing is pruned: every feature keeps a vector of full width.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher._internal.processes import current_processes
from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding, new_table
from thresher.embeddings.feature_groups import FeatureRuns
from thresher.embeddings.method_registry import register_embedding
from thresher.embeddings.stored_form import (
    StoredForm,
    check_shape,
    read_integer,
    read_integers,
    register_stored_form,
)
from thresher.errors import ConfigError

BITS_PER_PARAMETER = 32
MGQE_TENSORS = {"centroids", "frequent_codes", "rare_codes", "run_starts", "run_groups", "run_rows"}


@dataclass(frozen=True, kw_only=True)
class MgqeConfig(EmbeddingConfig):
    """The PEP paper's grid: embedding_dim 8, 16, 32; num_subspaces 4, 8, 16; num_centroids 64, 128, 256, 512."""

    num_subspaces: int = 4
    """Pieces of a vector, each with its own centroids."""
    num_centroids: int = 256
    """Centroids available to a frequent feature."""
    num_rare_centroids: int = 64
    """Centroids available to the other features, the first of `num_centroids`."""
    frequent_share: float = 0.1
    """Share of the features that are frequent."""
    pull: float = 0.25
    """Weight of the distance between a query and its centroid, relative to the loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_subspaces < 1 or self.embedding_dim % self.num_subspaces:
            raise ConfigError(f"num_subspaces {self.num_subspaces} must divide embedding_dim {self.embedding_dim}")
        if not 1 <= self.num_rare_centroids <= self.num_centroids <= 65_536:
            counts = f"{self.num_rare_centroids}, {self.num_centroids}"
            raise ConfigError(f"expected 1 ≤ num_rare_centroids ≤ num_centroids ≤ 65,536, got {counts}")
        if not 0 <= self.frequent_share <= 1:
            raise ConfigError(f"frequent_share is {self.frequent_share}; it must lie between 0 and 1")

    @classmethod
    def grid(cls) -> Sequence[Self]:
        # the first three cover each number of subspaces; then few subspaces first, because codes are most of the bytes
        front = [(4, 256, 32), (8, 64, 16), (16, 512, 32)]
        settings = dict.fromkeys([*front, *product((4, 8, 16), (256, 64, 128, 512), (32, 16))])
        return [
            cls(num_subspaces=s, num_centroids=k, num_rare_centroids=min(k, 64), embedding_dim=width)
            for s, k, width in settings
        ]

    def budget_values(self, field_sizes: Sequence[int]) -> Sequence[int]:
        return range(self.num_subspaces, self.embedding_dim + 1, self.num_subspaces)


@register_embedding("mgqe", MgqeConfig)
class MgqeEmbedding(FieldEmbedding):
    """Ids `[...]` → the centroids nearest to their queries `[..., D]`."""

    def __init__(
        self, field_sizes: Sequence[int], config: MgqeConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        if feature_counts is None:
            raise ConfigError("MGQE gives frequent features more centroids and needs feature_counts")
        num_frequent, groups = (
            math.ceil(config.frequent_share * self.num_features),
            np.ones(self.num_features, np.int64),
        )
        groups[np.argsort(-np.asarray(feature_counts), kind="stable")[:num_frequent]] = 0  # 0 frequent, 1 rare
        self.runs = FeatureRuns.of(groups, 2)
        limits = np.where(groups == 0, config.num_centroids, config.num_rare_centroids)
        self.register_buffer("limits", torch.from_numpy(limits), persistent=False)
        self.limits: Tensor  # centroids available to each feature
        self.weight = new_table(self.num_features, self.embedding_dim)
        bound = math.sqrt(6 / (self.num_features + self.embedding_dim))  # same range as the queries
        shape = (config.num_subspaces, config.num_centroids, self.embedding_dim // config.num_subspaces)
        self.centroids = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))  # [S, K, D/S]

    def forward(self, ids: Tensor) -> Tensor:
        distinct, places = torch.unique(ids, return_inverse=True)  # [U], [...]
        rows = functional.embedding(distinct, self.weight)
        queries = torch.unflatten(rows, 1, self.centroids.shape[::2])  # [U, S, D/S]
        with torch.no_grad():
            codes = self._codes(queries, self.limits[distinct.long()])  # [U, S]
        chosen = take_centroids(self.centroids, codes)  # [U, S, D/S]
        processes, pull = current_processes(), self.config.pull
        if processes is not None:
            pull /= processes.size  # their gradients are added up: a mean over the features of each part
        vectors = cast(Tensor, StraightThrough.apply(queries, chosen, pull))  # type: ignore[no-untyped-call]
        return functional.embedding(places, vectors.reshape(len(distinct), self.embedding_dim))  # [..., D]

    def _codes(self, queries: Tensor, limits: Tensor) -> Tensor:
        """The nearest available centroid of each piece: queries `[U, S, D/S]`, limits `[U]` → `[U, S]`."""
        dots = torch.einsum("usw,skw->usk", queries, self.centroids)
        distances = self.centroids.square().sum(-1) - 2 * dots  # without ‖q‖², which is the same for all
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
        """The bits of centroids and codes, as the paper counts, in units of a 32-bit parameter."""
        return self.centroids.numel() + -(-self._code_bytes() * 8 // BITS_PER_PARAMETER)

    def storage_bytes(self) -> int:
        """Centroids, packed codes and the runs of frequent features; no queries."""
        return self.centroids.nbytes + self._code_bytes() + self.runs.storage_bytes

    def to_stored(self) -> StoredForm:
        codes, runs = self.codes().cpu().numpy(), self.runs
        frequent = runs.groups[np.searchsorted(runs.starts, np.arange(self.num_features), side="right") - 1] == 0
        bits = self._code_bits()
        tensors = {
            "centroids": self.centroids.detach(),
            "frequent_codes": torch.from_numpy(pack_codes(codes[frequent], bits[0])),
            "rare_codes": torch.from_numpy(pack_codes(codes[~frequent], bits[1])),
            **{f"run_{part}": torch.from_numpy(getattr(runs, part)) for part in ("starts", "groups", "rows")},
        }
        return StoredForm("mgqe", tensors, {"bits": bits, "num_parameters": self.num_parameters()})


class StraightThrough(torch.autograd.Function):
    """The chosen centroids; backward: their gradient for both, plus that of `pull · mean over features of ‖q − c‖²`."""

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


@register_stored_form("mgqe")
class MgqeCodes(FieldEmbedding):
    """The stored form: packed codes and centroids, for lookup only."""

    def __init__(
        self, field_sizes: Sequence[int], tensors: Mapping[str, Tensor], bits: tuple[int, int], num_parameters: int
    ) -> None:
        num_subspaces, _, width = tensors["centroids"].shape
        super().__init__(field_sizes, num_subspaces * width)
        self.bits, self._num_parameters = bits, num_parameters
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    @classmethod
    def from_stored(cls, field_sizes: Sequence[int], form: StoredForm) -> "MgqeCodes":
        tensors, bits = form.tensors, read_integers(form.metadata, "bits")
        centroids, runs = tensors["centroids"], FeatureRuns.from_stored(form, 2, sum(field_sizes))
        if set(tensors) != MGQE_TENSORS or centroids.ndim != 3 or not centroids.is_floating_point():
            raise ValueError(f"expected the tensors {', '.join(sorted(MGQE_TENSORS))}, with centroids [S, K, D/S]")
        num_subspaces, num_centroids, _ = centroids.shape
        if not centroids.numel() or len(bits) != 2 or bits[1] > bits[0] or bits[0] != code_bits(num_centroids):
            raise ValueError(f"codes of {bits} bits are not those of {num_centroids} centroids")
        code_bytes = 0
        for name, count, each in zip(("frequent_codes", "rare_codes"), runs.group_sizes, bits, strict=True):
            num_codes = count * num_subspaces
            check_shape(tensors, name, (-(-num_codes * each // 8),))
            if tensors[name].dtype != torch.uint8:
                raise ValueError(f"{name} holds {tensors[name].dtype}, not bytes")
            if 1 << each > num_centroids and largest_code(tensors[name], num_codes, each) >= num_centroids:
                raise ValueError(f"{name} refers to a centroid beyond the {num_centroids} stored")
            code_bytes += tensors[name].nbytes
        num_parameters = read_integer(form.metadata, "num_parameters")
        if num_parameters != centroids.numel() + -(-code_bytes * 8 // BITS_PER_PARAMETER):
            raise ValueError("num_parameters does not match centroids and codes")
        return cls(field_sizes, {**tensors, "centroids": centroids.float()}, (bits[0], bits[1]), num_parameters)

    def forward(self, ids: Tensor) -> Tensor:
        tensors: dict[str, Any] = self._buffers
        centroids, starts = tensors["centroids"], tensors["run_starts"].long()
        flat = ids.reshape(-1).long().contiguous()
        run = torch.searchsorted(starts, flat, right=True) - 1
        row = (tensors["run_rows"][run] + flat - starts[run])[:, None]
        frequent = (tensors["run_groups"][run] == 0)[:, None]
        place = row * len(centroids) + torch.arange(len(centroids))  # index into the stream of codes, [M, S]
        codes = torch.where(
            frequent,
            unpack_codes(tensors["frequent_codes"], torch.where(frequent, place, 0), self.bits[0]),
            unpack_codes(tensors["rare_codes"], torch.where(frequent, 0, place), self.bits[1]),
        )
        return take_centroids(centroids, codes).reshape(*ids.shape, self.embedding_dim)

    def num_parameters(self) -> int:
        return self._num_parameters

    def storage_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.buffers())


def code_bits(num_centroids: int) -> int:
    """Bits of a code for this number of centroids."""
    return (num_centroids - 1).bit_length()


def pack_codes(codes: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Pack codes of any shape into a stream of `bits` bits each, lowest bit first."""
    each = (codes.reshape(-1, 1) >> np.arange(bits)) & 1
    return np.packbits(each.astype(np.uint8), bitorder="little")


def unpack_codes(stream: Tensor, place: Tensor, bits: int) -> Tensor:
    """The codes at places `[...]` of a packed stream, `[...]`."""
    if bits == 0 or not len(stream):
        return torch.zeros_like(place)
    first = place * bits
    at = torch.div(first, 8, rounding_mode="floor")
    # 16 bits at an offset of up to 7 span three bytes
    word = sum(stream[(at + k).clamp_max(len(stream) - 1)].long() << (8 * k) for k in range(3))
    return (word >> (first % 8)) & ((1 << bits) - 1)


def largest_code(stream: Tensor, num_codes: int, bits: int) -> int:
    """The largest of the codes in a packed stream, read a part at a time."""
    parts = (torch.arange(first, min(first + 65_536, num_codes)) for first in range(0, num_codes, 65_536))
    return max((int(unpack_codes(stream, part, bits).max()) for part in parts), default=0)


def take_centroids(centroids: Tensor, codes: Tensor) -> Tensor:
    """Centroids `[S, K, w]` at codes `[U, S]` → `[U, S, w]`."""
    return centroids[torch.arange(len(centroids)), codes.long()]
