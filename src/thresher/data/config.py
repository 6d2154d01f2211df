"""The settings of `[data]`: which data to read and how to encode it."""

from dataclasses import dataclass, fields
from typing import Literal

from thresher.data.schema import Field, FieldSettings, FileFormat, Scaling
from thresher.errors import ConfigError, SettingsConflictError

VocabularyFrom = Literal["train", "all"]
NewValues = Literal["unknown", "append"]
BadRows = Literal["error", "skip"]
SplitKind = Literal["random", "time", "column", "files"]

_SPLIT_SETTINGS: dict[SplitKind, set[str]] = {
    "random": {"shares"},
    "time": {"shares", "column", "date_format", "validation_from", "test_from"},
    "column": {"column"},
    "files": {"validation_paths", "test_paths"},
}
"""The settings that each kind of split uses."""
_TRANSFORM_SETTINGS = {
    "shift": ("log2",), "num_buckets": ("quantiles", "hash"), "date_part": ("date",), "date_format": ("date",),
}  # fmt: skip
"""The transforms that use a setting of a field."""


@dataclass(frozen=True, kw_only=True)
class FieldConfig(FieldSettings):
    """A field of the user's files. In TOML: `[[data.fields]]`."""

    min_count: int | None = None
    """Values that occur fewer times in training become unknown. Absent: `data.min_count`."""

    def __post_init__(self) -> None:
        where = f"field {self.name!r}"
        if not self.name:
            raise ConfigError("a field needs a name")
        if self.min_count is not None and self.min_count < 1:
            raise ConfigError(f"{where}: min_count is {self.min_count}; it must be at least 1")
        for item in fields(self):
            transforms = _TRANSFORM_SETTINGS.get(item.name, (self.transform,))
            if self.transform not in transforms and getattr(self, item.name) != item.default:
                wanted = " or ".join(f'"{transform}"' for transform in transforms)
                problem = f"{where}: {item.name} has no effect with the transform {self.transform!r}"
                raise SettingsConflictError(f"{problem}. Remove it, or set transform = {wanted}.")
        if self.transform == "hash" and self.num_buckets < 1:
            raise ConfigError(f"{where}: the hash transform needs num_buckets")
        if self.transform == "quantiles" and self.num_buckets < 0:
            raise ConfigError(f"{where}: num_buckets is {self.num_buckets}; it must not be negative")
        if self.separator and self.pooling is None:
            raise ConfigError(f"{where}: a field with a separator is multi-valued; set pooling to 'mean' or 'sum'")
        if self.pooling is not None and self.transform == "quantiles":
            raise ConfigError(f"{where}: quantiles are not supported for multi-valued fields; use log2 or hash")

    def to_field(self, min_count: int) -> Field:
        """The field of the schema, before its size is known."""
        num_buckets = self.num_buckets or (64 if self.transform == "quantiles" else 0)
        return Field(**vars(self) | {"num_buckets": num_buckets, "min_count": self.min_count or min_count})


