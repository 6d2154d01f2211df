"""Which rows train, validate and test: by a seeded stream, by time, by a column, or as the source says.

Each splitter is given the rows in the order of the raw files, so the split is a function of (data, settings) alone,
whatever the chunks.
"""

from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from thresher.errors import ConfigError, DataError

if TYPE_CHECKING:
    import polars as pl

    from thresher.data.read.raw_files import RawChunk

SplitName = Literal["train", "validation", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")
_WORDS = {
    "train": 0, "training": 0, "validation": 1, "valid": 1, "val": 1, "dev": 1, "test": 2, "testing": 2, "eval": 2,
}  # fmt: skip
_BAD = 255


class Splitter(Protocol):
    """Decides the split of each row: 0, 1, 2 for train, validation, test."""

    def assign_chunk(self, chunk: "RawChunk", kept: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], str]:
        """The split of the chunk's kept rows; 255 for a row it cannot place, and then the words why."""


class RandomSplit:
    """80/10/10 (or other shares) by one uniform number per row; call it on the rows in their order."""

    def __init__(self, seed: int, shares: tuple[float, ...] = (0.8, 0.1, 0.1)) -> None:
        if len(shares) != 3 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
            raise ConfigError(f"split shares are {shares}; three are needed that add up to 1")
        self._edges = np.array([shares[0], shares[0] + shares[1]])
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def assign(self, num_rows: int) -> NDArray[np.uint8]:
        """The split of the next `num_rows` rows."""
        uniforms = self._generator.random(num_rows)
        return np.searchsorted(self._edges, uniforms, side="right").astype(np.uint8)

    def skip(self, num_rows: int) -> None:
        """Move past rows that were assigned before."""
        self._generator.bit_generator.advance(num_rows)  # type: ignore[attr-defined]  # one draw per uniform

    def assign_chunk(self, chunk: "RawChunk", kept: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], str]:
        return self.assign(int(kept.sum())), ""


class SourceSplit:
    """The source knows: some files train, others validate or test."""

    def assign_chunk(self, chunk: "RawChunk", kept: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], str]:
        at = SPLITS.index(chunk.split or "train")
        return np.full(int(kept.sum()), at, np.uint8), ""


class ColumnSplit:
    """A column says train, validation or test."""

    def __init__(self, column: str) -> None:
        self.column = column

    def assign_chunk(self, chunk: "RawChunk", kept: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], str]:
        words = chunk.frame[self.column].cast(str).fill_null("")
        meaning = {word: _WORDS.get(word.strip().lower(), _BAD) for word in words.unique()}
        found = np.array([meaning[word] for word in words], np.uint8)[kept]
        return found, f"column {self.column!r} must say train, validation or test"


class TimeSplit:
    """Rows before `validation_from` train, rows from `test_from` on test."""

    def __init__(self, column: str, date_format: str, validation_from: float, test_from: float) -> None:
        if validation_from > test_from:
            raise ConfigError("split: validation_from must not be later than test_from")
        self.column, self.date_format = column, date_format
        self._edges = np.array([validation_from, test_from])

    def assign_chunk(self, chunk: "RawChunk", kept: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], str]:
        moments = read_moments(chunk.frame[self.column], self.date_format)[kept]
        found = np.searchsorted(self._edges, moments, side="right").astype(np.uint8)
        found[np.isnan(moments)] = _BAD
        return found, f"column {self.column!r} is neither a number nor a date"


def read_moments(column: "pl.Series", date_format: str) -> NDArray[np.float64]:
    """A time column as numbers: a number is itself, a date its seconds since 1970; NaN for what is neither.

    Each value is read by itself: what it means must not depend on the others of its chunk. A `date_format` says that
    all of them are dates.
    """
    from thresher.data.encode.transforms import as_numbers, as_text
    from thresher.data.read.dates import parse_dates

    moments, no_number = np.full(len(column), np.nan), np.ones(len(column), bool)
    if not column.dtype.is_temporal() and not date_format:
        moments, no_number = as_numbers(column)
    if no_number.any():
        dates = parse_dates(column if column.dtype.is_temporal() else as_text(column), date_format)
        seconds = dates.dt.epoch("ms").cast(float).fill_null(float("nan")).to_numpy() / 1000
        moments = np.where(no_number, seconds, moments)
    return moments


class MomentSample:
    """Moments of all rows, thinned evenly when they grow too many: enough to cut time by shares."""

    def __init__(self, limit: int = 1 << 22) -> None:
        self._limit, self._step, self._seen = limit, 1, 0
        self._held: list[NDArray[np.float64]] = []
        self._size = 0

    def add(self, moments: NDArray[np.float64]) -> None:
        first = -self._seen % self._step
        self._seen += len(moments)
        self._held.append(moments[first :: self._step])
        self._size += len(self._held[-1])
        while self._size > self._limit:
            self._held = [np.concatenate(self._held)[::2]]
            self._size, self._step = len(self._held[0]), self._step * 2

    def cut(self, shares: tuple[float, ...]) -> tuple[float, float]:
        """The moments at which validation and test begin."""
        moments = np.concatenate(self._held) if self._held else np.empty(0)
        moments = np.sort(moments[~np.isnan(moments)])
        if not len(moments):
            raise DataError("the time column of the split holds no moment")
        at = [min(int(len(moments) * share), len(moments) - 1) for share in (shares[0], shares[0] + shares[1])]
        return float(moments[at[0]]), float(moments[at[1]])
