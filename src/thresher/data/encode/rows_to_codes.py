"""First pass of encoding: raw rows → provisional codes, checked, counted and written to scratch files."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.sources import EncodingPlan
from thresher.data.encode.split_rows import Splitter
from thresher.data.encode.transforms import bag_values, dense_values
from thresher.data.read.column_values import as_numbers, raw_column, read_labels
from thresher.data.read.raw_files import RawChunk
from thresher.data.schema import SPLITS, Field, SplitName
from thresher.data.vocabulary.value_codes import FieldCoder, add_counts
from thresher.errors import DataError, LabelError, WrongValueError

MAX_VALUES_IN_MEMORY = 1_000_000
MAX_SKIPPED_SAMPLES = 20
BLOCK_ROWS = 1 << 17
NUM_THREADS = min(4, os.cpu_count() or 1)
Mask = NDArray[np.bool_]
BagCodes = tuple[NDArray[np.int32], NDArray[np.int64]]  # codes of all rows, and the number of codes of each row


class CodedRows:
    """All rows as provisional codes in scratch files, with the counts of each code; `known` values come first."""

    def __init__(self, plan: EncodingPlan, folder: Path, splitter: Splitter, known: RowEncoder | None) -> None:
        self.plan, self._splitter = plan, splitter
        self.singles = [field for field in plan.fields if field.pooling is None]
        self.bags = [field for field in plan.fields if field.pooling is not None]
        self.quantiles = [field for field in self.singles if field.transform == "quantiles"]
        self.owners = list(dict.fromkeys(field.owner for field in plan.fields))
        self.coders = [FieldCoder() for _ in self.owners]
        # per field, occurrences of each code in the training split and in all rows
        self.counts = [np.zeros(0, np.uint32) for _ in plan.fields]
        self.all_counts = list(self.counts) if plan.vocabulary_from == "all" else self.counts
        self.positives = self.skipped = 0
        self.skipped_samples: list[tuple[str, int | None, str]] = []
        optional = {"numbers": self.quantiles, "dense": plan.dense, "weights": plan.weight}
        names = ["codes", "labels", *(name for name, used in optional.items() if used)]
        self.scratch = ScratchFiles(folder, names, len(self.bags))
        self._pool = ThreadPoolExecutor(NUM_THREADS)
        for field, vocabulary in (
            [] if known is None else zip(known.schema.fields, known.full_vocabularies, strict=True)
        ):
            coder = self.coder_of(field)
            coder.known = vocabulary
            if coder.size == 0 and field.transform != "quantiles":
                coder.add(vocabulary.values)

    @property
    def rows(self) -> dict[SplitName, int]:
        return self.scratch.rows

    def coder_of(self, field: Field) -> FieldCoder:
        return self.coders[self.owners.index(field.owner)]

    def add(self, chunk: RawChunk) -> None:
        """Code the rows of a chunk."""
        for line, reason in chunk.skipped:
            self._skip(chunk.file, line, reason)
        if len(chunk.frame):
            kept = np.ones(len(chunk.frame), bool)
            columns, bags = self._columns(chunk, kept)
            split, problem = self._splitter(chunk, kept)
            if (split > 2).any():
                self._reject(chunk, np.flatnonzero(kept)[split > 2], problem, None, kept)
                split = split[split <= 2]
            if not kept.all():
                columns = {name: values[kept] for name, values in columns.items()}
                bags = [(codes[np.repeat(kept, lengths)], lengths[kept]) for codes, lengths in bags]
            self._count(columns["codes"], bags, split)
            self.positives += int(columns["labels"].sum())
            self.scratch.append(split, columns, bags)
        if sum(len(values) for coder in self.coders for values in coder.new_values) > MAX_VALUES_IN_MEMORY:
            self.scratch.append_values(self.coders)

    def finish(self) -> None:
        """Write what is left to the scratch files, and free the memory of the coders."""
        self.scratch.append_values(self.coders)
        self.close()
        for coder in self.coders:
            coder.free()

    def close(self) -> None:
        self.scratch.close()
        self._pool.shutdown()

    def _columns(self, chunk: RawChunk, kept: Mask) -> tuple[dict[str, NDArray[Any]], list[BagCodes]]:
        """The columns to write, by scratch file, and the multi-valued fields; bad rows are marked in `kept`."""
        frame, plan = chunk.frame, self.plan
        labels, invalid = read_labels(frame, plan.label)
        for mask, problem in invalid:
            self._reject(chunk, np.flatnonzero(mask), problem, plan.label.column, kept, LabelError)
        codes = np.zeros((len(frame), len(self.singles)), np.int32)
        columns: dict[str, NDArray[Any]] = {"labels": labels, "codes": codes}
        bags: list[Any] = [None] * len(self.bags)
        code = partial(self._code, frame, codes, bags)
        for broken in self._pool.map(code, self.owners) if len(frame) > 5_000 else map(code, self.owners):
            for field, rows in broken:
                problem = "is not a date" if field.transform == "date" else "is not a number"
                self._reject(chunk, rows, problem, field.column, kept, WrongValueError)
        if self.quantiles:
            columns["numbers"] = self._numbers(chunk, [field.column for field in self.quantiles], kept)
        if plan.dense:
            columns["dense"] = np.empty((len(frame), len(plan.dense)), np.float32)
            for at, dense in enumerate(plan.dense):
                columns["dense"][:, at], mask = dense_values(dense, raw_column(frame, dense.column))
                self._reject(chunk, np.flatnonzero(mask), "is not a number", dense.column, kept, WrongValueError)
        if plan.weight:
            columns["weights"] = self._numbers(chunk, [plan.weight], kept)[:, 0].astype(np.float32)
            bad_rows = np.flatnonzero(kept & ~(columns["weights"] >= 0))
            self._reject(chunk, bad_rows, "is missing or negative; weights must be 0 or more", plan.weight, kept)
        return columns, bags

    def _code(
        self, frame: pl.DataFrame, codes: NDArray[np.int32], bags: list[Any], owner: str
    ) -> list[tuple[Field, NDArray[np.int64]]]:
        """Code all fields of one vocabulary. Returns the rows with values that are not a number or date."""
        coder, broken = self.coders[self.owners.index(owner)], list[tuple[Field, NDArray[np.int64]]]()
        for at, field in enumerate([*self.singles, *self.bags]):
            if field.owner != owner or field.transform == "quantiles":
                continue
            raw, rows = raw_column(frame, field.column), np.arange(len(frame))
            if field.pooling is None:
                found = codes[:, at] = coder.encode(field, raw)
            else:
                values, offsets = bag_values(field, raw)
                found, rows = coder.encode(field, values), np.repeat(rows, np.diff(offsets))
                bags[at - len(self.singles)] = found, np.diff(offsets)
            if coder.broken_code >= 0 and field.transform in ("log2", "date"):
                broken.append((field, np.unique(rows[found == coder.broken_code])))
        return broken

    def _numbers(self, chunk: RawChunk, names: list[str], kept: Mask) -> NDArray[np.float64]:
        numbers = np.empty((len(chunk.frame), len(names)), np.float64)
        for at, name in enumerate(names):
            numbers[:, at], broken = as_numbers(raw_column(chunk.frame, name))
            self._reject(chunk, np.flatnonzero(broken), "is not a number", name, kept, WrongValueError)
        return numbers

    def _count(self, codes: NDArray[np.int32], bags: list[BagCodes], split: NDArray[np.uint8]) -> None:
        targets = [(self.counts, split == 0)]
        if self.all_counts is not self.counts:
            targets.append((self.all_counts, np.ones(len(split), bool)))
        for counts, chosen in targets:
            single, bag = iter(codes.T), iter(bags)
            for at, field in enumerate(self.plan.fields):
                counts[at] = _grown(counts[at], self.coder_of(field).size)
                if field.pooling is None:
                    add_counts(counts[at], next(single), chosen & (field.transform != "quantiles"))
                else:
                    bag_codes, lengths = next(bag)
                    add_counts(counts[at], bag_codes, np.repeat(chosen, lengths))

    def _reject(
        self,
        chunk: RawChunk,
        rows: NDArray[np.int64],
        problem: str,
        column: str | None,
        kept: Mask,
        kind: type[DataError] = DataError,
    ) -> None:
        """Raise for the first of these rows, or skip them all."""
        for row in map(int, rows):
            value = "" if column is None else f"{chunk.frame[column][row : row + 1].to_list()[0]!r} "
            if self.plan.bad_rows == "error":
                raise kind(value + problem, file=chunk.file, line=chunk.line(row), column=column)
            if kept[row]:
                place = "" if column is None else f"column {column!r}: "
                self._skip(chunk.file, chunk.line(row), place + value + problem)
        kept[rows] = False

    def _skip(self, file: Path | None, line: int | None, reason: str) -> None:
        self.skipped += 1
        if len(self.skipped_samples) < MAX_SKIPPED_SAMPLES:
            self.skipped_samples.append((str(file or ""), line, reason))


class ScratchFiles:
    """Files between the two passes: per split one `<name>.part` per column, and the values of the codes."""

    def __init__(self, folder: Path, names: list[str], num_bags: int) -> None:
        self._folder, self._num_value_files = folder, 0
        self.rows = dict.fromkeys(SPLITS, 0)
        (folder / "values").mkdir(parents=True)
        names = [*names, *(f"bag_{at}_{part}" for at in range(num_bags) for part in ("lengths", "codes"))]
        self._files: dict[SplitName, dict[str, BinaryIO]] = {}
        for split in SPLITS:
            (folder / split).mkdir()
            self._files[split] = {name: (folder / split / f"{name}.part").open("wb") for name in names}

    def append(self, split: NDArray[np.uint8], columns: dict[str, NDArray[Any]], bags: list[BagCodes]) -> None:
        for at, (name, files) in enumerate(self._files.items()):
            rows = np.flatnonzero(split == at)
            self.rows[name] += len(rows)
            for column, values in columns.items():
                files[column].write(np.take(values, rows, axis=0).data)
            for bag, (codes, lengths) in enumerate(bags):
                files[f"bag_{bag}_lengths"].write(lengths[rows].astype(np.int32).data)
                files[f"bag_{bag}_codes"].write(np.ascontiguousarray(codes[np.repeat(split == at, lengths)]).data)

    def append_values(self, coders: list[FieldCoder]) -> None:
        """Write the values that got a code since the last call, and drop them from memory."""
        frames = [
            pl.DataFrame({"coder": np.full(len(values), at, np.uint16), "value": values.rename("value")})
            for at, coder in enumerate(coders)
            for values in coder.new_values
        ]
        if frames:
            path = self._folder / "values" / f"{self._num_value_files}.parquet"
            pl.concat(frames).write_parquet(path, compression="lz4")
            self._num_value_files += 1
        for coder in coders:
            coder.new_values.clear()

    def close(self) -> None:
        for files in self._files.values():
            for file in files.values():
                file.close()

    def read(self, split: SplitName, name: str, dtype: Any, width: int | None = None) -> Iterator[NDArray[Any]]:
        """A column in blocks of rows, `[rows]` or `[rows, width]`; read, not mapped, to keep memory bounded."""
        if width == 0:
            return
        with (self._folder / split / f"{name}.part").open("rb") as file:
            for start in range(0, self.rows[split], BLOCK_ROWS):
                rows = min(BLOCK_ROWS, self.rows[split] - start)
                block = np.fromfile(file, dtype, rows * (width or 1))
                yield block if width is None else block.reshape(rows, width)

    def read_bag(self, split: SplitName, at: int) -> Iterator[NDArray[np.int32]]:
        """The codes of a multi-valued field in blocks of rows."""
        with (self._folder / split / f"bag_{at}_codes.part").open("rb") as file:
            for lengths in self.read(split, f"bag_{at}_lengths", np.int32):
                yield np.fromfile(file, np.int32, int(lengths.sum()))

    def read_values(self, kept: list[Mask]) -> list[pl.Series]:
        """For each coder the values of the kept codes, in the order of the codes."""
        seen = [0] * len(kept)
        found: list[list[pl.Series]] = [[] for _ in kept]
        for number in range(self._num_value_files):
            frame = pl.read_parquet(self._folder / "values" / f"{number}.parquet", glob=False)
            for (key,), part in frame.group_by("coder", maintain_order=True):
                at = int(key)
                chosen = kept[at][seen[at] : seen[at] + len(part)]
                seen[at] += len(part)
                found[at].append(part["value"].filter(pl.Series(chosen, dtype=pl.Boolean)))
        return [pl.concat(parts, rechunk=True) if parts else pl.Series(dtype=pl.String) for parts in found]


def _grown(counts: NDArray[np.uint32], size: int) -> NDArray[np.uint32]:
    """The counts with room for `size` codes; grown by at least a quarter, so that copies are rare."""
    if len(counts) >= size:
        return counts
    return np.concatenate([counts, np.zeros(max(size, len(counts) * 5 // 4) - len(counts), np.uint32)])
