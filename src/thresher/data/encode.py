"""encode(): a data source → an `EncodedTable` on disk. The raw rows are read once and never held.

First pass: each chunk's values become provisional codes (numbered as they appear), counted and written by split.
Then the vocabularies are known, and the second pass turns codes into feature ids, block by block.
All is written beside the final folder, which appears at the end or not at all.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thresher.data.encoded_table import TABLE_VERSION, EncodedTable, read_facts
from thresher.data.fingerprint import differences, fingerprint
from thresher.data.labels import read_labels
from thresher.data.raw_files import RawChunk
from thresher.data.row_encoder import RowEncoder, unknown_column
from thresher.data.schema import DenseColumn, Field, Schema
from thresher.data.sources import DataSource, EncodingPlan
from thresher.data.split import SPLITS, RandomSplit
from thresher.data.staging import Staging
from thresher.data.transforms import BROKEN, as_numbers, field_values
from thresher.data.vocabulary import ValueCoder, Vocabulary, build_vocabulary
from thresher.errors import DataError

Progress = Callable[[int, int | None, str], None]
"""Called with (done, total, message); total is None while it is unknown."""


def encode(
    source: DataSource, folder: str | Path, *, overwrite: bool = False, progress: Progress | None = None
) -> EncodedTable:
    """Build the table in `folder`, or reopen it when it was made from the same data with the same settings.

    A folder made from other data or settings raises `DataError`, unless `overwrite` is set.
    """
    folder = Path(folder)
    inputs = json.loads(json.dumps({"data": source.inputs(), "plan": asdict(source.plan), "format": TABLE_VERSION}))
    if folder.exists():
        if not (folder / "table.json").exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise DataError("exists and is not an encoded table; choose another folder", file=folder)
        facts = None if overwrite else read_facts(folder)
        if facts is not None:
            changes = differences(facts["inputs"], inputs)
            if not changes:
                return EncodedTable.open(folder)
            raise DataError(
                "this table was encoded from other data or settings: "
                + "; ".join(changes[:5])
                + (f"; and {len(changes) - 5} more" if len(changes) > 5 else "")
                + ". Encode into another folder, or overwrite this one (--force, overwrite=True)",
                file=folder,
            )
    partial = folder.with_name(folder.name + ".partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _Encoding(source, partial, progress or _silent).run(inputs)
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror or error}", file=error.filename or folder) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return EncodedTable.open(folder)


class _Encoding:
    """One run of `encode`: the state of the first pass and the steps in order."""

    def __init__(self, source: DataSource, folder: Path, progress: Progress) -> None:
        self.source, self.plan, self.folder, self.progress = source, source.plan, folder, progress
        self.fields = [_field(plan, size=1) for plan in self.plan.fields]
        self.coders = [ValueCoder() for _ in self.fields]
        self.counts = [np.zeros(0, np.int64) for _ in self.fields]
        self.train_counts = [np.zeros(0, np.int64) for _ in self.fields]
        self.split = RandomSplit(self.plan.split_seed)
        self.staging = Staging(folder, len(self.fields), len(self.plan.dense), weighted=self.plan.weight is not None)
        self.positives = 0

    def run(self, inputs: dict[str, Any]) -> None:
        with closing(self.staging):
            for chunk in self.source.chunks():
                if len(chunk.frame):
                    self._first_pass(chunk)
                    self.progress(self.staging.num_rows, None, "reading")
        self._check()
        vocabularies, to_ids = self._vocabularies()
        schema = self._schema(vocabularies)
        RowEncoder(schema, vocabularies).save(self.folder)
        self.staging.write_splits(to_ids, schema.dense, self.progress)
        facts = {
            "version": TABLE_VERSION,
            "fingerprint": fingerprint(inputs),
            "rows": dict(zip(SPLITS, self.staging.split_rows, strict=True)),
            "positives": self.positives,
            "inputs": inputs,
        }
        (self.folder / "table.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")

    def _first_pass(self, chunk: RawChunk) -> None:
        frame, rows = chunk.frame, len(chunk.frame)
        labels = read_labels(chunk, self.plan.label)
        split = self.split.assign(rows)
        counted = np.ones(rows, bool) if self.plan.vocabulary_from == "all" else split == 0
        codes = np.empty((rows, len(self.fields)), np.int32)
        for at, field in enumerate(self.fields):
            values = field_values(field, frame[field.column])
            if field.transform != "none" and (values == BROKEN).any():
                row = int((values == BROKEN).arg_true()[0])
                raise chunk.error(f"{frame[field.column][row]!r} is not a number", row, field.column)
            codes[:, at] = self.coders[at].encode(values)
            size = len(self.coders[at])
            self.counts[at] = _add_counts(self.counts[at], codes[counted, at], size)
            self.train_counts[at] = _add_counts(self.train_counts[at], codes[split == 0, at], size)
        self.positives += int(labels.sum())
        self.staging.append(split, codes, labels, self._dense(chunk), self._weights(chunk))

    def _dense(self, chunk: RawChunk) -> NDArray[np.float32] | None:
        if not self.plan.dense:
            return None
        dense = np.empty((len(chunk.frame), len(self.plan.dense)), np.float32)
        for at, column in enumerate(self.plan.dense):
            dense[:, at] = _numbers(chunk, column.column)
        return dense

    def _weights(self, chunk: RawChunk) -> NDArray[np.float32] | None:
        if self.plan.weight is None:
            return None
        weights = _numbers(chunk, self.plan.weight).astype(np.float32)
        bad = ~(weights >= 0)
        if bad.any():
            raise chunk.error("a weight is missing or negative", int(bad.argmax()), self.plan.weight)
        return weights

    def _check(self) -> None:
        rows = self.staging.num_rows
        where = self.source.inputs().get("files", [{}])
        file = where[0].get("name") if where else None
        if rows == 0:
            raise DataError("there are no rows", file=file)
        if self.positives in (0, rows):
            only = "1" if self.positives else "0"
            raise DataError(
                f"all {rows:,} labels are {only}; both classes are needed", file=file, column=self.plan.label.column
            )
        for name, count in zip(SPLITS, self.staging.split_rows, strict=True):
            if count == 0:
                raise DataError(
                    f"only {rows:,} rows: none falls into the {name} split; more rows are needed", file=file
                )

    def _vocabularies(self) -> tuple[list[Vocabulary], list[NDArray[np.int32]]]:
        """The vocabularies, and per field the global feature id of each provisional code. Writes feature counts."""
        vocabularies, to_ids, feature_counts, offset = [], [], [], 0
        for at, field in enumerate(self.fields):
            self.progress(at, len(self.fields), "vocabularies")
            vocabulary, local_ids = build_vocabulary(self.coders[at].values(), self.counts[at], field.min_count)
            in_train = np.bincount(local_ids, weights=self.train_counts[at], minlength=vocabulary.size)
            vocabularies.append(vocabulary)
            to_ids.append(local_ids + np.int32(offset))
            feature_counts.append(in_train.astype(np.int64))
            offset += vocabulary.size
        if offset > np.iinfo(np.int32).max:
            raise DataError(f"{offset:,} features do not fit int32 ids; raise min_count")
        np.save(self.folder / "feature_counts.npy", np.concatenate(feature_counts))
        return vocabularies, to_ids

    def _schema(self, vocabularies: list[Vocabulary]) -> Schema:
        plan = self.plan
        return Schema(
            fields=tuple(_field(p, v.size) for p, v in zip(plan.fields, vocabularies, strict=True)),
            label=plan.label,
            dense=tuple(DenseColumn(name=c.name, column=c.column, mean=c.mean, scale=c.scale) for c in plan.dense),
            weight=plan.weight,
            file_format=plan.file_format,
        )


def check_columns(plan: EncodingPlan, columns: tuple[str, ...], file: Path) -> None:
    """Raise for a column the plan names and the file lacks."""
    wanted = [field.column for field in plan.fields] + [column.column for column in plan.dense] + [plan.label.column]
    for name in [*wanted, *([plan.weight] if plan.weight else [])]:
        if name not in columns:
            raise DataError(unknown_column(name, columns), file=file)


def _field(plan: Any, size: int) -> Field:
    return Field(
        name=plan.name,
        size=size,
        column=plan.column,
        transform=plan.transform,
        shift=plan.shift,
        min_count=plan.min_count,
    )


def _numbers(chunk: RawChunk, column: str) -> NDArray[np.float64]:
    numbers, broken = as_numbers(chunk.frame[column])
    if broken.any():
        row = int(broken.argmax())
        raise chunk.error(f"{chunk.frame[column][row]!r} is not a number", row, column)
    return numbers


def _add_counts(counts: NDArray[np.int64], codes: NDArray[np.int32], size: int) -> NDArray[np.int64]:
    if len(counts) < size:
        counts = np.concatenate([counts, np.zeros(size - len(counts), np.int64)])
    np.add.at(counts, codes, 1)
    return counts


def _silent(done: int, total: int | None, message: str) -> None:
    pass
