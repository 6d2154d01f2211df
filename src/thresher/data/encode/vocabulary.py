"""Vocabulary: which values of a field are features, in a defined order (count descending, then value)."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.errors import FormatError

_WHOLE, _WITH_ZERO = r"^(-?\d+)$", r"^(-?\d+)\.0$"


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

    @cached_property
    def _by_hash(self) -> tuple[NDArray[np.uint64], NDArray[np.int32]] | None:
        """The hashes of all values, ascending, and their local ids; None should two hashes ever be equal."""
        hashes = self.values.hash(seed=0).to_numpy()
        order = np.argsort(hashes)
        hashes = hashes[order]
        return None if (hashes[1:] == hashes[:-1]).any() else (hashes, (order + 1).astype(np.int32))

    def ids_of_hashes(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32] | None:
        """Local ids of values given by their `Series.hash(seed=0)`; None if hashes do not tell the values apart."""
        if not len(self.values):
            return np.zeros(len(hashes), np.int32)
        if self._by_hash is None:
            return None
        known, local_ids = self._by_hash
        places = np.minimum(known.searchsorted(hashes), len(known) - 1)
        return np.where(known[places] == hashes, local_ids[places], np.int32(0))

    def to_ids(self, values: pl.Series) -> NDArray[np.int32]:
        """Local ids of a String series; a value that is not here is 0, the unknown feature."""
        if not len(self.values):
            return np.zeros(len(values), np.int32)
        # an Enum costs time in proportion to the vocabulary at every cast: too much for the few rows of a prediction
        if 4 * len(values) < len(self.values):
            local_ids = self.ids_of_hashes(values.hash(seed=0).to_numpy())
            if local_ids is not None:
                return local_ids
        physical = values.cast(self._enum, strict=False).to_physical()
        return (physical.cast(pl.Int32) + 1).fill_null(0).to_numpy()

    def as_written(self, texts: pl.Series, kind: pl.DataType) -> pl.Series:
        """The texts of a column of type `kind`, whole numbers and truths as the values here are written.

        A gap in a column of ids makes pandas write 3 as `3.0` into a CSV; without one, and as a number, it is `3`.
        Where both stand here, they are two values and stay so.
        """
        if kind == pl.Boolean:
            return texts.replace(self._truths)
        if self._has_zeros:
            return texts if self._has_wholes else texts.str.replace(_WHOLE, "${1}.0")
        if texts.str.ends_with(".0").any() and self._has_wholes:
            return texts.str.replace(_WITH_ZERO, "${1}")
        return texts

    @cached_property
    def _has_zeros(self) -> bool:
        """Some whole numbers here are written as fractions."""
        ends = self.values.filter(self.values.str.ends_with(".0"))  # quick: a pattern is asked of few
        return bool(ends.str.contains(_WITH_ZERO).any())

    @cached_property
    def _has_wholes(self) -> bool:
        return bool(self.values.str.contains(_WHOLE).any())

    @cached_property
    def _truths(self) -> dict[str, str]:
        """How True and False are written here, if one way of each is all there is."""
        filled = self.values.filter(self.values != "").head(3).to_list()
        own = {value.capitalize(): value for value in filled}
        return own if len(own) == len(filled) and own.keys() <= {"True", "False"} else {}

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        pl.DataFrame({"value": self.values, "count": self.counts}).write_parquet(path)

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        try:
            frame = pl.read_parquet(path, glob=False)
            return cls(frame["value"], frame["count"].to_numpy())
        except (pl.exceptions.PolarsError, OSError) as error:
            raise FormatError(
                f"{path}: the vocabulary is missing or damaged ({error}); encode the data again"
            ) from error


def extend_vocabulary(
    known: Vocabulary | None,
    values: pl.Series,
    codes: NDArray[np.int64],
    counts: NDArray[np.int64] | NDArray[np.uint32],
    *,
    append: bool = True,
) -> tuple[Vocabulary, NDArray[np.int32]]:
    """A vocabulary of the values given, after those already known.

    Args:
        known: keeps its values and ids; its values have the codes 0, 1, … in their order.
        values: values seen often enough, of which those that are known are passed over.
        codes: the code of each.
        counts: occurrences of every code.
        append: whether new values get ids; if not they stay unknown.

    Returns:
        The vocabulary, and for each code its local id (0: unknown).
    """
    start = 0 if known is None else len(known.values)
    frame = pl.DataFrame({"value": values.rename("value"), "code": codes, "count": counts[codes].astype(np.int64)})
    frame = frame.filter((pl.col("code") >= start) & (pl.col("count") > 0) & pl.lit(append or known is None))
    frame = frame.sort(["count", "value"], descending=[True, False])
    local_ids = np.zeros(max(len(counts), start), np.int32)
    local_ids[:start] = np.arange(1, start + 1)
    local_ids[frame["code"].to_numpy()] = np.arange(start + 1, start + len(frame) + 1)
    if known is None:
        return Vocabulary(frame["value"].rechunk(), frame["count"].to_numpy()), local_ids
    now = np.zeros(start, np.int64)
    now[: len(counts)] = counts[:start]
    both = pl.concat([known.values.rename("value"), frame["value"]], rechunk=True)
    return Vocabulary(both, np.concatenate([known.counts + now, frame["count"].to_numpy()])), local_ids
