"""Field and Schema: the meaning of the columns of an `EncodedTable`.

Feature `i` of field `f` is row `field_offsets[f] + i` of the one table of `N` rows; `i = 0` is the *unknown* feature.
Single-valued fields come before multi-valued ones (bags).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from thresher._internal.settings import config_from_mapping
from thresher._internal.storage.documents import damaged_file, parse_json
from thresher.errors import ConfigError, DataError, FormatError

T = TypeVar("T")

SCHEMA_VERSION = 1

SplitName = Literal["train", "validation", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")

Transform = Literal["none", "log2", "quantiles", "hash", "date"]
TRANSFORMS: tuple[str, ...] = get_args(Transform)
Pooling = Literal["mean", "sum"]
DatePart = Literal["hour", "weekday", "day", "month", "year", "hour_of_week"]
DATE_PARTS: tuple[str, ...] = get_args(DatePart)
Scaling = Literal["standard", "log", "none"]


@dataclass(frozen=True, kw_only=True)
class FieldSettings:
    """A categorical input: its raw column and the transform of its values."""

    name: str
    """Name of the field."""
    column: str = ""
    """The raw column. Empty: the field's name. Several fields may use one column."""
    transform: Transform = "none"
    """How a value becomes a feature: `none` keeps it, `log2` and `quantiles` put numbers into buckets, `hash` limits
    the number of features, `date` takes a part of a date (docs/data.md)."""
    shift: float = 0.0
    """Of `log2`: subtracted from the number before the transform."""
    num_buckets: int = 0
    """Maximum number of buckets. Of `quantiles`: 64 by default; of `hash`: required."""
    date_part: DatePart = "hour"
    """Of `date`: the part of the date that becomes the value."""
    date_format: str = ""
    """Of `date`: a strptime format, `unix` for seconds since 1970, empty for ISO 8601."""
    separator: str = ""
    """Of a multi-valued field in text: what separates its values, as in `a|b|c`. Not for lists in Parquet."""
    pooling: Pooling | None = None
    """Makes the field multi-valued: how the vectors of a row's values are combined. Absent: one value per row."""
    vocabulary: str = ""
    """The field whose vocabulary this one shares; each field still has its own features. Empty: its own."""


@dataclass(frozen=True, kw_only=True)
class Field(FieldSettings):
    """A field of an encoded table."""

    size: int = 1  # number of features, including the unknown one
    edges: tuple[float, ...] = ()  # quantiles: the bounds between buckets, computed from the training split
    min_count: int = 1

    def __post_init__(self) -> None:
        if not self.column:
            object.__setattr__(self, "column", self.name)
        if self.size < 1:
            raise DataError(f"field {self.name!r} has size {self.size}; the minimum is 1, the unknown feature")
        if self.transform not in TRANSFORMS:
            raise DataError(f"field {self.name!r} has the transform {self.transform!r}; use {', '.join(TRANSFORMS)}")

    @property
    def owner(self) -> str:
        """Name of the field that owns the vocabulary."""
        return self.vocabulary or self.name


@dataclass(frozen=True, kw_only=True)
class DenseColumn:
    """A numeric input, passed to the model as `(x - mean) / scale`. A missing number is replaced by the mean."""

    name: str
    column: str = ""
    scaling: Scaling = "standard"  # `log`: sign(x)·ln(1 + |x|) first, then standardised
    mean: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not self.column:
            object.__setattr__(self, "column", self.name)


@dataclass(frozen=True, kw_only=True)
class Label:
    """The column to predict. `positive` lists the raw values that mean 1; empty if the column holds 0 and 1."""

    column: str
    positive: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """How to read a text file; unused for Parquet."""

    delimiter: str = ""  # empty: by the file extension (`.csv` comma, `.tsv` tab), else by the first line
    columns: tuple[str, ...] = ()  # of a file without a header line; empty: the first line is the header
    quote: str = '"'  # empty: quotes are ordinary characters
    encoding: Literal["utf-8", "latin-1"] = "utf-8"


def check_names(fields: Sequence[Field]) -> None:
    """Raise if two fields have the same name."""
    names = [field.name for field in fields]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise DataError(f"two fields are called {repeated[0]!r}; field names must be unique")


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The fields in the order of the id columns, the label, and the optional dense and weight columns."""

    fields: tuple[Field, ...]
    label: Label
    dense: tuple[DenseColumn, ...] = ()
    weight: str | None = None
    file_format: FileFormat = FileFormat()

    def __post_init__(self) -> None:
        check_names(self.fields)
        if not self.fields:
            raise DataError("a schema needs at least one field")
        pooled = [field.pooling is not None for field in self.fields]
        if pooled != sorted(pooled):
            raise DataError("multi-valued fields must come after the single-valued ones")

    @property
    def num_fields(self) -> int:
        return len(self.fields)

    @property
    def num_dense(self) -> int:
        return len(self.dense)

    @cached_property
    def single_fields(self) -> tuple[Field, ...]:
        """The single-valued fields: the columns of the ids `[rows, F]`."""
        return tuple(field for field in self.fields if field.pooling is None)

    @cached_property
    def bag_fields(self) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if field.pooling is not None)

    @property
    def field_names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @cached_property
    def input_columns(self) -> tuple[str, ...]:
        """The raw columns that a prediction reads: those of the fields and the dense inputs, without the label."""
        columns = [*(field.column for field in self.fields), *(dense.column for dense in self.dense)]
        return tuple(dict.fromkeys(columns))

    @cached_property
    def field_sizes(self) -> tuple[int, ...]:
        return tuple(field.size for field in self.fields)

    @cached_property
    def field_offsets(self) -> tuple[int, ...]:
        return tuple(accumulate(self.field_sizes, initial=0))[:-1]

    @property
    def num_features(self) -> int:
        return sum(self.field_sizes)

    def to_json(self, indent: int | None = 2) -> str:
        return json.dumps({"version": SCHEMA_VERSION, **asdict(self)}, indent=indent, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, path: str | Path = "schema.json") -> "Schema":
        """From the content of a file; `path` is for error messages."""
        mapping = parse_json(text.encode() if isinstance(text, str) else text, path)
        with damaged_file(str(path), "Encode the data again."):
            if (version := mapping["version"]) != SCHEMA_VERSION:
                raise FormatError(f"schema.json has version {version}, not {SCHEMA_VERSION}; encode the data again")
            return cls(
                fields=tuple(_from(Field, entry) for entry in mapping["fields"]),
                label=_from(Label, mapping["label"]),
                dense=tuple(_from(DenseColumn, entry) for entry in mapping["dense"]),
                weight=mapping["weight"],
                file_format=_from(FileFormat, mapping["file_format"]),
            )


def _from(cls: type[T], entry: Mapping[str, Any]) -> T:
    """An instance from its JSON, with the types of its fields checked."""
    try:
        return config_from_mapping(cls, {key: value for key, value in entry.items() if value is not None})
    except ConfigError as error:
        raise ValueError(f"{cls.__name__}: {error}") from None
