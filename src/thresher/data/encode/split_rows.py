"""Assigns each row to the train, validation or test split: at random, by time, by a column, or by file.

Rows are assigned in the order of the raw files, so the split depends only on the data and the settings, not on the
chunks.
"""

from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.config import SplitConfig
from thresher.data.encode.sources import DataSource
from thresher.data.read.column_values import as_numbers, as_text, parse_dates
from thresher.data.read.raw_files import RawChunk
from thresher.data.schema import SPLITS
from thresher.errors import ConfigError, DataError

_SPLIT_OF_WORD = {
    "train": 0, "training": 0, "validation": 1, "valid": 1, "val": 1, "dev": 1, "test": 2, "testing": 2, "eval": 2,
}  # fmt: skip
_BAD = 255


class Splitter(Protocol):
    """Decides the split of each row: 0, 1, 2 for train, validation, test."""

    def assign_chunk(self, chunk: RawChunk, kept: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], str]:
        """The split of the chunk's kept rows, 255 for a row that has none; and the error message for such rows."""


class RandomSplit:
    """By one uniform random number per row, drawn in the order of the rows."""

    def __init__(self, seed: int, shares: tuple[float, ...] = (0.8, 0.1, 0.1)) -> None:
        self._edges = np.array([shares[0], shares[0] + shares[1]])
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def assign(self, num_rows: int) -> NDArray[np.uint8]:
        """The split of the next `num_rows` rows."""
        uniforms = self._generator.random(num_rows)
        return np.searchsorted(self._edges, uniforms, side="right").astype(np.uint8)

    def assign_chunk(self, chunk: RawChunk, kept: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], str]:
        return self.assign(int(kept.sum())), ""


class SourceSplit:
    """By file: the source gives each chunk its split."""

    def assign_chunk(self, chunk: RawChunk, kept: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], str]:
        at = SPLITS.index(chunk.split or "train")
        return np.full(int(kept.sum()), at, np.uint8), ""


class ColumnSplit:
    """By a column with the values train, validation and test."""

    def __init__(self, column: str) -> None:
        self.column = column

    def assign_chunk(self, chunk: RawChunk, kept: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], str]:
        words = chunk.frame[self.column].cast(str).fill_null("")
        meaning = {word: _SPLIT_OF_WORD.get(word.strip().lower(), _BAD) for word in words.unique()}
        found = np.array([meaning[word] for word in words], np.uint8)[kept]
        return found, f"column {self.column!r} must be train, validation or test"


class TimeSplit:
    """By time: train before `validation_from`, test from `test_from` on, validation between."""

    def __init__(self, column: str, date_format: str, validation_from: float, test_from: float) -> None:
        if validation_from > test_from:
            raise ConfigError("split: validation_from must not be later than test_from")
        self.column, self.date_format = column, date_format
        self._edges = np.array([validation_from, test_from])

    def assign_chunk(self, chunk: RawChunk, kept: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], str]:
        moments = read_moments(chunk.frame[self.column], self.date_format)[kept]
        found = np.searchsorted(self._edges, moments, side="right").astype(np.uint8)
        found[np.isnan(moments)] = _BAD
        return found, f"column {self.column!r} is neither a number nor a date"


def read_moments(column: pl.Series, date_format: str) -> NDArray[np.float64]:
    """A time column as numbers: dates as seconds since 1970, NaN for values that are neither a number nor a date.

    Each value is read on its own, so that the result does not depend on the chunks. With a `date_format` all values
    are read as dates.
    """
    moments, no_number = np.full(len(column), np.nan), np.ones(len(column), bool)
    if not column.dtype.is_temporal() and not date_format:
        moments, no_number = as_numbers(column)
    if no_number.any():
        dates = parse_dates(column if column.dtype.is_temporal() else as_text(column), date_format)
        seconds = dates.dt.epoch("ms").cast(float).fill_null(float("nan")).to_numpy() / 1000
        moments = np.where(no_number, seconds, moments)
    return moments


class MomentSample:
    """An evenly thinned sample of the moments of all rows, to find the cuts of a split by time."""

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
        """The moments at which validation and test start."""
        moments = np.concatenate(self._held) if self._held else np.empty(0)
        moments = np.sort(moments[~np.isnan(moments)])
        if not len(moments):
            raise DataError("the time column of the split contains no number and no date")
        at = [min(int(len(moments) * share), len(moments) - 1) for share in (shares[0], shares[0] + shares[1])]
        return float(moments[at[0]]), float(moments[at[1]])


def build_splitter(source: DataSource) -> Splitter:
    """The splitter of a source's plan. A split by time may read the whole time column to find its cuts."""
    config = source.plan.split
    match config.by:
        case "random":
            return RandomSplit(source.plan.split_seed, config.shares)
        case "files":
            return SourceSplit()
        case "column":
            return ColumnSplit(config.column)
        case "time":
            return TimeSplit(config.column, config.date_format, *_time_cuts(source, config))


def _time_cuts(source: DataSource, config: SplitConfig) -> tuple[float, float]:
    """The moments at which validation and test start: from the settings, or by the shares of all rows."""
    if config.validation_from:
        return _moment(config, config.validation_from), _moment(config, config.test_from)
    sample = MomentSample()
    for chunk in source.chunks():
        sample.add(read_moments(chunk.frame[config.column], config.date_format))
    return sample.cut(config.shares)


def _moment(config: SplitConfig, text: str) -> float:
    moment = float(read_moments(pl.Series([text]), config.date_format)[0])
    if moment != moment:
        raise ConfigError(f"split: {text!r} is neither a number nor a date")
    return moment
