"""Between the passes: counts → vocabularies and code tables; quantile edges and the scaling of dense columns."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.batches.split import SPLITS
from thresher.data.encode.first_pass import FirstPass
from thresher.data.encode.journal import read_values
from thresher.data.encode.numeric_buckets import quantile_buckets, quantile_edges
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.staging import read_part
from thresher.data.encode.vocabulary import Vocabulary, extend_vocabulary
from thresher.data.schema import DenseColumn, Field
from thresher.errors import DataError

SAMPLE_ROWS = 1 << 22
Counts = NDArray[np.int64] | NDArray[np.uint32]


@dataclass(frozen=True)
class Fitted:
    """Everything learned from the first pass."""

    fields: tuple[Field, ...]
    dense: tuple[DenseColumn, ...]
    vocabularies: tuple[Vocabulary, ...]
    local_ids: tuple[NDArray[np.int32], ...]
    """Per field, the local id of each code."""
    feature_counts: NDArray[np.int64]


def fit_vocabularies(first: FirstPass, folder: Path, known: RowEncoder | None, *, append: bool) -> Fitted:
    """Vocabularies of all fields in their order."""
    plan = first.plan
    edges = _edges(first, folder, known)
    train, everything = _bucket_counts(first, folder, edges)
    chosen = everything if plan.vocabulary_from == "all" else train
    totals = [_sum([chosen[at] for at in _members(first, owner)]) for owner in first.owners]
    min_counts = [min(plan.fields[at].min_count for at in _members(first, owner)) for owner in first.owners]
    starts = [_known(first, owner, known) for owner in first.owners]
    kept = [total >= low for total, low in zip(totals, min_counts, strict=True)]
    values = read_values(
        folder, first.journal.value_logs, [mask[: c.size] for mask, c in zip(kept, first.coders, strict=True)]
    )
    fields, vocabularies, local_ids, counts = [], [], [], []
    built: dict[str, tuple[Vocabulary, NDArray[np.int32]]] = {}
    for at, owner in enumerate(first.owners):
        field = plan.fields[_members(first, owner)[0]]
        if field.transform == "quantiles":
            labels = pl.Series([*map(str, range(len(edges[field.name]) + 1)), ""])
            values[at] = labels.filter(pl.Series(kept[at]))
            start = starts[at]
            if start is not None:
                built[owner] = start, start.to_ids(labels)
                continue
        built[owner] = extend_vocabulary(starts[at], values[at], np.flatnonzero(kept[at]), totals[at], append=append)
    for at, field in enumerate(plan.fields):
        vocabulary, ids = built[field.vocabulary or field.name]
        fields.append(replace(field, size=vocabulary.size, edges=edges.get(field.name, ())))
        vocabularies.append(vocabulary)
        local_ids.append(ids)
        mine = np.zeros(len(ids), np.int64)
        mine[: len(train[at])] = train[at][: len(ids)]
        counts.append(np.bincount(ids, weights=mine, minlength=vocabulary.size).astype(np.int64))
    if sum(v.size for v in vocabularies) > np.iinfo(np.int32).max:
        raise DataError("the features do not fit int32 ids; raise min_count, or hash the largest fields")
    dense = plan.dense if known is None else known.schema.dense
    scaled = tuple(_scale(first, folder, at, column, fit=known is None) for at, column in enumerate(dense))
    return Fitted(tuple(fields), scaled, tuple(vocabularies), tuple(local_ids), np.concatenate(counts))


def _members(first: FirstPass, owner: str) -> list[int]:
    return [at for at, field in enumerate(first.plan.fields) if (field.vocabulary or field.name) == owner]


def _known(first: FirstPass, owner: str, known: RowEncoder | None) -> Vocabulary | None:
    return None if known is None else known.vocabularies[_members(first, owner)[0]]


def _sum(parts: list[Counts]) -> Counts:
    if len(parts) == 1:
        return parts[0]
    total = np.zeros(max(len(part) for part in parts), np.int64)
    for part in parts:
        total[: len(part)] += part
    return total


def _edges(first: FirstPass, folder: Path, known: RowEncoder | None) -> dict[str, tuple[float, ...]]:
    """Quantiles of the training rows, from an even sample of them when there are very many."""
    if known is not None:
        return {field.name: field.edges for field in known.schema.fields if field.transform == "quantiles"}
    rows, width = first.journal.rows[0], len(first.quantiles)
    step, done, sample = max(1, -(-rows // SAMPLE_ROWS)), 0, []
    for block in read_part(folder / "train", "numbers", np.float64, (rows, width)):
        sample.append(block[-done % step :: step])
        done += len(block)
    numbers = np.concatenate(sample) if sample else np.empty((0, width))
    return {field.name: quantile_edges(numbers[:, at], field.num_buckets) for at, field in enumerate(first.quantiles)}


def _bucket_counts(
    first: FirstPass, folder: Path, edges: dict[str, tuple[float, ...]]
) -> tuple[list[Counts], list[Counts]]:
    """Counts of codes in the training split and in all rows, with the buckets of quantile fields counted too."""
    sizes = [first.coder_of(field).size for field in first.plan.fields]
    train: list[Counts] = [counts[:size] for counts, size in zip(first.counts, sizes, strict=True)]
    everything: list[Counts] = [counts[:size] for counts, size in zip(first.all_counts, sizes, strict=True)]
    names = [field.name for field in first.plan.fields]
    for column, field in enumerate(first.quantiles):
        at, size = names.index(field.name), len(edges[field.name]) + 2
        train[at], everything[at] = np.zeros(size, np.int64), np.zeros(size, np.int64)
        for name, rows in zip(SPLITS, first.journal.rows, strict=True):
            for numbers in read_part(folder / name, "numbers", np.float64, (rows, len(first.quantiles))):
                codes = bucket_codes(numbers[:, column], edges[field.name])
                counts = np.bincount(codes, minlength=size)
                everything[at] += counts
                train[at] += counts if name == "train" else 0
    return train, everything


def bucket_codes(numbers: NDArray[np.float64], edges: tuple[float, ...]) -> NDArray[np.int64]:
    """Bucket numbers; a missing number has the code after the last bucket."""
    missing = np.isnan(numbers)
    return np.where(missing, len(edges) + 1, quantile_buckets(np.where(missing, 0.0, numbers), edges))


def _scale(first: FirstPass, folder: Path, at: int, column: DenseColumn, *, fit: bool) -> DenseColumn:
    """Mean and standard deviation over the training rows."""
    if column.scaling == "none" or not fit:
        return column
    shape = (first.journal.rows[0], len(first.plan.dense))
    count, total, squares = 0, 0.0, 0.0
    for again in range(2):  # the mean first, then the spread around it
        mean = total / count if again and count else 0.0
        count, total, squares = 0, 0.0, 0.0
        for rows in read_part(folder / "train", "dense", np.float32, shape):
            block = rows[:, at].astype(np.float64)
            block = block[~np.isnan(block)]
            count, total = count + len(block), total + float(block.sum())
            squares += float(((block - mean) ** 2).sum())
    spread = (squares / count) ** 0.5 if count else 0.0
    return replace(column, mean=mean, scale=spread if spread > 0 else 1.0)
