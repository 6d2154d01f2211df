"""Encoding in parts, for engines that hold the rows on many machines: count each part, fit once, encode each part.

    count_part (every machine) → fit (one) → encode_part (every machine) → join_parts (one)

The result equals that of `encode` on the same rows, except for the order of the rows, if the split does not depend on
this order. `thresher.integrations.spark` runs it on Spark.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.config import SplitConfig
from thresher.data.encode.codes_to_ids import (
    Edges,
    bucket_values,
    code_counts,
    edges_of,
    extend_vocabulary,
    fit_vocabularies,
    sample_numbers,
    write_array,
    write_arrays,
)
from thresher.data.encode.row_encoder import RowEncoder, Vocabulary
from thresher.data.encode.rows_to_codes import CodedRows
from thresher.data.encode.sources import EncodingPlan
from thresher.data.encode.split_rows import chunk_splitter
from thresher.data.read.raw_files import RawChunk
from thresher.data.schema import SPLITS, DenseColumn, Schema, SplitName
from thresher.errors import ConfigError

COUNTS = {"field": pl.Int32, "value": pl.String, "train": pl.Int64, "everything": pl.Int64}
Chunks = Iterable[RawChunk]
BLOCK_ROWS = 1 << 20
SMALL_FILE = 1 << 20  # read at once: an empty array cannot be memory-mapped


@dataclass(frozen=True, kw_only=True)
class PartSummary:
    """What a part contributes beside its counts; plain data."""

    rows: Mapping[SplitName, int]
    positives: int
    skipped: int
    skipped_samples: Sequence[tuple[str, int | None, str]] = ()
    dense: Sequence[tuple[int, float, float]] = ()  # per dense column: rows, mean, sum of squared deviations

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def check_parts_plan(plan: EncodingPlan) -> None:
    """Raise if the split depends on more than one row."""
    split = plan.split
    if split.kind == "column" or (split.kind == "time" and split.validation_from):
        return
    raise ConfigError(
        f"a split by {split.kind} cannot be decided row by row (data.split). Expected a split by a column, or by time "
        "with validation_from and test_from. Add a column that contains train, validation and test"
    )


def sample_part(plan: EncodingPlan, chunks: Chunks, scratch: Path) -> NDArray[np.float64]:
    """The training rows' numbers of the quantile fields `[rows, Q]`, from which `edges_of` computes the buckets."""
    return sample_numbers(_code_rows(plan, chunks, scratch, None))


def part_edges(plan: EncodingPlan, samples: Sequence[NDArray[np.float64]]) -> Edges:
    """The bucket edges of the quantile fields, from the samples of all parts."""
    quantiles = [field for field in plan.fields if field.transform == "quantiles"]
    return edges_of(quantiles, np.concatenate(samples) if samples else np.empty((0, len(quantiles))))


def count_part(plan: EncodingPlan, chunks: Chunks, scratch: Path, edges: Edges) -> tuple[pl.DataFrame, PartSummary]:
    """The occurrences of each value of each field (columns `COUNTS`), and the summary of a part."""
    coded = _code_rows(plan, chunks, scratch, None)
    train, everything = code_counts(coded, edges)
    by_owner = coded.scratch.read_values([np.ones(coder.size, bool) for coder in coded.coders])
    frames = []
    for at, field in enumerate(plan.fields):
        quantiles = field.transform == "quantiles"
        values = bucket_values(edges[field.name]) if quantiles else by_owner[coded.owners.index(field.owner)]
        frame = pl.DataFrame(
            {"field": [at] * len(values), "value": values, "train": train[at], "everything": everything[at]},
            schema=COUNTS,
            strict=False,
        )
        frames.append(frame.filter(pl.col("everything") > 0))
    dense = [_moments(coded, at) for at in range(len(plan.dense))]
    return pl.concat(frames), replace(_summary(coded), dense=dense)


def fit(plan: EncodingPlan, counts: pl.DataFrame, edges: Edges, summaries: Sequence[PartSummary]) -> RowEncoder:
    """Vocabularies and scaling from the counts of all parts, summed by field and value."""
    column = "everything" if plan.vocabulary_from == "all" else "train"
    vocabularies: dict[str, Vocabulary] = {}
    for owner in dict.fromkeys(field.owner for field in plan.fields):
        members = [at for at, field in enumerate(plan.fields) if field.owner == owner]
        totals = counts.filter(pl.col("field").is_in(members)).group_by("value").agg(pl.col(column).sum())
        totals = totals.filter(pl.col(column) >= min(plan.fields[at].min_count for at in members))
        codes = np.arange(len(totals))
        vocabularies[owner], _ = extend_vocabulary(None, totals["value"], codes, totals[column].to_numpy())
    fields = tuple(
        replace(field, size=vocabularies[field.owner].size, edges=edges.get(field.name, ())) for field in plan.fields
    )
    schema = Schema(
        fields=fields,
        label=plan.label,
        dense=tuple(_scaling(dense, [each.dense[at] for each in summaries]) for at, dense in enumerate(plan.dense)),
        weight=plan.weight,
        file_format=plan.file_format,
    )
    return RowEncoder(schema, [vocabularies[field.owner] for field in fields])


