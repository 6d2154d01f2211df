"""Which rows train, validate and test: decided row by row from a seeded stream, whatever the chunks.

Rows are numbered in the order of the raw files, so the split is a function of (data, seed) alone.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thresher.errors import ConfigError

SplitName = Literal["train", "validation", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")


class RandomSplit:
    """80/10/10 (or other shares) by one uniform number per row; call `assign` on the rows in their order."""

    def __init__(self, seed: int, shares: tuple[float, float, float] = (0.8, 0.1, 0.1)) -> None:
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
            raise ConfigError(f"split shares are {shares}; they must not be negative and must add up to 1")
        self._edges = np.array([shares[0], shares[0] + shares[1]])
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def assign(self, num_rows: int) -> NDArray[np.uint8]:
        """0, 1, 2 (train, validation, test) for the next `num_rows` rows."""
        uniforms = self._generator.random(num_rows)
        return np.searchsorted(self._edges, uniforms, side="right").astype(np.uint8)

    def skip(self, num_rows: int) -> None:
        """Move past rows that were assigned before."""
        self._generator.bit_generator.advance(num_rows)  # type: ignore[attr-defined]  # one draw per uniform
