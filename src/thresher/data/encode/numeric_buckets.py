"""Numbers → bucket labels. Pure functions on arrays; a number that is missing has no bucket (see `transforms.py`)."""

import numpy as np
from numpy.typing import NDArray


def log2_buckets(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The rule of the Criteo winners: `floor(ln(x)²)` for x > 2, else `x - 2`, so that small values keep their own.

    Fractions at or below 2 are rounded down first: the rule is made for counts.

    >>> log2_buckets(np.array([-1.0, 0.0, 1.0, 2.0, 3.0, 100.0])).tolist()
    [-3, -2, -1, 0, 1, 21]
    """
    values = np.asarray(values, dtype=np.float64)
    logs = np.log(np.maximum(values, 2.0))
    small = np.maximum(np.floor(values) - 2, -(2.0**62))  # there are no smaller integers to name buckets by
    buckets: NDArray[np.int64] = np.where(values > 2, np.floor(logs * logs), small).astype(np.int64)
    return buckets


def quantile_edges(values: NDArray[np.float64], num_buckets: int) -> tuple[float, ...]:
    """Numbers that cut the given ones into at most `num_buckets` equal parts; NaN is left out.

    >>> quantile_edges(np.arange(8.0), 4)
    (2.0, 4.0, 6.0)
    """
    present = np.sort(values[~np.isnan(values)])
    if not len(present):
        return ()
    at = np.arange(1, num_buckets) * len(present) // num_buckets
    edges = np.unique(present[at])
    return tuple(edges[edges > present[0]].tolist())


def quantile_buckets(values: NDArray[np.float64], edges: tuple[float, ...]) -> NDArray[np.int64]:
    """How many edges are at or below each number.

    >>> quantile_buckets(np.array([1.0, 2.0, 9.0]), (2.0, 4.0)).tolist()
    [0, 1, 2]
    """
    return np.searchsorted(np.asarray(edges, np.float64), values, side="right")
