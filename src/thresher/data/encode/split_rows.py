"""Assigns each row to the train, validation or test split: at random, by time, by a column, or by file."""

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.config import SplitConfig
from thresher.data.encode.sources import DataSource, EncodingPlan
from thresher.data.read.column_values import as_numbers, as_text, parse_dates, raw_column
from thresher.data.read.raw_files import RawChunk
from thresher.data.schema import SPLITS
from thresher.errors import ConfigError, DataError

_SPLIT_OF_WORD = {
    "train": 0, "training": 0, "validation": 1, "valid": 1, "val": 1, "dev": 1, "test": 2, "testing": 2, "eval": 2,
}  # fmt: skip
_BAD = 255
Splitter = Callable[[RawChunk, NDArray[np.bool_]], tuple[NDArray[np.uint8], str]]
"""(chunk, mask of its kept rows) → the split of each kept row: 0, 1, 2 for train, validation, test, 255 for a row that
has none; and the error message for such rows."""


class RandomSplit:
    """By one uniform random number per row, drawn in the order of the rows."""

    def __init__(self, seed: int, shares: tuple[float, ...] = (0.8, 0.1, 0.1)) -> None:
        self._edges = np.array([shares[0], shares[0] + shares[1]])
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def assign(self, num_rows: int) -> NDArray[np.uint8]:
        """The split of the next `num_rows` rows."""
        uniforms = self._generator.random(num_rows)
        return np.searchsorted(self._edges, uniforms, side="right").astype(np.uint8)


def build_splitter(source: DataSource) -> Splitter:
    """The splitter of a source's plan. A split by time may read the whole time column to find its cuts."""
    config = source.plan.split
    if config.kind == "random":
        random = RandomSplit(source.plan.split_seed, config.shares)
        return lambda _, kept: (random.assign(int(kept.sum())), "")
    if config.kind == "files":
        return lambda chunk, kept: (np.full(kept.sum(), SPLITS.index(chunk.split or "train"), np.uint8), "")
    if config.kind == "time" and not config.validation_from:
        return _time_splitter(config, _find_time_cuts(source, config))
    return chunk_splitter(source.plan)


def chunk_splitter(plan: EncodingPlan) -> Splitter:
    """The splitter of a split that each row decides by itself: by a column, or by time with cuts in the settings."""
    config = plan.split
    if config.kind == "column":
        return lambda chunk, kept: _split_by_column(raw_column(chunk.frame, config.column), kept)
    return _time_splitter(config, _given_time_cuts(config))


def _time_splitter(config: SplitConfig, edges: tuple[float, float]) -> Splitter:
    return lambda chunk, kept: _split_by_time(raw_column(chunk.frame, config.column), kept, config.date_format, edges)


def _split_by_column(column: pl.Series, kept: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], str]:
    words = column.cast(str).fill_null("")
    meaning = {word: _SPLIT_OF_WORD.get(word.strip().lower(), _BAD) for word in words.unique()}
    found = np.array([meaning[word] for word in words], np.uint8)[kept]
    problem = f"column {column.name!r} must be train, validation or test"
    return found, f'{problem}; to split by time, set data.split.by = "time"'


def _split_by_time(
    column: pl.Series, kept: NDArray[np.bool_], date_format: str, edges: tuple[float, float]
) -> tuple[NDArray[np.uint8], str]:
    """Train before the first edge, test from the second edge on, validation between."""
    moments = read_moments(column, date_format)[kept]
    found = np.searchsorted(edges, moments, side="right").astype(np.uint8)
    found[np.isnan(moments)] = _BAD
    return found, f"column {column.name!r} is neither a number nor a date"


def read_moments(column: pl.Series, date_format: str) -> NDArray[np.float64]:
    """A time column as numbers: dates as seconds since 1970 (with a `date_format` all values are dates), else NaN."""
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

    def add(self, moments: NDArray[np.float64]) -> None:
        self._held.append(moments[-self._seen % self._step :: self._step])
        self._seen += len(moments)
        while sum(map(len, self._held)) > self._limit:
            self._held = [np.concatenate(self._held)[::2]]
            self._step *= 2

    def cut(self, shares: tuple[float, ...]) -> tuple[float, float]:
        """The moments at which validation and test start."""
        moments = np.concatenate(self._held) if self._held else np.empty(0)
        moments = np.sort(moments[~np.isnan(moments)])
        if not len(moments):
            raise DataError("the time column of the split contains no number and no date")
        at = [min(int(len(moments) * share), len(moments) - 1) for share in (shares[0], shares[0] + shares[1])]
        return float(moments[at[0]]), float(moments[at[1]])


def _find_time_cuts(source: DataSource, config: SplitConfig) -> tuple[float, float]:
    """The moments at which validation and test start, by the shares of all rows."""
    sample = MomentSample()
    for chunk in source.chunks():
        sample.add(read_moments(raw_column(chunk.frame, config.column), config.date_format))
    return sample.cut(config.shares)


def _given_time_cuts(config: SplitConfig) -> tuple[float, float]:
    """The moments at which validation and test start, from the settings."""
    texts = [config.validation_from, config.test_from]
    validation_from, test_from = read_moments(pl.Series(texts), config.date_format).tolist()
    for text, moment in zip(texts, (validation_from, test_from), strict=True):
        if moment != moment:
            raise ConfigError(f"split: {text!r} is neither a number nor a date")
    if validation_from > test_from:
        raise ConfigError("split: validation_from must not be later than test_from")
    return validation_from, test_from
