"""The first pass: raw chunks → provisional codes, counted and appended to the staging files, each row checked."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.batches.split import SPLITS, RandomSplit, Splitter
from thresher.data.encode.field_coder import FieldCoder
from thresher.data.encode.journal import Journal, replay_values, write_values
from thresher.data.encode.row_encoder import RowEncoder, raw_column
from thresher.data.encode.sources import EncodingPlan
from thresher.data.encode.staging import Staging, read_bag, read_part
from thresher.data.encode.transforms import as_numbers, bag_values, dense_values
from thresher.data.encode.value_coder import add_counts
from thresher.data.read.labels import read_labels
from thresher.data.read.raw_files import RawChunk
from thresher.data.schema import Field

SAVE_SECONDS = 20.0
SAVE_VALUES = 1_000_000
NUM_THREADS = min(4, os.cpu_count() or 1)
Mask = NDArray[np.bool_]


class FirstPass:
    """Codes and counts of the rows read so far; rows themselves go to disk."""

    def __init__(
        self, plan: EncodingPlan, folder: Path, journal: Journal, splitter: Splitter, known: RowEncoder | None
    ) -> None:
        self.plan, self.folder, self.journal, self.splitter = plan, folder, journal, splitter
        self.single = [field for field in plan.fields if field.pooling is None]
        self.bags = [field for field in plan.fields if field.pooling is not None]
        self.owners = list(dict.fromkeys(field.vocabulary or field.name for field in plan.fields))
        self.coders = [FieldCoder() for _ in self.owners]
        self.counts = [np.zeros(0, np.uint32) for _ in plan.fields]
        """Per field, occurrences of each code in the training split."""
        self.all_counts = (
            [np.zeros(0, np.uint32) for _ in plan.fields] if plan.vocabulary_from == "all" else self.counts
        )
        row_bytes = {"codes": 4 * len(self.single), "labels": 1}
        row_bytes |= {"numbers": 8 * len(self.quantiles)} if self.quantiles else {}
        row_bytes |= {"dense": 4 * len(plan.dense)} if plan.dense else {}
        row_bytes |= {"weights": 4} if plan.weight else {}
        self.staging = Staging(folder, row_bytes, len(self.bags), list(journal.rows))
        self._pool = ThreadPoolExecutor(NUM_THREADS)
        self._saved = time.monotonic()
        for field, vocabulary in [] if known is None else zip(known.schema.fields, known.vocabularies, strict=True):
            self.coder_of(field).known = vocabulary
        if sum(journal.rows) or journal.value_logs:
            self._recover()
        elif known is not None:
            for field, vocabulary in zip(known.schema.fields, known.vocabularies, strict=True):
                if self.coder_of(field).size == 0 and field.transform != "quantiles":
                    self.coder_of(field).seed(vocabulary.values)

    @property
    def quantiles(self) -> list[Field]:
        return [field for field in self.single if field.transform == "quantiles"]

    def coder_of(self, field: Field) -> FieldCoder:
        return self.coders[self.owners.index(field.vocabulary or field.name)]

    def read(self, chunk: RawChunk) -> None:
        """Take in the rows of a chunk."""
        self._skip_lines(chunk)
        if len(chunk.frame):
            kept = np.ones(len(chunk.frame), bool)
            columns, bags = self._columns(chunk, kept)
            split, why = self.splitter.assign_chunk(chunk, kept)
            if (split > 2).any():
                self._refuse(chunk, np.flatnonzero(kept)[split > 2], why, None, kept)
                split = split[split <= 2]
            if not kept.all():
                columns = {name: values[kept] for name, values in columns.items()}
                bags = [_filter_bag(codes, lengths, kept) for codes, lengths in bags]
            self._count(columns["codes"], bags, split)
            self.journal.positives += int(columns["labels"].sum())
            self.staging.append(split, columns, bags)
        self.journal.position = chunk.position
        waiting = sum(len(values) for coder in self.coders for values in coder.new_values)
        if waiting > SAVE_VALUES or time.monotonic() - self._saved > SAVE_SECONDS:
            self.save()

    def save(self, *, complete: bool = False) -> None:
        """Flush everything and write the journal: a killed run goes on from here."""
        self.staging.flush()
        write_values(self.folder, self.journal.value_logs, self.coders)
        self.journal.value_logs += 1
        self.journal.rows, self.journal.complete = list(self.staging.rows), complete
        self.journal.save(self.folder)
        self._saved = time.monotonic()

    def close(self) -> None:
        self.staging.close()
        self._pool.shutdown()
        for coder in self.coders:
            coder.forget()

    def _columns(self, chunk: RawChunk, kept: Mask) -> tuple[dict[str, NDArray[Any]], list[Any]]:
        frame, rows = chunk.frame, len(chunk.frame)
        labels, bad = read_labels(chunk.frame, self.plan.label)
        for mask, why in bad:
            self._refuse(chunk, np.flatnonzero(mask), why, self.plan.label.column, kept)
        columns: dict[str, NDArray[Any]] = {"labels": labels, "codes": np.zeros((rows, len(self.single)), np.int32)}
        bags: list[Any] = [None] * len(self.bags)
        jobs = [lambda owner=owner: self._code(owner, frame, columns["codes"], bags) for owner in self.owners]
        for broken in self._pool.map(_call, jobs) if rows > 5_000 else map(_call, jobs):
            for field, mask in broken:
                what = "is not a date" if field.transform == "date" else "is not a number"
                self._refuse(chunk, np.flatnonzero(mask), what, field.column, kept)
        if self.quantiles:
            columns["numbers"] = self._numbers(chunk, [field.column for field in self.quantiles], kept)
        if self.plan.dense:
            columns["dense"] = np.empty((rows, len(self.plan.dense)), np.float32)
            for at, dense in enumerate(self.plan.dense):
                numbers, broken_numbers = dense_values(dense, raw_column(frame, dense.column))
                columns["dense"][:, at] = numbers
                self._refuse(chunk, np.flatnonzero(broken_numbers), "is not a number", dense.column, kept)
        if self.plan.weight:
            weights = self._numbers(chunk, [self.plan.weight], kept)[:, 0].astype(np.float32)
            bad_rows = np.flatnonzero(kept & ~(weights >= 0))
            self._refuse(
                chunk, bad_rows, "is missing or negative, but weights must be 0 or more", self.plan.weight, kept
            )
            columns["weights"] = weights
        return columns, bags

    def _code(
        self, owner: str, frame: pl.DataFrame, codes: NDArray[np.int32], bags: list[Any]
    ) -> list[tuple[Field, Mask]]:
        """Code all fields of one vocabulary; the broken values found."""
        coder, broken = self.coders[self.owners.index(owner)], list[tuple[Field, Mask]]()
        for at, field in enumerate(self.single):
            if (field.vocabulary or field.name) == owner and field.transform != "quantiles":
                codes[:, at] = coder.encode(field, raw_column(frame, field.column))
                if coder.broken_code >= 0 and field.transform in ("log2", "date"):
                    broken.append((field, codes[:, at] == coder.broken_code))
        for at, field in enumerate(self.bags):
            if (field.vocabulary or field.name) == owner:
                values, offsets = bag_values(field, raw_column(frame, field.column))
                bags[at] = coder.encode(field, values), np.diff(offsets)
                if coder.broken_code >= 0 and field.transform in ("log2", "date"):
                    rows = np.repeat(np.arange(len(frame)), bags[at][1])
                    mask = np.zeros(len(frame), bool)
                    mask[rows[bags[at][0] == coder.broken_code]] = True
                    broken.append((field, mask))
        return broken

    def _numbers(self, chunk: RawChunk, names: list[str], kept: Mask) -> NDArray[np.float64]:
        numbers = np.empty((len(chunk.frame), len(names)), np.float64)
        for at, name in enumerate(names):
            numbers[:, at], broken = as_numbers(raw_column(chunk.frame, name))
            self._refuse(chunk, np.flatnonzero(broken), "is not a number", name, kept)
        return numbers

    def _count(self, codes: NDArray[np.int32], bags: list[Any], split: NDArray[np.uint8]) -> None:
        targets = [(self.counts, split == 0)]
        if self.all_counts is not self.counts:
            targets.append((self.all_counts, np.ones(len(split), bool)))
        for counts, chosen in targets:
            singles = bagged = 0
            for at, field in enumerate(self.plan.fields):
                counts[at] = _room(counts[at], self.coder_of(field).size)
                if field.pooling is None:
                    if field.transform != "quantiles":
                        add_counts(counts[at], codes[:, singles], chosen)
                    singles += 1
                else:
                    add_counts(counts[at], bags[bagged][0], np.repeat(chosen, bags[bagged][1]))
                    bagged += 1

    def _refuse(self, chunk: RawChunk, rows: NDArray[np.int64], what: str, column: str | None, kept: Mask) -> None:
        """Raise for the first of these rows, or leave them all out."""
        for row in rows:
            value = "" if column is None else f"{chunk.frame[column][int(row) : int(row) + 1].to_list()[0]!r} "
            if self.plan.bad_rows == "error":
                raise chunk.error(value + what, int(row), column)
            if kept[row]:
                place = "" if column is None else f"column {column!r}: "
                self.journal.skip(chunk.file, chunk.place(int(row)), place + value + what)
        kept[rows] = False

    def _skip_lines(self, chunk: RawChunk) -> None:
        for line, reason in chunk.skipped:
            self.journal.skip(chunk.file, line, reason)

    def _recover(self) -> None:
        """Bring the coders, counts and the split to where the journal says."""
        replay_values(self.folder, self.journal.value_logs, self.coders)
        if isinstance(self.splitter, RandomSplit):
            self.splitter.skip(sum(self.journal.rows))
        for at, name in enumerate(SPLITS):
            rows, folder = self.journal.rows[at], self.folder / name
            bags = [read_bag(folder, number, rows) for number in range(len(self.bags))]
            for codes in read_part(folder, "codes", np.int32, (rows, len(self.single))):
                self._count(codes, [next(bag) for bag in bags], np.full(len(codes), at, np.uint8))


def _call(job: Callable[[], Any]) -> Any:
    return job()


def _room(counts: NDArray[np.uint32], size: int) -> NDArray[np.uint32]:
    """The counts with at least `size` places; grown by a quarter at least, so that growing is rare."""
    if len(counts) >= size:
        return counts
    return np.concatenate([counts, np.zeros(max(size, len(counts) * 5 // 4) - len(counts), np.uint32)])


def _filter_bag(codes: NDArray[np.int32], lengths: NDArray[np.int64], kept: Mask) -> tuple[Any, Any]:
    return codes[np.repeat(kept, lengths)], lengths[kept]