@dataclass(frozen=True, kw_only=True)
class DenseConfig:
    """A numeric column passed to the model as a number. In TOML: `[[data.dense]]`."""

    name: str
    """Name of the input."""
    column: str = ""
    """The raw column. Empty: the name."""
    scaling: Scaling = "standard"
    """`standard`: mean 0 and standard deviation 1 over the training rows. `log`: sign(x)·ln(1 + |x|) first, for numbers
    that span orders of magnitude. `none`: as they are."""


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """How rows are split into train, validation and test. In TOML: `[data.split]`."""

    by: SplitKind | None = None
    """`random`: by `data.split_seed`. `time`: train on the earliest rows, test on the latest, as in production.
    `column`: a column that contains train, validation and test. `files`: `data.paths` are for training, the others are
    listed here. Absent: as the other settings of the split imply, such as `column`; without any, `random`."""
    shares: tuple[float, ...] = (0.8, 0.1, 0.1)
    """Shares of the rows for train, validation and test. More validation rows make decisions less noisy."""
    column: str = ""
    """The column that decides the split: times, or the words train, validation and test."""
    date_format: str = ""
    """Of a split by time: the format of the column if it is neither a number nor ISO 8601, such as `%d.%m.%Y` (see the
    date transform)."""
    validation_from: str = ""
    """Of a split by time: the start of validation, written as in the column. Empty: computed from `shares`."""
    test_from: str = ""
    """Of a split by time: the start of test, written as in the column. Empty: computed from `shares`."""
    validation_paths: tuple[str, ...] = ()
    """Of a split by files: the files of the validation rows; globs allowed."""
    test_paths: tuple[str, ...] = ()
    """Of a split by files: the files of the test rows; globs allowed."""

    def __post_init__(self) -> None:
        if len(self.shares) != 3 or min(self.shares) < 0 or abs(sum(self.shares) - 1) > 1e-9:
            raise ConfigError(f"split.shares is {self.shares}; expected three shares that add up to 1")
        if self.by == self._implied_kind():  # equal splits are equal settings
            object.__setattr__(self, "by", None)
        for name in self._changed():
            if name not in _SPLIT_SETTINGS[self.kind]:
                *others, last = [f'"{kind}"' for kind, used in _SPLIT_SETTINGS.items() if name in used]
                kinds = f"{', '.join(others)} or {last}" if others else last
                raise SettingsConflictError(
                    f"data.split.{name} has no effect in a split by {self.kind}. Remove it, or set data.split.by to "
                    f"{kinds}."
                )
        if self.kind in ("time", "column") and not self.column:
            raise ConfigError(f"a split by {self.kind} needs split.column")
        if self.kind == "files" and not (self.validation_paths and self.test_paths):
            raise ConfigError("a split by files needs split.validation_paths and split.test_paths")
        if bool(self.validation_from) != bool(self.test_from):
            raise ConfigError("set both split.validation_from and split.test_from, or neither")
        if self.validation_from and "shares" in self._changed():
            raise SettingsConflictError(
                "data.split.shares has no effect beside data.split.validation_from and test_from. Remove one of them."
            )

    def _changed(self) -> set[str]:
        """The settings that differ from their default, without `by`."""
        return {item.name for item in fields(self) if item.name != "by" and getattr(self, item.name) != item.default}

    @property
    def kind(self) -> SplitKind:
        return self.by or self._implied_kind()

    def _implied_kind(self) -> SplitKind:
        """Files if there are paths, time if there are dates, else a column if it is named, else random."""
        changed = self._changed()
        if changed & _SPLIT_SETTINGS["files"]:
            return "files"
        if changed & {"date_format", "validation_from", "test_from"}:
            return "time"
        return "column" if self.column else "random"


