"""Counts → ids: which values of a field are features, in a defined order (count descending, then value).

`ValueCoder` numbers values as they first appear while rows stream by; `Vocabulary` is the lasting result.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import count as counter
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.errors import FormatError

_coder_names = counter()


class ValueCoder:
    """Text values → provisional codes 0, 1, … in order of first appearance, over any number of calls."""

    def __init__(self) -> None:
        # An own namespace, or categories of other coders in this process would share the numbering.
        self._dtype = pl.Categorical(pl.Categories(f"thresher-{next(_coder_names)}-{id(self)}"))
        self._anchor = pl.Series([""], dtype=pl.String).head(0).cast(self._dtype)
        self._values: list[pl.Series] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def encode(self, values: pl.Series) -> NDArray[np.int64]:
        """Codes of a String series without nulls."""
        categories = values.cast(self._dtype)
        self._anchor = categories.head(1)  # polars forgets the numbering when no series holds on to it
        codes = categories.to_physical().cast(pl.Int64).to_numpy()
        at_new = np.flatnonzero(codes >= self._size)
        if len(at_new):
            new, first = np.unique(codes[at_new], return_index=True)
            self._values.append(values.gather(at_new[first]))
            self._size += len(new)
        return codes

    def values(self) -> pl.Series:
        """The value of each code."""
        return pl.concat(self._values, rechunk=True) if self._values else pl.Series(dtype=pl.String)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The features of one field but the unknown one: value `i` has local id `i + 1`."""

    values: pl.Series
    counts: NDArray[np.int64]
    """Occurrences in the rows the vocabulary was built from."""

    @property
    def size(self) -> int:
        """Local ids, the unknown one included."""
        return len(self.values) + 1

    @cached_property
    def _enum(self) -> pl.Enum:
        return pl.Enum(self.values)

    def to_ids(self, values: pl.Series) -> NDArray[np.int32]:
        """Local ids of a String series; a value that is not here is 0, the unknown feature."""
        if not len(self.values):
            return np.zeros(len(values), np.int32)
        physical = values.cast(self._enum, strict=False).to_physical()
        return (physical.cast(pl.Int32) + 1).fill_null(0).to_numpy()

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        pl.DataFrame({"value": self.values, "count": self.counts}).write_parquet(path)

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        try:
            frame = pl.read_parquet(path)
            return cls(frame["value"], frame["count"].to_numpy())
        except (pl.exceptions.PolarsError, OSError) as error:
            raise FormatError(
                f"{path}: the vocabulary is missing or damaged ({error}); encode the data again"
            ) from error


def build_vocabulary(
    values: pl.Series, counts: NDArray[np.int64], min_count: int
) -> tuple[Vocabulary, NDArray[np.int32]]:
    """Keep values seen at least `min_count` times (and at least once).

    Returns the vocabulary and, for each given value, its local id (0: unknown).
    """
    frame = pl.DataFrame({"value": values, "count": counts, "code": np.arange(len(values), dtype=np.int64)})
    kept = frame.filter(pl.col("count") >= max(min_count, 1)).sort(["count", "value"], descending=[True, False])
    local_ids = np.zeros(len(values), np.int32)
    local_ids[kept["code"].to_numpy()] = np.arange(1, len(kept) + 1, dtype=np.int32)
    return Vocabulary(kept["value"].rechunk(), kept["count"].to_numpy()), local_ids
