"""The settings of `[data]` in TOML: which data, and how it becomes an `EncodedTable`. Plain data, checked, no work."""

from dataclasses import dataclass
from typing import Literal

from thresher.data.schema import DatePart, Field, FileFormat, Pooling, Scaling, Transform
from thresher.errors import ConfigError, SettingsConflictError

VocabularyFrom = Literal["train", "all"]
NewValues = Literal["unknown", "append"]


@dataclass(frozen=True, kw_only=True)
class FieldConfig:
    """One field of one's own data. In TOML: `[[data.fields]]`."""

    name: str
    column: str = ""
    """The raw column; the field's name when empty. Several fields may come from one column."""
    transform: Transform = "none"
    shift: float = 0.0
    """log2: subtracted from the number first."""
    num_buckets: int = 0
    """quantiles (64 when 0) and hash (must be said): at most how many buckets."""
    date_part: DatePart = "hour"
    date_format: str = ""
    """date: a strptime format, `unix` for seconds since 1970, empty for ISO 8601."""
    separator: str = ""
    """Of a multi-valued field in text, as in `a|b|c`; lists in Parquet need none."""
    pooling: Pooling | None = None
    """Says that the field is multi-valued, and how the vectors of a row's values become one."""
    min_count: int | None = None
    """Values seen fewer times become the field's unknown feature; without it `data.min_count` holds."""
    vocabulary: str = ""
    """Name of another field whose vocabulary this one shares."""

    def __post_init__(self) -> None:
        where = f"field {self.name!r}"
        if not self.name:
            raise ConfigError("a field needs a name")
        if self.min_count is not None and self.min_count < 1:
            raise ConfigError(f"{where}: min_count is {self.min_count}; it must be at least 1")
        if self.transform == "hash" and self.num_buckets < 1:
            raise ConfigError(f"{where}: the hash transform needs num_buckets")
        if self.transform == "quantiles" and self.num_buckets < 0:
            raise ConfigError(f"{where}: num_buckets is {self.num_buckets}; it must not be negative")
        if self.separator and self.pooling is None:
            raise ConfigError(f"{where}: a separator makes it multi-valued; say pooling = 'mean' or 'sum'")
        if self.pooling is not None and self.transform == "quantiles":
            raise ConfigError(f"{where}: quantiles of a multi-valued field are not offered; use log2 or hash")

    def to_field(self, min_count: int) -> Field:
        """The field before its size is known."""
        return Field(
            name=self.name,
            column=self.column,
            transform=self.transform,
            shift=self.shift,
            num_buckets=self.num_buckets or (64 if self.transform == "quantiles" else 0),
            date_part=self.date_part,
            date_format=self.date_format,
            separator=self.separator,
            pooling=self.pooling,
            min_count=self.min_count or min_count,
            vocabulary=self.vocabulary,
        )


