"""The stated grids: which settings of each method a comparison tries, in this order, before it chooses on validation.

Every method gets the same number of trials from the front of its list, so the first three of each span what it varies.
What a budget decides (the width of a uniform table, the rows of a hashed one) is not in a grid: the budget sets it. A
method from outside states its grid as a classmethod `grid()` of its config; without one its defaults are tried alone.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

from thresher.baselines.autodim import AutoDimConfig
from thresher.baselines.darts_emb import DartsEmbConfig
from thresher.baselines.dnis import DnisConfig
from thresher.baselines.hashing import DoubleHashConfig, HashConfig
from thresher.baselines.l1_projection import L1ProjectionConfig
from thresher.baselines.magnitude import GradualMagnitudeConfig, IterativeMagnitudeConfig, MagnitudeConfig
from thresher.baselines.mde import MdeConfig
from thresher.baselines.mgqe import MgqeConfig
from thresher.baselines.nis import NisConfig
from thresher.baselines.quantised import QuantisedConfig
from thresher.baselines.quotient_remainder import QuotientRemainderConfig
from thresher.embeddings.base import EmbeddingConfig
from thresher.embeddings.method_registry import registered_embeddings
from thresher.embeddings.pep import PepConfig
from thresher.embeddings.uniform import UniformConfig

SPACES = ((2, 4, 16), (1, 2, 8), (4, 8, 32))
"""The PEP paper's candidate sizes for DartsEmb."""
POINTS_OF_THEIR_OWN: Mapping[str, Sequence[EmbeddingConfig]] = {
    "uniform": [UniformConfig(embedding_dim=width) for width in (64, 32, 16, 8, 4)],
    "quantised": [QuantisedConfig(embedding_dim=width) for width in (64, 32, 16)],
}
"""Settings that are points of the frontier whatever the budgets: widths of a plain table, and of one in int8, which
is small in bytes where a budget of parameters would make it narrow."""


def method_grid(method: str) -> Sequence[EmbeddingConfig]:
    """The configs to try for a method, best guess first."""
    if method in _GRIDS:
        return _GRIDS[method]
    config = registered_embeddings()[method].config
    state: Callable[[], Sequence[EmbeddingConfig]] | None = getattr(config, "grid", None)
    return [config()] if state is None else list(state())


def _mgqe() -> list[EmbeddingConfig]:
    """The paper's d, D and K: each D at the front, then few subspaces first, since codes are most of the bytes."""
    front = [(4, 256, 32), (8, 64, 16), (16, 512, 32)]
    grid = dict.fromkeys([*front, *product((4, 8, 16), (256, 64, 128, 512), (32, 16))])
    return [
        MgqeConfig(
            num_subspaces=subspaces,
            num_centroids=centroids,
            num_rare_centroids=min(centroids, 64),
            embedding_dim=width,
        )
        for subspaces, centroids, width in grid
    ]


_GRIDS: Mapping[str, Sequence[EmbeddingConfig]] = {
    "uniform": [UniformConfig()],
    "pep": [PepConfig(embedding_dim=width) for width in (128, 64, 32)],
    "magnitude": [
        MagnitudeConfig(embedding_dim=128),
        MagnitudeConfig(embedding_dim=64),
        MagnitudeConfig(embedding_dim=128, search_weight_decay=1e-4),
        MagnitudeConfig(embedding_dim=128, search_weight_decay=3e-5),
    ],
    "gradual-magnitude": [
        GradualMagnitudeConfig(embedding_dim=128),
        GradualMagnitudeConfig(embedding_dim=64),
        GradualMagnitudeConfig(embedding_dim=128, search_weight_decay=1e-4),
    ],
    "iterative-magnitude": [
        IterativeMagnitudeConfig(embedding_dim=128),
        IterativeMagnitudeConfig(embedding_dim=64),
        IterativeMagnitudeConfig(embedding_dim=128, round_keep_share=0.7),
    ],
    "l1-projection": [
        L1ProjectionConfig(embedding_dim=128, projection_steps=100),
        L1ProjectionConfig(embedding_dim=64, projection_steps=100),
        L1ProjectionConfig(embedding_dim=128),
    ],
    "mde": [
        MdeConfig(embedding_dim=32, num_blocks=blocks, temperature=temperature)
        for blocks, temperature in ((8, 0.3), (16, 0.1), (8, 0.2), (16, 0.3), (8, 0.1), (16, 0.2))
    ],
    "mgqe": _mgqe(),
    "darts-emb": [DartsEmbConfig(candidate_sizes=sizes, embedding_dim=sizes[-1]) for sizes in SPACES],
    "autodim": [AutoDimConfig(candidate_sizes=sizes, embedding_dim=sizes[-1]) for sizes in SPACES],
    "dnis": [DnisConfig(embedding_dim=width) for width in (128, 64, 32, 16)],
    "nis": [
        NisConfig(candidate_sizes=(4, 8, 16), embedding_dim=16),
        NisConfig(candidate_sizes=(4, 8, 16), embedding_dim=16, mode="multiple"),
        NisConfig(candidate_sizes=(8, 16, 32), embedding_dim=32, mode="multiple"),
    ],
    "hash": [HashConfig(embedding_dim=width) for width in (16, 8, 32)],
    "double-hash": [DoubleHashConfig(embedding_dim=width) for width in (16, 8, 32)],
    "quotient-remainder": [
        QuotientRemainderConfig(embedding_dim=16),
        QuotientRemainderConfig(embedding_dim=8),
        QuotientRemainderConfig(embedding_dim=16, combine="add"),
    ],
    "quantised": [QuantisedConfig(value_type="int8"), QuantisedConfig(value_type="fp16")],
}
