"""A user's files as a data source: CSV, TSV or Parquet (`FilesSource`), or an encoded table (`EncodedSource`)."""

import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from thresher._internal.storage.files import atomic_folder
from thresher.data.config import DataConfig
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.sources import EncodingPlan, describe_files, register_source
from thresher.data.read.column_values import LabelValue, check_positive, count_labels, unknown_column
from thresher.data.read.guess_columns import Guess, guess_columns
from thresher.data.read.raw_files import BLOCK_BYTES, RawChunk, expand_paths, is_parquet, read_chunks, resolve_format
from thresher.data.read.sample_rows import Sample, sample_rows
from thresher.data.read.text_rows import delimiter_hint, likely_delimiter
from thresher.data.schema import DenseColumn, Field, FileFormat, Label, Schema, SplitName
from thresher.data.table import EncodedTable, read_metadata
from thresher.errors import ConfigError, DataError, FileFormatError, TableExistsError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FilesSource:
    """Rows of one or more files with the same columns."""

    paths: tuple[Path, ...]
    plan: EncodingPlan
    splits: tuple[SplitName | None, ...]  # of each file; None if the rows of the file are split
    file_format: FileFormat  # as in the settings; what is not set there is detected in each file
    block_bytes: int = BLOCK_BYTES
    guess: Guess | None = None
    labels: tuple[LabelValue, ...] = ()  # the label values in the sample; empty if they were not needed
    sample: Sample | None = None  # of the training rows; None if it was not needed to guess columns

    def read_sample(self) -> Sample:
        """Rows spread over all files, read at the first use."""
        return self.sample or sample_rows(self.paths, self.file_format, bad_rows=self.plan.bad_rows)

    @property
    def num_bytes(self) -> int | None:
        return sum(path.stat().st_size for path in self.paths)

    def inputs(self) -> Mapping[str, Any]:
        return {"files": describe_files(self.paths)}

    def chunks(self) -> Iterator[RawChunk]:
        plan, bytes_before, header = self.plan, 0, not self.file_format.columns
        needed = [*(field.column for field in plan.fields), *(dense.column for dense in plan.dense), plan.label.column]
        for path, split in zip(self.paths, self.splits, strict=True):
            resolved = resolve_format(path, self.file_format)  # the columns may be in another order than in other files
            _check_columns([*needed, plan.weight, plan.split.column], resolved.columns, path)
            for chunk in read_chunks(
                path, resolved, header=header, block_bytes=self.block_bytes, bad_rows=plan.bad_rows
            ):
                done = None if chunk.bytes_done is None else bytes_before + chunk.bytes_done
                yield replace(chunk, split=split, bytes_done=done)
            bytes_before += path.stat().st_size


@register_source("files")
def build_files_source(config: DataConfig) -> FilesSource:
    """Reads a sample of the rows if the label or the fields must be guessed."""
    paths, splits = _split_paths(config)
    _warn_about_repeated(paths)
    if config.label is not None and config.label in config.drop:
        raise ConfigError(f"data.drop names the label column {config.label!r}. Remove it there, or set another label.")
    file_format = resolve_format(paths[0], config.file_format)
    named = [config.label, *(field.column or field.name for field in config.fields), *config.drop]
    named += [*(dense.column or dense.name for dense in config.dense), config.weight, config.split.column]
    _check_columns(named, file_format.columns, paths[0])
    known = None if config.vocabulary_like is None or config.fields else RowEncoder.load(config.vocabulary_like).schema
    must_guess = known is None and (not config.fields or config.label is None)
    sample = guess = None
    if must_guess or (config.positive if known is None else known.label.positive):
        training = paths[: len(paths) if splits[0] is None else splits.count("train")]
        sample = sample_rows(training, config.file_format, first_format=file_format, bad_rows=config.bad_rows)
        guess = guess_columns(sample, config) if must_guess else None
    plan = build_plan(
        config, known, guess, replace(config.file_format, columns=()) if is_parquet(paths[0]) else file_format
    )
    labels = () if guess is None else guess.labels
    if guess is None and sample is not None and plan.label.column in sample.frame.columns:
        labels = count_labels(sample.frame[plan.label.column], plan.label.positive)
    check_positive(labels, plan.label.positive, file=paths[0], column=plan.label.column)
    return FilesSource(paths, plan, splits, config.file_format, config.block_bytes, guess, labels, sample)


def _warn_about_repeated(paths: Sequence[Path]) -> None:
    """Warn if two paths are one file: copies of its rows would be in both the training and the test split."""
    seen: dict[Path, Path] = {}
    for path in paths:
        if (first := seen.setdefault(path.resolve(), path)) is not path:
            both = f"{path} is given twice" if first == path else f"{first} and {path} are one file"
            logger.warning(
                f"{both}: its rows count twice, and test rows may also be training rows, so metrics are too good. Name "
                "each file once."
            )