@dataclass(frozen=True, kw_only=True)
class SyntheticConfig:
    """Generated rows: signal fields determine the label, noise fields do not. In TOML: `[data.synthetic]`."""

    num_rows: int = 100_000
    """Number of rows."""
    num_signal_fields: int = 4
    """Fields that determine the label."""
    num_noise_fields: int = 4
    """Fields without influence on the label."""
    field_size: int = 1_000
    """Distinct values of each field."""
    rank: int = 4
    """Length of the true vectors whose products are the interactions."""
    zipf: float = 1.1
    """Value k of a field has probability ∝ 1 / k^zipf; larger means more rare values."""
    signal: float = 2.0
    """Standard deviation of the true logit; larger means that the label is easier to predict."""
    positive_share: float = 0.3
    """Share of rows with label 1."""
    seed: int = 0
    """Seed of the rows."""

    def __post_init__(self) -> None:
        if min(self.num_rows, self.num_signal_fields, self.field_size, self.rank) < 1 or self.num_noise_fields < 0:
            raise ConfigError("synthetic: rows, signal fields, field size and rank must be at least 1")
        if not 0 < self.positive_share < 1:
            raise ConfigError(f"synthetic: positive_share is {self.positive_share}; it must lie between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which data to read, from a named source or from files, and how to encode it. In TOML: `[data]`."""

    source: str = "files"
    """`files` for your own files; `movielens-1m`, `criteo`, `avazu`, `synthetic`; `encoded` for an encoded table;
    `ids` for Parquet files of ids; or a registered source."""
    data_dir: str | None = None
    """Folder of a named source's raw files."""
    with_ids: bool = False
    """Of movielens-1m: add the user and the movie as fields. They make the table much larger."""
    synthetic: SyntheticConfig = SyntheticConfig()
    """Settings of the source `synthetic`."""

    paths: tuple[str, ...] = ()
    """Your files: CSV, TSV or Parquet, also gzip or zstd; globs allowed. Of the source `encoded`: its folder."""
    schema: str | None = None
    """Of the source `ids`: a TOML file with the fields and their sizes (docs/data_sources.md)."""
    label: str | None = None
    """Label column. Absent: guessed."""
    positive: tuple[str, ...] = ()
    """Label values that mean 1. Empty: the label is 0/1."""
    fields: tuple[FieldConfig, ...] = ()
    """The fields, in order. Empty: guessed; set them to choose columns and transforms yourself."""
    dense: tuple[DenseConfig, ...] = ()
    """Numeric columns passed to the model as numbers."""
    weight: str | None = None
    """Column of sample weights. Absent: all rows count the same."""
    drop: tuple[str, ...] = ()
    """Columns that are not used as fields when guessing, such as ones that are known only after the click."""
    delimiter: str = ""
    """Delimiter of text files, such as `";"`. Empty: by the file extension, else by the first line."""
    columns: tuple[str, ...] = ()
    """Column names of files without a header line."""
    quote: str = '"'
    """Quote character of text files. Empty: quotes are ordinary characters."""
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    """Encoding of text files."""
    bad_rows: BadRows = "error"
    """`error`: an invalid row stops the encoding. `skip`: it is left out, counted and shown."""

    split: SplitConfig = SplitConfig()
    """How rows are split into train, validation and test."""
    split_seed: int = 0
    """Seed of a random split. Keep it the same to compare runs."""
    vocabulary_from: VocabularyFrom = "train"
    """Rows from which the vocabularies are built: `train`, or `all` as in the paper, which lets test rows influence the
    model."""
    min_count: int | None = None
    """Values that occur fewer times in training become unknown. Absent: 1, criteo and avazu 10. 2 or more makes the
    table smaller and trains the unknown feature."""
    vocabulary_like: str | None = None
    """Folder of an encoded table whose fields, vocabularies and scaling are reused, so that its models fit."""
    new_values: NewValues = "unknown"
    """With `vocabulary_like`: values that its vocabularies lack become `unknown`, or are appended at the end of their
    field (`append`)."""
    memory_mb: int = 1000
    """Approximate memory for reading, in MB, without the vocabularies."""

    def __post_init__(self) -> None:
        if self.min_count is not None and self.min_count < 1:
            raise ConfigError(f"data.min_count is {self.min_count}; it must be at least 1")
        if self.memory_mb < 100:
            raise ConfigError(f"data.memory_mb is {self.memory_mb}; it must be at least 100")
        for name, char, hint in (
            ("delimiter", self.delimiter, f"replace it in the file first: sed 's/{self.delimiter}/\\t/g'"),
            ("quote", self.quote, "empty for none"),
        ):
            if len(char.encode()) > 1:
                raise ConfigError(f"data.{name} is {char!r}; it must be one ASCII character ({hint})")
        if twice := [name for name in self.columns if self.columns.count(name) > 1]:
            raise ConfigError(f"data.columns: two columns are called {twice[0]!r}; rename one")
        if self.source == "files" and self.data_dir is not None:
            raise ConfigError("data.data_dir is for named sources; list your files in data.paths")
        for name in ("fields", "label", "dense", "weight", "drop", "columns"):
            if self.source != "files" and getattr(self, name):
                raise ConfigError(f"data.{name} is for files, not for the source {self.source!r}")
        if self.schema is not None and self.source != "ids":
            raise ConfigError(f"data.schema is for the source 'ids', not for {self.source!r}. Remove it")
        if self.new_values == "append" and self.vocabulary_like is None:
            raise SettingsConflictError('data.new_values = "append" needs data.vocabulary_like: the table to extend.')
        if self.split.kind == "files" and self.source != "files":
            raise ConfigError(f"a split by files is for files, not for the source {self.source!r}")
        if self.split_seed and self.split.kind != "random":
            problem = f"data.split_seed has no effect in a split by {self.split.kind}"
            raise SettingsConflictError(f"{problem}. Remove it, or remove the settings of data.split.")

    @property
    def file_format(self) -> FileFormat:
        return FileFormat(delimiter=self.delimiter, columns=self.columns, quote=self.quote, encoding=self.encoding)

    @property
    def block_bytes(self) -> int:
        """Raw text to read at a time; parsed and encoded it takes about forty times as much memory at the peak."""
        return max(1 << 20, min(1 << 26, self.memory_mb * 1_000_000 // 48))
