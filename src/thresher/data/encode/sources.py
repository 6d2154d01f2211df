"""DataSource: what `encode` reads rows from; the registry of sources, and the fingerprint of their data."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from thresher._internal.registry import Registry
from thresher._internal.settings import validate_config
from thresher.data.config import BadRows, DataConfig, NewValues, SplitConfig, VocabularyFrom
from thresher.data.schema import DenseColumn, Field, FileFormat, Label, check_names
from thresher.errors import ConfigError

if TYPE_CHECKING:
    from thresher.data.read.raw_files import RawChunk

MAX_HASHED_BYTES, _END_BYTES = 256 << 20, 1 << 20
"""Files up to this total size are hashed completely, which takes a fraction of a second; larger ones at both ends."""


@dataclass(frozen=True, kw_only=True)
class EncodingPlan:
    """What `encode` needs besides the rows: fields (of size 1 so far), label, and the rules of split and vocabulary."""

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

    def __post_init__(self) -> None:
        check_names(self.fields)
        inputs = dict.fromkeys((field.column for field in self.fields), "a field")
        inputs |= dict.fromkeys((dense.column for dense in self.dense), "a dense column")
        if self.weight == self.label.column:
            raise ConfigError(f"column {self.weight!r} is both the label and the sample weight; choose two columns")
        if self.label.column in inputs:
            problem = f"column {self.label.column!r} is both the label and {inputs[self.label.column]}"
            raise ConfigError(f"{problem}. Remove it from the inputs: the model would learn to copy it")

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
        """A plan with the columns of a source and the rules of the settings."""
        return cls(
            fields=fields,
            label=label,
            dense=dense,
            weight=weight,
            file_format=file_format or FileFormat(),
            split=config.split,
            split_seed=config.split_seed,
            vocabulary_from=config.vocabulary_from,
            bad_rows=config.bad_rows,
            vocabulary_like=config.vocabulary_like,
            new_values=config.new_values,
        )


class DataSource(Protocol):
    """Raw rows in chunks, and the plan to encode them."""

    @property
    def plan(self) -> EncodingPlan: ...

    @property
    def num_bytes(self) -> int | None:
        """Size of the raw data, for the progress display; None if unknown."""

    def inputs(self) -> Mapping[str, Any]:
        """What identifies the data, for the fingerprint: files (name, size, hash) or generator settings."""

    def chunks(self) -> Iterator["RawChunk"]:
        """The rows, always in the same order."""


SourceBuilder = Callable[[DataConfig], DataSource]
_registry: Registry[SourceBuilder] = Registry(
    "data source", ("thresher.data.datasets", "thresher.data.encode.user_files", "thresher.data.encode.ids_source")
)


def register_source(name: str) -> Callable[[SourceBuilder], SourceBuilder]:
    """Make a data source available by name: `@register_source("mine")` on `build(config) -> DataSource`."""

    def register(builder: SourceBuilder) -> SourceBuilder:
        _registry.add(name, builder)
        return builder

    return register


def source_names() -> tuple[str, ...]:
    """The possible values of `DataConfig.source`."""
    return tuple(_registry.entries())


def build_source(config: DataConfig) -> DataSource:
    """The source of a config. Reads the header and a sample of the rows of files, not all rows."""
    config = validate_config(config)
    return _registry.find(config.source)(config)


def describe_files(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Name, size and hash of each file; of large files, which are hashed at both ends only, also the time."""
    hash_all = sum(path.stat().st_size for path in paths) <= MAX_HASHED_BYTES
    found: list[dict[str, Any]] = []
    for path in paths:
        status = path.stat()
        found.append({"name": path.name, "bytes": status.st_size})
        with path.open("rb") as stream:
            if hash_all or status.st_size <= 2 * _END_BYTES:
                digest = hashlib.file_digest(stream, "sha256")
            else:
                found[-1]["changed_ns"] = status.st_mtime_ns
                digest = hashlib.sha256(stream.read(_END_BYTES))
                stream.seek(status.st_size - _END_BYTES)
                digest.update(stream.read(_END_BYTES))
        found[-1]["sha256"] = digest.hexdigest()
    return found


def fingerprint(inputs: Mapping[str, Any]) -> str:
    """A hash of everything an encoding depends on."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]


def differences(before: Any, now: Any, where: str = "") -> list[str]:
    """The differences of two nested mappings, as text: `plan.split_seed was 0, is 1`."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        keys = sorted(set(before) | set(now))
        return [d for key in keys for d in differences(before.get(key), now.get(key), f"{where}.{key}".lstrip("."))]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = enumerate(zip(before, now, strict=True))
        return [d for at, pair in pairs for d in differences(*pair, f"{where}[{at}]")]
    return [] if before == now else [f"{where} was {_short(before)}, is {_short(now)}"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