def encode_part(plan: EncodingPlan, encoder: RowEncoder, chunks: Chunks, folder: Path) -> PartSummary:
    """Write the arrays of a part to `folder`, and `feature_counts.npy` of its training rows."""
    schema = encoder.schema
    pairs = zip(schema.fields, plan.fields, strict=True)
    fields = tuple(replace(known, min_count=planned.min_count) for known, planned in pairs)
    like = replace(plan, fields=fields, dense=schema.dense, new_values="unknown")
    coded = _code_rows(like, chunks, folder / "scratch", encoder)
    fitted = fit_vocabularies(coded, encoder)
    write_arrays(coded, fitted, folder, lambda done, total, message: None)
    np.save(folder / "feature_counts.npy", fitted.feature_counts)
    return _summary(coded)


def _code_rows(plan: EncodingPlan, chunks: Chunks, scratch: Path, known: RowEncoder | None) -> CodedRows:
    check_parts_plan(plan)
    coded = CodedRows(plan, scratch, chunk_splitter(plan), known)
    with closing(coded):
        for chunk in chunks:
            coded.add(chunk)
        coded.finish()
    return coded


def _summary(coded: CodedRows) -> PartSummary:
    return PartSummary(
        rows=coded.rows, positives=coded.positives, skipped=coded.skipped, skipped_samples=coded.skipped_samples
    )


def _moments(coded: CodedRows, at: int) -> tuple[int, float, float]:
    """Rows, mean and sum of squared deviations of a dense column over the training rows."""
    found = (0, 0.0, 0.0)
    for rows in coded.scratch.read("train", "dense", np.float32, len(coded.plan.dense)):
        block = rows[:, at].astype(np.float64)
        block = block[~np.isnan(block)]
        if len(block):
            mean = float(block.mean())
            found = _merge_moments(found, (len(block), mean, float(((block - mean) ** 2).sum())))
    return found


def _merge_moments(left: tuple[int, float, float], right: tuple[int, float, float]) -> tuple[int, float, float]:
    """The moments of two sets of numbers together (Chan, Golub and LeVeque, 1983)."""
    count = left[0] + right[0]
    if not count:
        return left
    step = right[1] - left[1]
    mean = left[1] + step * right[0] / count
    return count, mean, left[2] + right[2] + step * step * left[0] * right[0] / count


def _scaling(column: DenseColumn, moments: Sequence[tuple[int, float, float]]) -> DenseColumn:
    if column.scaling == "none":
        return column
    count, mean, deviations = 0, 0.0, 0.0
    for part in moments:
        count, mean, deviations = _merge_moments((count, mean, deviations), part)
    return replace(column, mean=mean, scale=(deviations / max(count, 1)) ** 0.5 or 1.0)


def by_column(plan: EncodingPlan, column: str) -> EncodingPlan:
    """The plan with a split by a column that contains train, validation and test."""
    return replace(plan, split=SplitConfig(by="column", column=column))


def join_parts(parts: Sequence[Path], folder: Path, encoder: RowEncoder) -> None:
    """Write the arrays of all splits, the feature counts, the schema and the vocabularies to `folder`."""
    encoder.save(folder)
    np.save(folder / "feature_counts.npy", np.sum([np.load(part / "feature_counts.npy") for part in parts], axis=0))
    for split in SPLITS:
        (folder / split).mkdir()
        for name in sorted(path.name for path in (parts[0] / split).glob("*.npy")):
            arrays = [_load(part / split / name) for part in parts]
            is_offsets = name.endswith("_offsets.npy")
            rows = sum(len(array) for array in arrays) - (len(arrays) - 1 if is_offsets else 0)
            blocks = _offsets(arrays) if is_offsets else _blocks(arrays)
            write_array(folder / split / name, arrays[0].dtype, (rows, *arrays[0].shape[1:]), blocks)


def _load(path: Path) -> NDArray[Any]:
    array: NDArray[Any] = np.load(path, mmap_mode="r" if path.stat().st_size > SMALL_FILE else None)
    return array


def _blocks(arrays: Sequence[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    for array in arrays:
        for start in range(0, len(array), BLOCK_ROWS):
            yield array[start : start + BLOCK_ROWS]


def _offsets(arrays: Sequence[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Offsets of all rows; each part's start at the end of the part before it."""
    yield np.zeros(1, np.int64)
    end = 0
    for array in arrays:
        yield array[1:] + end
        end += int(array[-1])
