"""Where rows come from: the contract of a data source, and the registry of named ones. Settings: `data_config.py`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Protocol

from thresher.config import checked
from thresher.data.data_config import (
    DataConfig,
    DenseConfig,
    FieldConfig,
    NewValues,
    SplitConfig,
    SyntheticConfig,
    VocabularyFrom,
)
from thresher.data.raw_files import BadRows, RawChunk
from thresher.data.schema import DenseColumn, Field, FileFormat, Label, check_names
from thresher.errors import ConfigError

__all__ = [
    "DataConfig",
    "DataSource",
    "DenseConfig",
    "EncodingPlan",
    "FieldConfig",
    "SplitConfig",
    "SyntheticConfig",
    "build_source",
    "register_source",
    "source_names",
]


@dataclass(frozen=True, kw_only=True)
class EncodingPlan:
    """All that `encode` must know beside the rows: the schema-to-be (fields of size 1), split and vocabulary rule."""

    fields: tuple[Field, ...]
    label: Label
    dense: tuple[DenseColumn, ...] = ()
    weight: str | None = None
    file_format: FileFormat = field(default_factory=FileFormat)
    split: SplitConfig = field(default_factory=SplitConfig)
    split_seed: int = 0
    vocabulary_from: VocabularyFrom = "train"
    bad_rows: BadRows = "error"
    vocabulary_like: str | None = None
    new_values: NewValues = "unknown"
    memory_mb: int = 1000

    def __post_init__(self) -> None:
        check_names(self.fields)
        inputs = dict.fromkeys((field.column for field in self.fields), "a field")
        inputs |= dict.fromkeys((dense.column for dense in self.dense), "a dense column")
        if self.weight == self.label.column:
            raise ConfigError(f"column {self.weight!r} is the label, and the sample weight, too; they say two things")
        if self.label.column in inputs:
            raise ConfigError(
                f"column {self.label.column!r} is the label, and {inputs[self.label.column]}, too: a model that is "
                "given the answer learns nothing else; leave it out there"
            )

    @classmethod
    def of(
        cls,
        config: DataConfig,
        *,
        fields: tuple[Field, ...],
        label: Label,
        dense: tuple[DenseColumn, ...] = (),
        weight: str | None = None,
        file_format: FileFormat | None = None,
    ) -> "EncodingPlan":
        """What a source knows of its rows, with what every plan takes from the settings as it stands."""
        return cls(
            fields=fields,
            label=label,
            dense=dense,
            weight=weight,
            file_format=FileFormat() if file_format is None else file_format,
            split=config.split,
            split_seed=config.split_seed,
            vocabulary_from=config.vocabulary_from,
            bad_rows=config.bad_rows,
            vocabulary_like=config.vocabulary_like,
            new_values=config.new_values,
            memory_mb=config.memory_mb,
        )


class DataSource(Protocol):
    """Raw rows in chunks, a plan, and what they were made from."""

    @property
    def plan(self) -> EncodingPlan: ...

    @property
    def num_bytes(self) -> int | None:
        """Size of the raw data, for progress; None if unknown."""

    def inputs(self) -> Mapping[str, Any]:
        """Files (name, size, content) or generator settings: the part of the fingerprint that is data."""

    def chunks(self, position: Mapping[str, int] | None = None) -> Iterator[RawChunk]:
        """The rows in order, always the same; from the `position` of an earlier chunk on."""


SourceBuilder = Callable[[DataConfig], DataSource]
_builders: dict[str, SourceBuilder] = {}


def register_source(name: str) -> Callable[[SourceBuilder], SourceBuilder]:
    """Make a data source available by name: `@register_source("mine")` on `build(config) -> DataSource`."""

    def register(builder: SourceBuilder) -> SourceBuilder:
        if name in _builders:
            raise ConfigError(f"a data source called {name!r} is registered already")
        _builders[name] = builder
        return builder

    return register


def source_names() -> tuple[str, ...]:
    """All sources `DataConfig.source` may name."""
    _load_own()
    return tuple(sorted(_builders))


def build_source(config: DataConfig) -> DataSource:
    """The source a config describes. Reads headers and heads of files, not the rows."""
    _load_own()
    config = checked(config)
    if config.source not in _builders:
        near = get_close_matches(config.source, _builders, 1)
        raise ConfigError(
            f"unknown data source {config.source!r}"
            + (f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(_builders))}")
        )
    return _builders[config.source](config)


def _load_own() -> None:
    from thresher.data import datasets, encoded_source, own_files  # noqa: F401  (each registers its own)
