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

    min_count: int | None = None  # values that occur fewer times become unknown; default: `data.min_count`

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
    column: str = ""
    scaling: Scaling = "standard"


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """How rows are split into train, validation and test. In TOML: `[data.split]`."""

    by: SplitKind | None = None
    """`random`: by `data.split_seed`. `time`: train on the earliest rows, test on the latest. `column`: a column that
    contains train, validation and test. `files`: `data.paths` are for training, the others are listed here. Absent, or
    equal to what the other settings imply: what they imply. `kind` is never absent."""
    shares: tuple[float, ...] = (0.8, 0.1, 0.1)
    column: str = ""
    date_format: str = ""  # time: the format of the column if it is not numeric (see the date transform)
    validation_from: str = ""  # time: the start of validation, as in the column; empty: computed from the shares
    test_from: str = ""
    validation_paths: tuple[str, ...] = ()
    test_paths: tuple[str, ...] = ()

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
    num_signal_fields: int = 4
    num_noise_fields: int = 4
    field_size: int = 1_000
    rank: int = 4  # length of the vectors whose products are the interactions
    zipf: float = 1.1  # value k of a field has probability ∝ 1 / k^zipf
    signal: float = 2.0  # standard deviation of the true logit
    positive_share: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.num_rows, self.num_signal_fields, self.field_size, self.rank) < 1 or self.num_noise_fields < 0:
            raise ConfigError("synthetic: rows, signal fields, field size and rank must be at least 1")
        if not 0 < self.positive_share < 1:
            raise ConfigError(f"synthetic: positive_share is {self.positive_share}; it must lie between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which data to read, from a named source or from files, and how to encode it. In TOML: `[data]`."""

    source: str = "files"  # or `movielens-1m`, `criteo`, `avazu`, `synthetic`; or `encoded`, an existing table
    data_dir: str | None = None  # folder of a named source's raw files
    with_ids: bool = False  # movielens-1m: add the user and the movie as fields
    synthetic: SyntheticConfig = SyntheticConfig()

    paths: tuple[str, ...] = ()  # CSV, TSV or Parquet, also gzip or zstd; globs allowed. encoded: its folder
    label: str | None = None  # label column; guessed if not set
    positive: tuple[str, ...] = ()  # label values that mean 1; empty if the label is 0/1
    fields: tuple[FieldConfig, ...] = ()  # the fields, in order; guessed if empty
    dense: tuple[DenseConfig, ...] = ()  # numeric columns passed to the model as numbers
    weight: str | None = None  # column of sample weights
    drop: tuple[str, ...] = ()  # columns that are not used as fields when guessing
    delimiter: str = ""
    columns: tuple[str, ...] = ()  # column names of files without a header line
    quote: str = '"'
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    bad_rows: BadRows = "error"  # an invalid row stops the encoding, or is skipped and counted

    split: SplitConfig = SplitConfig()
    split_seed: int = 0
    vocabulary_from: VocabularyFrom = "train"  # rows the vocabularies are built from; `all` is the paper's protocol
    min_count: int | None = None  # values that occur fewer times become unknown; default: 1, criteo and avazu 10
    vocabulary_like: str | None = None  # encoded table whose fields, vocabularies and scaling are reused
    new_values: NewValues = "unknown"  # with `vocabulary_like`; or `append`, at the end of their field
    memory_mb: int = 1000  # approximate memory for the rows being read, without the vocabularies

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
