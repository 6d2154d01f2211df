"""Fields of a pruned model: what a bundle keeps of each, by name, and what validation AUC loses without it."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from statistics import fmean, stdev
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.compact.table import CompactTable
from thresher.data.batches.batches import Batches
from thresher.data.batches.split_batches import EVALUATION_BATCH_SIZE
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.table import Bag, EncodedSplit, EncodedTable
from thresher.errors import ThresherError
from thresher.report.fields import summarise_fields
from thresher.serving.bundle import Bundle
from thresher.training.epoch import evaluate

MAX_ROWS = 20_000  # of the validation split, at random; enough for a difference of 0.001
NUM_SHUFFLES = 3
NUM_NAMES = 5  # features listed by name
LONGEST_NAME = 40


def field_contents(bundle: Bundle, table: EncodedTable) -> list[dict[str, Any]]:
    """One entry per field and dense column, the largest contribution to AUC first."""
    kept = kept_fields(bundle, table)
    drops = auc_drops(bundle, table.split("validation"))
    names = [field.name for field in table.schema.fields]
    sizes = dict(zip(names, table.schema.field_sizes, strict=True))
    rows = []
    for name in [*names, *(column.name for column in table.schema.dense)]:
        drop, spread = drops.get(name, (None, None))
        own: dict[str, Any] = {"field": name, "num_features": sizes.get(name), "heaviest": [], "dropped": []}
        rows.append({**own, **kept.get(name, {}), "auc_drop": drop, "auc_drop_sd": spread})
    return sorted(rows, key=lambda row: -(row["auc_drop"] or 0.0))


def kept_fields(bundle: Bundle, data: EncodedTable) -> dict[str, dict[str, Any]]:
    """Field → what the embedding keeps of it; empty for methods that do not keep or drop single features."""
    tables = bundle.searched_tables
    table = tables.get("embedding") or next(iter(tables.values()), None)
    schema = bundle.encoder.schema
    if not isinstance(table, CompactTable) or len(table.sizes()) != schema.num_features:
        return {}
    sizes, counts, found = table.sizes(), data.feature_counts, {}
    names = RowEncoder.load(data.folder).full_vocabularies  # a bundle has no names of features that need no key
    summaries = summarise_fields(schema, sizes, "embedding", table.storage_bytes)
    for field, first, vocabulary in zip(summaries, schema.field_offsets, names, strict=True):
        rows = slice(first, first + field.num_features)
        found[field.field] = {
            **asdict(field),
            "kept_share": field.num_kept / max(field.num_features, 1),
            "entry_share": field.num_parameters / max(table.num_parameters, 1),
            **_names(vocabulary.values, sizes[rows], counts[rows]),
        }
    return found


def _names(values: pl.Series, sizes: NDArray[Any], counts: NDArray[np.int64]) -> dict[str, list[tuple[str, int]]]:
    """Features with the most entries, and the most frequent without any; local id 0 is the unknown feature."""

    def listed(local_ids: NDArray[Any], amounts: NDArray[Any]) -> list[tuple[str, int]]:
        return [(_name(values, int(local_id)), int(amounts[local_id])) for local_id in local_ids[:NUM_NAMES]]

    heaviest = np.lexsort((-counts, -sizes))
    dropped = np.argsort(-counts, kind="stable")
    seen = (sizes == 0) & (counts > 0)
    return {
        "heaviest": listed(heaviest[sizes[heaviest] > 0], sizes),
        "dropped": listed(dropped[seen[dropped]], counts),
    }


def _name(values: pl.Series, local_id: int) -> str:
    if local_id == 0:
        return "(unknown)"
    text = str(values[local_id - 1]) or "(missing)"
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def auc_drops(bundle: Bundle, split: EncodedSplit) -> dict[str, tuple[float, float]]:
    """Field → AUC lost when its values are shuffled between rows: mean and standard deviation of several shuffles.

    Empty if the rows are all of one class.
    """
    rng = np.random.default_rng(0)
    if split.num_rows > MAX_ROWS:
        split = _take(split, np.sort(rng.choice(split.num_rows, MAX_ROWS, replace=False)))
    try:
        whole = _auc(bundle, split)
    except ThresherError:
        return {}
    drops: dict[str, list[float]] = {}
    for _ in range(NUM_SHUFFLES):
        for name, shuffled in _shuffles(bundle, split, rng.permutation(split.num_rows)):
            drops.setdefault(name, []).append(whole - _auc(bundle, shuffled))
    return {name: (fmean(found), stdev(found)) for name, found in drops.items()}


def _auc(bundle: Bundle, split: EncodedSplit) -> float:
    return evaluate(bundle.model, Batches(split, EVALUATION_BATCH_SIZE)).auc


def _shuffles(bundle: Bundle, split: EncodedSplit, order: NDArray[np.int64]) -> Iterator[tuple[str, EncodedSplit]]:
    """The split with one field or dense column after the other in another order."""
    schema = bundle.encoder.schema
    for at, field in enumerate(schema.single_fields):
        ids = np.array(split.ids)
        ids[:, at] = ids[order, at]
        yield field.name, replace(split, ids=ids)
    for at, field in enumerate(schema.bag_fields):
        bags = list(split.bags)
        bags[at] = _take_bag(bags[at], order)
        yield field.name, replace(split, bags=tuple(bags))
    for at, column in enumerate(schema.dense):
        assert split.dense is not None
        dense = np.array(split.dense)
        dense[:, at] = dense[order, at]
        yield column.name, replace(split, dense=dense)


def _take(split: EncodedSplit, rows: NDArray[np.int64]) -> EncodedSplit:
    return replace(
        split,
        ids=split.ids[rows],
        labels=split.labels[rows],
        dense=None if split.dense is None else split.dense[rows],
        weights=None if split.weights is None else split.weights[rows],
        bags=tuple(_take_bag(bag, rows) for bag in split.bags),
    )


def _take_bag(bag: Bag, rows: NDArray[np.int64]) -> Bag:
    offsets = np.asarray(bag.offsets)
    lengths = np.diff(offsets)[rows]
    new = np.concatenate(([0], np.cumsum(lengths)))
    places = np.repeat(offsets[:-1][rows] - new[:-1], lengths) + np.arange(new[-1])
    return replace(bag, values=np.asarray(bag.values)[places], offsets=new)
