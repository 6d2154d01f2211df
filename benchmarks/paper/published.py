"""Published numbers for MovieLens-1M, Criteo and Avazu: the paper, and an independent run of the authors' code.

The authors' code selects its numbers on the test split and averages AUC over batches.
"""

from collections.abc import Mapping

PEP_0: Mapping[str, Mapping[str, tuple[float, int]]] = {
    "movielens-1m": {
        "lr": (0.7717, 0), "fm": (0.8368, 6541), "deepfm": (0.8491, 8604), "autoint": (0.8530, 9281),
    },
    "criteo": {
        "lr": (0.7881, 0), "fm": (0.7941, 1067), "deepfm": (0.7986, 1227), "autoint": (0.7922, 3116),
        "autoint-lr": (0.7980, 1117),
    },
    "avazu": {
        "lr": (0.7499, 0), "fm": (0.7598, 1479), "deepfm": (0.7622, 2215), "autoint": (0.7607, 2805),
        "autoint-lr": (0.7620, 2225),
    },
}  # fmt: skip
"""The paper's smallest tables: data set → model → test AUC and parameters, on the full files."""

AUTHORS_CODE: Mapping[str, tuple[float, int]] = {
    "fm": (0.8479, 20_000),
    "deepfm": (0.8464, 20_000),
    "autoint": (0.8471, 20_000),
}
AUTHORS_DENSE: Mapping[str, float] = {"fm": 0.8387}
"""The authors' code on MovieLens-1M, run independently: pruned (with number of parameters) and dense."""
