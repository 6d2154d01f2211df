"""IdsSource: Parquet files of ids that were encoded elsewhere, used as they are.

A TOML file describes the columns: `[[fields]]` with their sizes, the label, and optionally dense columns, a weight and
vocabularies. Ids of a field are 0 … size − 1, and 0 is the unknown feature.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher._internal.settings import load_toml
from thresher.data.config import DataConfig
from thresher.data.encode.parts import join_parts
from thresher.data.encode.row_encoder import RowEncoder, Vocabulary
from thresher.data.encode.sources import EncodingPlan, describe_files, register_source
from thresher.data.encode.split_rows import build_splitter
from thresher.data.read.column_values import raw_column
from thresher.data.read.raw_files import BLOCK_BYTES, RawChunk, expand_paths, is_parquet, read_chunks, resolve_format
from thresher.data.schema import SPLITS, DenseColumn, Field, FileFormat, Label, Pooling, Schema, SplitName
from thresher.data.table import SCRATCH
from thresher.errors import ConfigError, DataError


@dataclass(frozen=True, kw_only=True)
class IdField:
    """A column of ids, or of lists of ids if it has a pooling."""

    name: str
    size: int
    column: str = ""
    pooling: Pooling | None = None
    vocabulary: str = ""  # Parquet file whose column `value` holds the raw values of the ids from 1 on


@dataclass(frozen=True, kw_only=True)
class IdSchema:
    """The content of the TOML file. Paths in it are relative to the file."""

    fields: tuple[IdField, ...]
    label: str
    dense: tuple[str, ...] = ()  # passed to the model as they are
    weight: str | None = None


@dataclass(frozen=True, kw_only=True)
class WrittenRows:
    """What `write` has written."""

    rows: Mapping[SplitName, int]
    positives: int
    skipped: int = 0
    skipped_samples: tuple[tuple[str, int | None, str], ...] = ()


@dataclass(frozen=True)
class IdsSource:
    paths: tuple[Path, ...]
    plan: EncodingPlan
    vocabularies: tuple[Path | None, ...]  # of each field
    block_bytes: int = BLOCK_BYTES

    @property
    def num_bytes(self) -> int | None:
        return sum(path.stat().st_size for path in self.paths)

    def inputs(self) -> Mapping[str, Any]:
        given = [path for path in self.vocabularies if path is not None]
        return {"files": describe_files(self.paths), "vocabularies": describe_files(given)}

    def chunks(self) -> Iterator[RawChunk]:
        for path in self.paths:
            form = resolve_format(path, FileFormat())
            yield from read_chunks(path, form, header=True, block_bytes=self.block_bytes, bad_rows="error")

    def write(self, folder: Path) -> WrittenRows:
        """Write arrays, schema and vocabularies of the table."""
        schema = Schema(fields=self.plan.fields, label=self.plan.label, dense=self.plan.dense, weight=self.plan.weight)
        splitter, rows, positives = build_splitter(self), dict.fromkeys(SPLITS, 0), 0
        parts: list[Path] = []
        counts = np.zeros(schema.num_features, np.int64)
        for chunk in self.chunks():
            splits, problem = splitter(chunk, np.ones(len(chunk.frame), np.bool_))
            if (bad := splits > len(SPLITS)).any():
                raise DataError(problem, file=chunk.file, line=chunk.line(int(bad.argmax())))
            arrays = _Arrays(chunk, schema)
            parts.append(part := folder / SCRATCH / f"{len(parts):06}")
            for at, name in enumerate(SPLITS):
                chosen = np.flatnonzero(splits == at)
                rows[name] += len(chosen)
                own = arrays.save(part / name, chosen)
                positives += int(arrays.labels[chosen].sum())
                if name == "train":
                    counts += (part_counts := np.bincount(own, minlength=schema.num_features))
                    np.save(part / "feature_counts.npy", part_counts)
        encoder = RowEncoder(schema, self._vocabularies(schema, counts))
        if parts:
            join_parts(parts, folder, encoder)
        return WrittenRows(rows=rows, positives=positives)

    def _vocabularies(self, schema: Schema, counts: NDArray[np.int64]) -> list[Vocabulary]:
        """Given ones, or the ids themselves as text: `17` is the feature 17."""
        found = []
        for field, start, path in zip(schema.fields, schema.field_offsets, self.vocabularies, strict=True):
            values = pl.int_range(1, field.size, eager=True).cast(pl.String)
            if path is not None:
                values = raw_column(pl.read_parquet(path, glob=False), "value").cast(pl.String)
                if len(values) != field.size - 1 or values.null_count() or values.n_unique() < len(values):
                    problem = f"has {len(values):,} values; field {field.name!r} needs {field.size - 1:,}"
                    raise DataError(f"{problem}, all different: those of the ids from 1 on", file=path)
            found.append(Vocabulary(values.alias("value"), counts[start + 1 : start + field.size]))
        return found


class _Arrays:
    """The arrays of the rows of a chunk, checked."""

    def __init__(self, chunk: RawChunk, schema: Schema) -> None:
        self.chunk, self.schema, self.singles, self.bags = chunk, schema, [], []
        for field, start in zip(schema.fields, schema.field_offsets, strict=True):
            column = raw_column(chunk.frame, field.column)
            if field.pooling is None:
                self.singles.append(self._ids(field, column) + np.int32(start))
            else:
                lengths = column.list.len().fill_null(0).to_numpy().astype(np.int64)
                flat = column.explode(empty_as_null=False, keep_nulls=False)
                self.bags.append((lengths, self._ids(field, flat, by_row=False) + np.int32(start)))
        self.labels = self._numbers(schema.label.column, np.uint8, lambda values: np.isin(values, (0, 1)), "0 or 1")
        finite = (np.float32, np.isfinite, "a finite number")
        self.dense = [self._numbers(dense.column, *finite) for dense in schema.dense]
        self.weights = None if schema.weight is None else self._numbers(schema.weight, *finite)

    def save(self, folder: Path, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """Write some rows as the arrays of a split, and return all their ids."""
        folder.mkdir(parents=True)
        ids = np.stack(self.singles, 1)[rows] if self.singles else np.empty((len(rows), 0), np.int32)
        np.save(folder / "ids.npy", ids)
        np.save(folder / "labels.npy", self.labels[rows])
        if self.dense:
            np.save(folder / "dense.npy", np.stack(self.dense, 1)[rows])
        if self.weights is not None:
            np.save(folder / "weights.npy", self.weights[rows])
        every = [ids.ravel()]
        for at, (lengths, values) in enumerate(self.bags):
            kept = np.zeros(len(lengths), np.bool_)
            kept[rows] = True
            every.append(values[np.repeat(kept, lengths)])
            np.save(folder / f"bag_{at}_values.npy", every[-1])
            np.save(folder / f"bag_{at}_offsets.npy", np.concatenate([[0], np.cumsum(lengths[rows])]))
        return np.concatenate(every)

    def _ids(self, field: Field, column: pl.Series, *, by_row: bool = True) -> NDArray[np.int32]:
        if not column.dtype.is_integer():
            problem = f"holds {column.dtype}; ids are integers. Encode raw values with source = files"
            raise DataError(problem, file=self.chunk.file, column=field.column)
        wrong = column.is_null() | ~column.is_between(0, field.size - 1).fill_null(False)
        if wrong.any():
            at = int(wrong.arg_true()[0])
            line = self.chunk.line(at) if by_row else None
            problem = f"id {column[at]} is outside 0 … {field.size - 1} (size {field.size} in the schema)"
            raise DataError(problem, file=self.chunk.file, line=line, column=field.column)
        return column.cast(pl.Int32).to_numpy()

    def _numbers(self, name: str, dtype: Any, allowed: Any, expected: str) -> NDArray[Any]:
        values = raw_column(self.chunk.frame, name).cast(pl.Float64, strict=False).fill_null(float("nan")).to_numpy()
        if not (right := allowed(values)).all():
            at = int((~right).argmax())
            raise DataError(f"expected {expected}", file=self.chunk.file, line=self.chunk.line(at), column=name)
        return values.astype(dtype)


@register_source("ids")
def build_ids_source(config: DataConfig) -> IdsSource:
    if config.schema is None:
        raise ConfigError("the source 'ids' needs data.schema: a TOML file with the fields and their sizes")
    if config.vocabulary_like is not None:
        raise ConfigError(
            "data.vocabulary_like has no effect for the source 'ids': ids are used as they are. Remove it"
        )
    paths, place = expand_paths(config.paths), Path(config.schema)
    for path in paths:
        if not is_parquet(path):
            raise DataError("is not a Parquet file; the source 'ids' reads Parquet only", file=path)
    schema = load_toml(IdSchema, place)
    fields = sorted(schema.fields, key=lambda field: field.pooling is not None)
    plan = EncodingPlan.of(
        config,
        fields=tuple(Field(name=f.name, column=f.column, size=f.size, pooling=f.pooling) for f in fields),
        label=Label(column=schema.label),
        dense=tuple(DenseColumn(name=name, scaling="none") for name in schema.dense),
        weight=schema.weight,
    )
    given = tuple(place.parent / field.vocabulary if field.vocabulary else None for field in fields)
    return IdsSource(paths, plan, given, config.block_bytes)
