"""Second pass of encoding: counts → vocabularies, then provisional codes → feature ids, written as arrays."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.encode.row_encoder import RowEncoder, Vocabulary
from thresher.data.encode.rows_to_codes import CodedRows
from thresher.data.encode.transforms import quantile_buckets, quantile_edges, scale_dense
from thresher.data.schema import SPLITS, DenseColumn, Field, SplitName
from thresher.data.vocabulary.value_codes import replace_codes
from thresher.errors import DataError

SAMPLE_ROWS = 1 << 22
Counts = NDArray[np.int64] | NDArray[np.uint32]
Edges = dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Fitted:
    """What is learned from the rows of the first pass."""

    fields: tuple[Field, ...]
    dense: tuple[DenseColumn, ...]
    vocabularies: tuple[Vocabulary, ...]
    local_ids: tuple[NDArray[np.int32], ...]  # per field, the local id of each code
    feature_counts: NDArray[np.int64]


def fit_vocabularies(coded: CodedRows, known: RowEncoder | None) -> Fitted:
    """The vocabularies of all fields; after those of `known`, if given."""
    plan, edges = coded.plan, training_edges(coded, known)
    train, everything = code_counts(coded, edges)
    chosen = everything if plan.vocabulary_from == "all" else train
    members = [[at for at, field in enumerate(plan.fields) if field.owner == owner] for owner in coded.owners]
    totals = [_sum([chosen[at] for at in group]) for group in members]
    kept = [
        total >= min(plan.fields[at].min_count for at in group) for total, group in zip(totals, members, strict=True)
    ]
    values = coded.scratch.read_values([mask[: c.size] for mask, c in zip(kept, coded.coders, strict=True)])
    built: dict[str, tuple[Vocabulary, NDArray[np.int32]]] = {}
    for at, owner in enumerate(coded.owners):
        field = plan.fields[members[at][0]]
        start = None if known is None else known.full_vocabularies[members[at][0]]
        if field.transform == "quantiles":
            buckets = bucket_values(edges[field.name])
            if start is not None:
                built[owner] = start, start.to_ids(buckets)
                continue
            values[at] = buckets.filter(pl.Series(kept[at]))
        built[owner] = extend_vocabulary(
            start, values[at], np.flatnonzero(kept[at]), totals[at], append=plan.new_values == "append"
        )
    fields, counts = [], []
    for at, field in enumerate(plan.fields):
        vocabulary, ids = built[field.owner]
        fields.append(replace(field, size=vocabulary.size, edges=edges.get(field.name, ())))
        own_counts = np.zeros(len(ids), np.int64)
        own_counts[: len(train[at])] = train[at][: len(ids)]
        counts.append(np.bincount(ids, weights=own_counts, minlength=vocabulary.size).astype(np.int64))
    if sum(field.size for field in fields) > np.iinfo(np.int32).max:
        raise DataError("there are more features than int32 ids; raise min_count, or hash the largest fields")
    dense = plan.dense
    if known is None:
        dense = tuple(_fit_scaling(coded, at, column) for at, column in enumerate(dense))
    vocabularies, local_ids = zip(*(built[field.owner] for field in plan.fields), strict=True)
    return Fitted(tuple(fields), dense, vocabularies, local_ids, np.concatenate(counts))


def extend_vocabulary(
    known: Vocabulary | None, values: pl.Series, codes: NDArray[np.int64], counts: Counts, *, append: bool = True
) -> tuple[Vocabulary, NDArray[np.int32]]:
    """A vocabulary of `values` with their `codes`, by count and then by value; and the local id of each code.

    The values of a `known` vocabulary have the first codes and keep their ids; new values follow if `append`, else they
    are unknown. `counts` are the occurrences of every code.
    """
    start = 0 if known is None else len(known.values)
    frame = pl.DataFrame({"value": values.rename("value"), "code": codes, "count": counts[codes].astype(np.int64)})
    frame = frame.filter((pl.col("code") >= start) & (pl.col("count") > 0) & pl.lit(append or known is None))
    frame = frame.sort(["count", "value"], descending=[True, False])
    local_ids = np.zeros(max(len(counts), start), np.int32)
    local_ids[:start] = np.arange(1, start + 1)
    local_ids[frame["code"].to_numpy()] = np.arange(start + 1, start + len(frame) + 1)
    if known is None:
        return Vocabulary(frame["value"].rechunk(), frame["count"].to_numpy()), local_ids
    known_counts = np.zeros(start, np.int64)
    known_counts[: len(counts)] = counts[:start]
    both = pl.concat([known.values.rename("value"), frame["value"]], rechunk=True)
    return Vocabulary(both, np.concatenate([known.counts + known_counts, frame["count"].to_numpy()])), local_ids


def write_arrays(
    coded: CodedRows, fitted: Fitted, folder: Path, progress: Callable[[int, int | None, str], None]
) -> None:
    """Write the arrays of all splits: ids, labels, dense, weights and bags."""
    scratch, plan = coded.scratch, coded.plan
    offsets = accumulate((field.size for field in fitted.fields), initial=0)
    tables = [ids + np.int32(offset) for ids, offset in zip(fitted.local_ids, offsets, strict=False)]
    done, total = 0, sum(coded.rows.values())
    for split, rows in coded.rows.items():
        to = folder / split
        to.mkdir(exist_ok=True)
        write_array(to / "ids.npy", np.int32, (rows, len(coded.singles)), _ids(coded, fitted, split, tables))
        write_array(to / "labels.npy", np.uint8, (rows,), scratch.read(split, "labels", np.uint8))
        if plan.dense:
            blocks = scratch.read(split, "dense", np.float32, len(plan.dense))
            scaled = (scale_dense(fitted.dense, block) for block in blocks)
            write_array(to / "dense.npy", np.float32, (rows, len(plan.dense)), scaled)
        if plan.weight:
            write_array(to / "weights.npy", np.float32, (rows,), scratch.read(split, "weights", np.float32))
        for at in range(len(coded.bags)):
            _write_bag(coded, split, to, at, tables[len(coded.singles) + at])
        done += rows
        progress(done, total, "encoding")


def _ids(
    coded: CodedRows, fitted: Fitted, split: SplitName, tables: list[NDArray[np.int32]]
) -> Iterator[NDArray[np.int32]]:
    """Blocks of feature ids `[rows, F]` of the single-valued fields."""
    width = len(coded.singles)
    if not width:
        return
    quantiles = [(at, field) for at, field in enumerate(fitted.fields[:width]) if field.transform == "quantiles"]
    numbers = coded.scratch.read(split, "numbers", np.float64, len(quantiles))
    flat = np.concatenate(tables[:width])
    starts = np.array(list(accumulate((len(table) for table in tables[:width]), initial=0))[:-1], np.int64)
    for codes in coded.scratch.read(split, "codes", np.int32, width):
        if quantiles:
            block = next(numbers)
            for column, (at, field) in enumerate(quantiles):
                codes[:, at] = _bucket_codes(block[:, column], field.edges)
        replace_codes(codes, flat, starts)
        yield codes


def _write_bag(coded: CodedRows, split: SplitName, folder: Path, at: int, table: NDArray[np.int32]) -> None:
    ends = np.zeros(1, np.int64)

    def offsets() -> Iterator[NDArray[np.int64]]:
        yield np.zeros(1, np.int64)
        for lengths in coded.scratch.read(split, f"bag_{at}_lengths", np.int32):
            block = ends + np.cumsum(lengths, dtype=np.int64)
            ends[0] = block[-1]
            yield block

    write_array(folder / f"bag_{at}_offsets.npy", np.int64, (coded.rows[split] + 1,), offsets())
    values = (table[codes] for codes in coded.scratch.read_bag(split, at))
    write_array(folder / f"bag_{at}_values.npy", np.int32, (int(ends[0]),), values)


def write_array(path: Path, dtype: Any, shape: tuple[int, ...], blocks: Iterator[NDArray[Any]]) -> None:
    """Write a .npy file from blocks of rows."""
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype).data)


def _sum(parts: list[Counts]) -> Counts:
    if len(parts) == 1:
        return parts[0]
    total = np.zeros(max(len(part) for part in parts), np.int64)
    for part in parts:
        total[: len(part)] += part
    return total


def training_edges(coded: CodedRows, known: RowEncoder | None) -> Edges:
    """Quantiles of the training rows; of an even sample if there are more than `SAMPLE_ROWS`."""
    if known is not None:
        return {field.name: field.edges for field in known.schema.fields if field.transform == "quantiles"}
    return edges_of(coded.quantiles, sample_numbers(coded))


def sample_numbers(coded: CodedRows) -> NDArray[np.float64]:
    """The numbers of the quantile fields `[rows, Q]` in the training rows; an even sample if there are many."""
    step, done, sample = max(1, -(-coded.rows["train"] // SAMPLE_ROWS)), 0, []
    for block in coded.scratch.read("train", "numbers", np.float64, len(coded.quantiles)):
        sample.append(block[-done % step :: step])
        done += len(block)
    return np.concatenate(sample) if sample else np.empty((0, len(coded.quantiles)))


def edges_of(quantiles: Sequence[Field], numbers: NDArray[np.float64]) -> Edges:
    """The edges of each quantile field, from its column of numbers."""
    return {field.name: quantile_edges(numbers[:, at], field.num_buckets) for at, field in enumerate(quantiles)}


def code_counts(coded: CodedRows, edges: Edges) -> tuple[list[Counts], list[Counts]]:
    """Counts of the codes in the training split and in all rows; the codes of quantile fields are their buckets."""
    sizes = [coded.coder_of(field).size for field in coded.plan.fields]
    train: list[Counts] = [counts[:size] for counts, size in zip(coded.counts, sizes, strict=True)]
    everything: list[Counts] = [counts[:size] for counts, size in zip(coded.all_counts, sizes, strict=True)]
    for column, field in enumerate(coded.quantiles):
        at, size = coded.plan.fields.index(field), len(edges[field.name]) + 2
        train[at], everything[at] = np.zeros(size, np.int64), np.zeros(size, np.int64)
        for split in SPLITS:
            for block in coded.scratch.read(split, "numbers", np.float64, len(coded.quantiles)):
                counts = np.bincount(_bucket_codes(block[:, column], edges[field.name]), minlength=size)
                everything[at] += counts
                train[at] += counts if split == "train" else 0
    return train, everything


def bucket_values(edges: tuple[float, ...]) -> pl.Series:
    """The values of a quantile field, in the order of their codes."""
    return pl.Series([*map(str, range(len(edges) + 1)), ""])


def _bucket_codes(numbers: NDArray[np.float64], edges: tuple[float, ...]) -> NDArray[np.int64]:
    """Bucket numbers; the code of a missing number follows the last bucket."""
    missing = np.isnan(numbers)
    return np.where(missing, len(edges) + 1, quantile_buckets(np.where(missing, 0.0, numbers), edges))


def _fit_scaling(coded: CodedRows, at: int, column: DenseColumn) -> DenseColumn:
    """Mean and standard deviation over the training rows."""
    if column.scaling == "none":
        return column

    def moment(center: float, power: int) -> float:
        count, total = 0, 0.0
        for rows in coded.scratch.read("train", "dense", np.float32, len(coded.plan.dense)):
            block = rows[:, at].astype(np.float64)
            block = block[~np.isnan(block)]
            count, total = count + len(block), total + float(((block - center) ** power).sum())
        return total / max(count, 1)

    mean = moment(0.0, 1)
    return replace(column, mean=mean, scale=moment(mean, 2) ** 0.5 or 1.0)
