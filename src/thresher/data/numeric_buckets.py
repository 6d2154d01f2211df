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
    return np.where(values > 2, np.floor(logs * logs), np.floor(values) - 2).astype(np.int64)
