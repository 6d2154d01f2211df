"""Where rows come from: the contract of a data source, its settings (`[data]` in TOML), the registry of named ones."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, Protocol

from thresher.data.raw_files import RawChunk
from thresher.data.schema import DenseColumn, FileFormat, Label, Transform
from thresher.errors import ConfigError

VocabularyFrom = Literal["train", "all"]


@dataclass(frozen=True, kw_only=True)
class FieldConfig:
    """One field of one's own data. In TOML: `[[data.fields]]`."""

    name: str
    column: str = ""
    """The raw column; the field's name when empty."""
    transform: Transform = "none"
    shift: float = 0.0
    """Subtracted from a number before its transform."""
    min_count: int | None = None
    """Values seen fewer times become the field's unknown feature; without it `data.min_count` holds."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a field needs a name")
        if self.min_count is not None and self.min_count < 1:
            raise ConfigError(f"field {self.name!r}: min_count is {self.min_count}; it must be at least 1")


@dataclass(frozen=True, kw_only=True)
class SyntheticConfig:
    """Made-up rows with planted truth: signal fields decide the label, noise fields do not."""

    num_rows: int = 100_000
    num_signal_fields: int = 4
    num_noise_fields: int = 4
    field_size: int = 1_000
    rank: int = 4
    """Length of the hidden vectors whose products make the interactions."""
    zipf: float = 1.1
    """Value k of a field is drawn with probability ∝ 1 / k^zipf."""
    signal: float = 2.0
    """Standard deviation of the planted logit."""
    positive_share: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.num_rows, self.num_signal_fields, self.field_size, self.rank) < 1 or self.num_noise_fields < 0:
            raise ConfigError("synthetic: rows, signal fields, field size and rank must be at least 1")
        if not 0 < self.positive_share < 1:
            raise ConfigError(f"synthetic: positive_share is {self.positive_share}; it must lie between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which data, and how it becomes an `EncodedTable`: a named source, or one's own files."""

    source: str = "files"
    """`files`, or a named source: `movielens-1m`, `synthetic`."""
    data_dir: str | None = None
    """Folder of a named source's raw files."""
    with_ids: bool = False
    """movielens-1m: also the user and the movie as fields."""
    synthetic: SyntheticConfig = SyntheticConfig()

    paths: tuple[str, ...] = ()
    """Own files: CSV, TSV or Parquet, also gzip or zstd; globs allowed."""
    label: str | None = None
    """Label column; guessed when absent."""
    positive: tuple[str, ...] = ()
    """Label values that mean 1; empty: the label is 0/1 itself."""
    fields: tuple[FieldConfig, ...] = ()
    """The fields, in order; guessed when empty."""
    drop: tuple[str, ...] = ()
    """Columns the guess leaves out."""
    delimiter: str = ""
    columns: tuple[str, ...] = ()
    """Column names of files without a header line."""
    quote: str = '"'
    encoding: Literal["utf-8", "latin-1"] = "utf-8"

    split_seed: int = 0
    vocabulary_from: VocabularyFrom = "train"
    """Rows the vocabularies are made from; `all` is the paper's protocol."""
    min_count: int | None = None
    """Values seen fewer times become unknown; without it the source's own default (1 for files)."""

    def __post_init__(self) -> None:
        if self.min_count is not None and self.min_count < 1:
            raise ConfigError(f"data.min_count is {self.min_count}; it must be at least 1")
        if self.source == "files" and self.data_dir is not None:
            raise ConfigError("data.data_dir belongs to named sources; own files are named in data.paths")
        if self.source != "files" and (self.paths or self.fields or self.label):
            raise ConfigError(f"data.paths, fields and label belong to own files, not to the source {self.source!r}")

    @property
    def file_format(self) -> FileFormat:
        return FileFormat(delimiter=self.delimiter, columns=self.columns, quote=self.quote, encoding=self.encoding)


@dataclass(frozen=True, kw_only=True)
class FieldPlan:
    """A field before its vocabulary is known."""

    name: str
    column: str
    transform: Transform = "none"
    shift: float = 0.0
    min_count: int = 1


@dataclass(frozen=True, kw_only=True)
class EncodingPlan:
    """All that `encode` must know beside the rows: the schema-to-be, the split and the vocabulary rule."""

    fields: tuple[FieldPlan, ...]
    label: Label
    dense: tuple[DenseColumn, ...] = ()
    weight: str | None = None
    file_format: FileFormat = field(default_factory=FileFormat)
    split_seed: int = 0
    vocabulary_from: VocabularyFrom = "train"


class DataSource(Protocol):
    """Raw rows in chunks, a plan, and what they were made from."""

    @property
    def plan(self) -> EncodingPlan: ...

    @property
    def num_bytes(self) -> int | None:
        """Size of the raw data, for progress; None if unknown."""

    def inputs(self) -> Mapping[str, Any]:
        """Files (name, size, time, content head) or generator settings: the part of the fingerprint that is data."""

    def chunks(self) -> Iterator[RawChunk]:
        """The rows, in order; called once per encoding."""


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
    if config.source not in _builders:
        near = get_close_matches(config.source, _builders, 1)
        raise ConfigError(
            f"unknown data source {config.source!r}"
            + (f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(_builders))}")
        )
    return _builders[config.source](config)


def _load_own() -> None:
    from thresher.data import datasets, own_files

    assert own_files, datasets
