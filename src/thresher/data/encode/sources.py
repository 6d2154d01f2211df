"""Where rows come from: the contract of a data source, and the registry of named ones."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from thresher._internal.registry import Registry
from thresher._internal.settings import validate_config
from thresher.data.config import DataConfig, NewValues, SplitConfig, VocabularyFrom
from thresher.data.read.raw_files import BadRows, RawChunk
from thresher.data.schema import DenseColumn, Field, FileFormat, Label, check_names
from thresher.errors import ConfigError


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
_MODULES = (
    *(f"thresher.data.datasets.{name}" for name in ("avazu", "criteo", "movielens", "synthetic")),
    "thresher.data.encode.encoded_source",
    "thresher.data.encode.own_files",
)
_registry: Registry[SourceBuilder] = Registry("data source", _MODULES)


def register_source(name: str) -> Callable[[SourceBuilder], SourceBuilder]:
    """Make a data source available by name: `@register_source("mine")` on `build(config) -> DataSource`."""

    def register(builder: SourceBuilder) -> SourceBuilder:
        _registry.add(name, builder)
        return builder

    return register


def source_names() -> tuple[str, ...]:
    """All sources `DataConfig.source` may name."""
    return tuple(_registry.entries())


def build_source(config: DataConfig) -> DataSource:
    """The source a config describes. Reads headers and heads of files, not the rows."""
    config = validate_config(config)
    return _registry.find(config.source)(config)