@dataclass(frozen=True, kw_only=True)
class DenseConfig:
    """One numeric column passed through to the model. In TOML: `[[data.dense]]`."""

    name: str
    column: str = ""
    scaling: Scaling = "standard"


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """Which rows train, validate and test. In TOML: `[data.split]`."""

    by: Literal["random", "time", "column", "files"] = "random"
    """`random`: by `data.split_seed`. `time`: the earliest train, the latest test. `column`: it says train, validation
    or test. `files`: the test and validation files are named here, `data.paths` train."""
    shares: tuple[float, ...] = (0.8, 0.1, 0.1)
    column: str = ""
    date_format: str = ""
    """time: how to read the column if it holds no plain numbers (see the date transform)."""
    validation_from: str = ""
    """time: the first moment of validation, in the column's own words; found from the shares when empty."""
    test_from: str = ""
    validation_paths: tuple[str, ...] = ()
    test_paths: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.shares) != 3 or min(self.shares) < 0 or abs(sum(self.shares) - 1) > 1e-9:
            raise ConfigError(f"split shares are {self.shares}; three are needed that add up to 1")
        if self.by in ("time", "column") and not self.column:
            raise ConfigError(f"a split by {self.by} needs split.column")
        if self.by == "files" and not (self.validation_paths and self.test_paths):
            raise ConfigError("a split by files needs split.validation_paths and split.test_paths")
        if bool(self.validation_from) != bool(self.test_from):
            raise ConfigError("say both split.validation_from and split.test_from, or neither")


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
    """`files`; a named source: `movielens-1m`, `criteo`, `avazu`, `synthetic`; or `encoded`, a table made before."""
    data_dir: str | None = None
    """Folder of a named source's raw files."""
    with_ids: bool = False
    """movielens-1m: also the user and the movie as fields."""
    synthetic: SyntheticConfig = SyntheticConfig()

    paths: tuple[str, ...] = ()
    """Own files: CSV, TSV or Parquet, also gzip or zstd; globs allowed. Of `encoded`: its folder."""
    label: str | None = None
    """Label column; guessed when absent."""
    positive: tuple[str, ...] = ()
    """Label values that mean 1; empty: the label is 0/1 itself."""
    fields: tuple[FieldConfig, ...] = ()
    """The fields, in order; guessed when empty."""
    dense: tuple[DenseConfig, ...] = ()
    """Numeric columns passed through to the model."""
    weight: str | None = None
    """Column of sample weights."""
    drop: tuple[str, ...] = ()
    """Columns the guess leaves out."""
    delimiter: str = ""
    columns: tuple[str, ...] = ()
    """Column names of files without a header line."""
    quote: str = '"'
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    bad_rows: Literal["error", "skip"] = "error"
    """A row that cannot be read stops the encoding, or is left out and counted."""

    split: SplitConfig = SplitConfig()
    split_seed: int = 0
    vocabulary_from: VocabularyFrom = "train"
    """Rows the vocabularies are made from; `all` is the paper's protocol."""
    min_count: int | None = None
    """Values seen fewer times become unknown; without it the source's own default (1; criteo and avazu 10)."""
    vocabulary_like: str | None = None
    """Folder of an encoded table whose fields, vocabularies and scaling are used again, for files that came later."""
    new_values: NewValues = "unknown"
    """With `vocabulary_like`: values it does not know become unknown, or are appended at the end of their field."""
    memory_mb: int = 1000
    """About how much memory the rows being read may take; the vocabularies come on top."""

    def __post_init__(self) -> None:
        if self.min_count is not None and self.min_count < 1:
            raise ConfigError(f"data.min_count is {self.min_count}; it must be at least 1")
        if self.memory_mb < 100:
            raise ConfigError(f"data.memory_mb is {self.memory_mb}; at least 100 are needed")
        for name, sign, way_out in (
            ("delimiter", self.delimiter, f"replace it in the file first: sed 's/{self.delimiter}/\\t/g'"),
            ("quote", self.quote, "empty is none"),
        ):
            if len(sign.encode()) > 1:
                raise ConfigError(f"data.{name} is {sign!r}; it must be one ASCII character ({way_out})")
        if twice := [name for name in self.columns if self.columns.count(name) > 1]:
            raise ConfigError(f"data.columns: two columns are called {twice[0]!r}; rename one")
        if self.source == "files" and self.data_dir is not None:
            raise ConfigError("data.data_dir belongs to named sources; own files are named in data.paths")
        own = [name for name in ("fields", "label", "dense", "weight", "drop", "columns") if getattr(self, name)]
        if self.source != "files" and own:
            raise ConfigError(f"data.{own[0]} belongs to own files, not to the source {self.source!r}")
        if self.new_values == "append" and self.vocabulary_like is None:
            raise SettingsConflictError(
                'data.new_values = "append" needs data.vocabulary_like: the table whose vocabularies are extended.'
            )
        if self.split.by == "files" and self.source != "files":
            raise ConfigError("a split by files is for own files")

    @property
    def file_format(self) -> FileFormat:
        return FileFormat(delimiter=self.delimiter, columns=self.columns, quote=self.quote, encoding=self.encoding)

    @property
    def block_bytes(self) -> int:
        """Raw text to hold at a time; parsed and coded it takes some forty times as much at the peak."""
        return max(1 << 20, min(1 << 26, self.memory_mb * 1_000_000 // 48))
