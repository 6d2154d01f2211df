"""Settings → the splitter that decides each row; a split by time may have to read the time column first."""

import polars as pl

from thresher.data.batches.split import (
    ColumnSplit,
    MomentSample,
    RandomSplit,
    SourceSplit,
    Splitter,
    TimeSplit,
    read_moments,
)
from thresher.data.config import SplitConfig
from thresher.data.encode.sources import DataSource
from thresher.errors import ConfigError


def build_splitter(source: DataSource, cut: tuple[float, float] | None) -> Splitter:
    """The splitter of a source's plan; `cut` is what `find_cut` gave."""
    config, seed = source.plan.split, source.plan.split_seed
    match config.by:
        case "random":
            return RandomSplit(seed, config.shares)
        case "files":
            return SourceSplit()
        case "column":
            return ColumnSplit(config.column)
        case "time":
            assert cut is not None
            return TimeSplit(config.column, config.date_format, *cut)


def find_cut(source: DataSource) -> tuple[float, float] | None:
    """For a split by time: where validation and test begin, as said or by the shares of all rows."""
    config = source.plan.split
    if config.by != "time":
        return None
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