def _check_columns(names: Sequence[str | None], columns: Sequence[str], path: Path) -> None:
    """Raise if a named column does not exist; empty names are skipped."""
    for name in filter(None, names):
        if name not in columns:
            message, char = unknown_column(name, columns), likely_delimiter(columns)
            if char:
                message += delimiter_hint(char)
                raise FileFormatError(message, file=path, settings={"data.delimiter": char})
            raise DataError(message, file=path)


def build_plan(config: DataConfig, known: Schema | None, guess: Guess | None, file_format: FileFormat) -> EncodingPlan:
    """Fields, label, dense and weight columns: from an earlier table, guessed, or from the settings."""
    if known is not None:
        return EncodingPlan.of(
            config,
            fields=known.fields,
            label=known.label,
            dense=known.dense,
            weight=known.weight,
            file_format=file_format,
        )
    fields, label = (config.fields, config.label) if guess is None else (guess.fields, guess.label)
    assert label is not None, "without a label, columns are guessed"
    return EncodingPlan.of(
        config,
        fields=_order_fields([field.to_field(config.min_count or 1) for field in fields]),
        label=Label(column=label, positive=config.positive),
        dense=tuple(DenseColumn(**vars(dense)) for dense in config.dense),
        weight=config.weight,
        file_format=file_format,
    )


def _order_fields(fields: Sequence[Field]) -> tuple[Field, ...]:
    """Single-valued fields before multi-valued ones. Raises if a shared vocabulary does not exist."""
    owners = {field.name for field in fields if field.vocabulary in ("", field.name)}
    for field in fields:
        if field.vocabulary and field.vocabulary not in owners:
            raise ConfigError(f"field {field.name!r}: {field.vocabulary!r} has no vocabulary of its own to share")
        if field.vocabulary and field.transform == "quantiles":
            raise ConfigError(f"field {field.name!r}: a field with quantiles cannot share a vocabulary")
    return tuple(sorted(fields, key=lambda field: field.pooling is not None))


def _split_paths(config: DataConfig) -> tuple[tuple[Path, ...], tuple[SplitName | None, ...]]:
    paths = expand_paths(config.paths)
    if config.split.kind != "files":
        return paths, (None,) * len(paths)
    validation, test = expand_paths(config.split.validation_paths), expand_paths(config.split.test_paths)
    splits = [*(["train"] * len(paths)), *(["validation"] * len(validation)), *(["test"] * len(test))]
    return paths + validation + test, cast(tuple[SplitName, ...], tuple(splits))


@dataclass(frozen=True)
class EncodedSource:
    """A table that was encoded before; `encode` links its files instead of reading raw rows."""

    table: EncodedTable

    @property
    def plan(self) -> EncodingPlan:
        schema = self.table.schema
        return EncodingPlan(fields=schema.fields, label=schema.label, dense=schema.dense, weight=schema.weight)

    num_bytes = None

    def inputs(self) -> Mapping[str, Any]:
        return {"encoded": self.table.fingerprint}

    def chunks(self) -> Iterator[RawChunk]:
        raise DataError("is already encoded; it has no raw rows to show", file=self.table.folder)

    def copy_to(self, folder: Path, *, overwrite: bool = False) -> EncodedTable:
        """The same table in another folder; files are hard-linked if the file system supports it."""
        metadata = read_metadata(folder)
        if metadata is not None and metadata["fingerprint"] == self.table.fingerprint:
            return EncodedTable.open(folder)
        if metadata is not None and not overwrite:
            problem = f"contains another table than {self.table.folder}. Choose another folder, or overwrite it."
            raise TableExistsError(problem, file=folder)
        with atomic_folder(folder) as beside:
            shutil.copytree(self.table.folder, beside, copy_function=_link_or_copy, dirs_exist_ok=True)
        return EncodedTable.open(folder)


@register_source("encoded")
def build_encoded_source(config: DataConfig) -> EncodedSource:
    if len(config.paths) != 1:
        raise ConfigError("the source 'encoded' needs one folder in data.paths: an encoded table")
    for setting in fields(DataConfig):
        used = setting.name in ("source", "paths", "memory_mb", "synthetic")
        if not used and getattr(config, setting.name) != setting.default:
            problem = f"data.{setting.name} has no effect: {config.paths[0]} is already encoded"
            raise ConfigError(f"{problem}. Remove the setting, or encode the raw files again")
    return EncodedSource(EncodedTable.open(config.paths[0]))


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or hard links are not supported
        shutil.copy2(source, target)
