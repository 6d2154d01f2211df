"""One's own files as a data source: CSV, TSV or Parquet, with the fields that were named or guessed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from thresher.data.batches.split import SplitName
from thresher.data.config import DataConfig
from thresher.data.encode.fingerprint import files_facts
from thresher.data.encode.row_encoder import RowEncoder, unknown_column
from thresher.data.encode.sources import EncodingPlan, register_source
from thresher.data.read.delimiters import delimiter_advice
from thresher.data.read.guess import Guess, first_rows, guess_fields
from thresher.data.read.labels import LabelValue, check_positive, count_labels
from thresher.data.read.raw_blocks import BLOCK_BYTES, packing_of
from thresher.data.read.raw_files import RawChunk, expand_paths, is_parquet, read_chunks, resolve_format
from thresher.data.schema import DenseColumn, Field, FileFormat, Label
from thresher.errors import ConfigError, DataError, FileFormatError


@dataclass(frozen=True)
class FilesSource:
    """Rows of one or several files with the same columns."""

    paths: tuple[Path, ...]
    plan: EncodingPlan
    splits: tuple[SplitName | None, ...]
    """The split each file decides, or None."""
    told: FileFormat
    """The format as it was said; what was not said is found in each file."""
    block_bytes: int = BLOCK_BYTES
    guess: Guess | None = None
    """What was guessed, when something was."""
    labels: tuple[LabelValue, ...] = ()
    """What the label column holds in the first rows, where that was looked at."""

    @property
    def num_bytes(self) -> int | None:
        return sum(path.stat().st_size for path in self.paths)

    def inputs(self) -> Mapping[str, Any]:
        return {"files": files_facts(self.paths)}

    def chunks(self, position: Mapping[str, int] | None = None) -> Iterator[RawChunk]:
        inside = dict(position or {"file": 0})
        first = inside.pop("file")
        for at, path in enumerate(self.paths[first:], first):
            file_format = self._format(path)
            plain = not is_parquet(path) and not packing_of(path)
            before = sum(earlier.stat().st_size for earlier in self.paths[:at])
            for chunk in read_chunks(
                path,
                file_format,
                header=not self.told.columns,
                block_bytes=self.block_bytes,
                bad_rows=self.plan.bad_rows,
                position=inside or None,
            ):
                assert chunk.position is not None
                read = chunk.position["offset"] if plain else None
                yield replace(
                    chunk,
                    position={"file": at, **chunk.position},
                    split=self.splits[at],
                    bytes_done=None if read is None else before + read,
                )
            inside = {}

    def _format(self, path: Path) -> FileFormat:
        """How this file is to be read; its columns may stand in another order than the first file's."""
        plan, resolved = self.plan, resolve_format(path, self.told)
        needed = [*(field.column for field in plan.fields), *(dense.column for dense in plan.dense), plan.label.column]
        for name in [*needed, *filter(None, [plan.weight, plan.split.column])]:
            if name not in resolved.columns:
                raise _unknown_column(name, resolved.columns, path)
        return resolved


@register_source("files")
def build_files_source(config: DataConfig) -> FilesSource:
    """Settings → source. Reads the first rows when fields or label are to be guessed."""
    paths, splits = _split_paths(config)
    file_format = resolve_format(paths[0], config.file_format)
    columns = file_format.columns
    said = [config.label, *(field.column or field.name for field in config.fields), *config.drop]
    said += [*(dense.column or dense.name for dense in config.dense), config.weight, config.split.column]
    for name in filter(None, said):
        if name not in columns:
            raise _unknown_column(name, columns, paths[0])
    plan, guess = _plan(config, paths[0], file_format)
    labels, label = () if guess is None else guess.labels, plan.label
    if guess is None and label.positive and label.column in columns:
        labels = count_labels(first_rows(paths[0], file_format, config)[label.column], label.positive)
    check_positive(labels, label.positive, file=paths[0], column=label.column)
    return FilesSource(paths, plan, splits, config.file_format, config.block_bytes, guess, labels)


def _unknown_column(name: str, columns: Sequence[str], path: Path) -> DataError:
    message, advice = unknown_column(name, columns), delimiter_advice(columns)
    return FileFormatError(message + advice, file=path) if advice else DataError(message, file=path)


def _plan(config: DataConfig, path: Path, file_format: FileFormat) -> tuple[EncodingPlan, Guess | None]:
    """Fields, label, dense and weight columns: as an earlier table has them, as said, or guessed."""
    stored = replace(config.file_format, columns=()) if is_parquet(path) else file_format
    if config.vocabulary_like is not None and not config.fields:
        schema = RowEncoder.load(config.vocabulary_like).schema
        return EncodingPlan.of(
            config,
            fields=schema.fields,
            label=schema.label,
            dense=schema.dense,
            weight=schema.weight,
            file_format=stored,
        ), None
    fields, label, guess = config.fields, config.label, None
    if not fields or label is None:
        guess = guess_fields(path, file_format, config)
        fields, label = fields or guess.fields, label or guess.label
    return EncodingPlan.of(
        config,
        fields=order_fields([field.to_field(config.min_count or 1) for field in fields]),
        label=Label(column=label, positive=config.positive),
        dense=tuple(DenseColumn(name=d.name, column=d.column, scaling=d.scaling) for d in config.dense),
        weight=config.weight,
        file_format=stored,
    ), guess


def order_fields(fields: Sequence[Field]) -> tuple[Field, ...]:
    """Multi-valued fields last; a shared vocabulary must belong to a field that has its own."""
    owners = {field.name for field in fields if field.vocabulary in ("", field.name)}
    for field in fields:
        if field.vocabulary and field.vocabulary not in owners:
            raise ConfigError(f"field {field.name!r} shares the vocabulary of {field.vocabulary!r}, which has none")
        if field.vocabulary and field.transform == "quantiles":
            raise ConfigError(f"field {field.name!r}: quantiles cannot share a vocabulary")
    return tuple(sorted(fields, key=lambda field: field.pooling is not None))


def _split_paths(config: DataConfig) -> tuple[tuple[Path, ...], tuple[SplitName | None, ...]]:
    paths = expand_paths(config.paths)
    splits: list[SplitName | None] = ["train" if config.split.by == "files" else None] * len(paths)
    if config.split.by == "files":
        for name, more in (("validation", config.split.validation_paths), ("test", config.split.test_paths)):
            found = expand_paths(more)
            paths += found
            splits += [name] * len(found)  # type: ignore[list-item]
    return paths, tuple(splits)
