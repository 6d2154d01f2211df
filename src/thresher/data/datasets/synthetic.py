"""Synthetic rows: signal fields determine the label by first-order and low-rank pairwise terms, noise fields do not.

Value frequencies follow Zipf's law. Rows depend only on the settings and are generated in chunks, so any size works.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.config import DataConfig, SyntheticConfig
from thresher.data.encode.sources import EncodingPlan, register_source
from thresher.data.read.raw_files import RawChunk
from thresher.data.schema import Field, Label
from thresher.errors import ConfigError

_CHUNK_ROWS = 65_536
_CALIBRATION_ROWS = 65_536


@dataclass(frozen=True)
class SyntheticSource:
    """The rows of a `SyntheticConfig`."""

    config: SyntheticConfig
    plan: EncodingPlan

    @property
    def signal_fields(self) -> tuple[str, ...]:
        return tuple(f"signal_{at}" for at in range(self.config.num_signal_fields))

    @property
    def noise_fields(self) -> tuple[str, ...]:
        return tuple(f"noise_{at}" for at in range(self.config.num_noise_fields))

    @property
    def num_bytes(self) -> int | None:
        return None

    def inputs(self) -> Mapping[str, Any]:
        return {"synthetic": asdict(self.config)}

    def chunks(self) -> Iterator[RawChunk]:
        truth = PlantedTruth(self.config)
        for at in range(-(-self.config.num_rows // _CHUNK_ROWS)):
            rows = min(_CHUNK_ROWS, self.config.num_rows - at * _CHUNK_ROWS)
            yield RawChunk(self._frame(truth, rows, at))

    def frame(self) -> pl.DataFrame:
        """All rows at once."""
        return pl.concat([chunk.frame for chunk in self.chunks()])

    def _frame(self, truth: "PlantedTruth", rows: int, chunk: int) -> pl.DataFrame:
        generator = np.random.default_rng([self.config.seed, 1, chunk])
        signal = truth.draw(generator, rows, self.config.num_signal_fields)
        noise = truth.draw(generator, rows, self.config.num_noise_fields)
        chance = 1 / (1 + np.exp(-truth.logits(signal)))
        columns: dict[str, Any] = {"label": (generator.random(rows) < chance).astype(np.uint8)}
        columns |= dict(zip(self.signal_fields, signal.T, strict=True))
        columns |= dict(zip(self.noise_fields, noise.T, strict=True))
        return pl.DataFrame(columns).with_columns(pl.exclude("label").cast(pl.String))


class PlantedTruth:
    """The model behind the labels: a weight and a vector of length `rank` for each value of each signal field."""

    def __init__(self, config: SyntheticConfig) -> None:
        generator = np.random.default_rng([config.seed, 0])
        shape = (config.num_signal_fields, config.field_size)
        self._weights = generator.normal(size=shape)
        self._vectors = generator.normal(size=(*shape, config.rank))
        shares = 1 / np.arange(1, config.field_size + 1) ** config.zipf
        self._edges = np.cumsum(shares / shares.sum())
        self._scale, self._bias = 1.0, 0.0
        logits = self.logits(self.draw(generator, _CALIBRATION_ROWS, config.num_signal_fields))
        self._scale = config.signal / float(logits.std()) if logits.std() > 0 else 1.0
        self._bias = _bias_for(logits * self._scale, config.positive_share)

    def draw(self, generator: np.random.Generator, rows: int, num_fields: int) -> NDArray[np.int64]:
        """Values `[rows, num_fields]`; 0 is the most frequent."""
        return np.minimum(np.searchsorted(self._edges, generator.random((rows, num_fields))), len(self._edges) - 1)

    def logits(self, values: NDArray[np.int64]) -> NDArray[np.float64]:
        fields = np.arange(values.shape[1])
        first_order = self._weights[fields, values].sum(axis=1)
        vectors = self._vectors[fields, values]  # [rows, fields, rank]
        pairs = (vectors.sum(axis=1) ** 2 - (vectors**2).sum(axis=1)).sum(axis=1) / 2
        logits: NDArray[np.float64] = (first_order + pairs) * self._scale + self._bias
        return logits


@register_source("synthetic")
def build_synthetic_source(config: DataConfig) -> SyntheticSource:
    if config.paths:
        raise ConfigError("data.paths is set, but the source 'synthetic' reads no files")
    made = config.synthetic
    names = [f"signal_{at}" for at in range(made.num_signal_fields)]
    names += [f"noise_{at}" for at in range(made.num_noise_fields)]
    plan = EncodingPlan.of(
        config,
        fields=tuple(Field(name=name, min_count=config.min_count or 1) for name in names),
        label=Label(column="label"),
    )
    return SyntheticSource(made, plan)


def _bias_for(logits: NDArray[np.float64], share: float) -> float:
    """The bias that makes the mean probability `share`, by bisection."""
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        if float(np.mean(1 / (1 + np.exp(-(logits + middle))))) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2
