"""What people look at in an encoded table: rows, features by field, unknown share, head and tail. Data only."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from thresher.data.batches.split import SPLITS
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.schema import Schema
from thresher.data.table import EncodedSplit, EncodedTable

TAIL_EDGES = (1, 10, 100, 1_000, 10_000, 100_000)
_BLOCK_ROWS = 1 << 18


@dataclass(frozen=True)
class FieldStatistics:
    """One field. Counts are of the training split; the unknown feature is not among head and tail."""

    name: str
    num_features: int
    """The unknown one included."""
    unknown_share: dict[str, float]
    """By split, the share of the field's values that are unknown."""
    head: tuple[tuple[str, int], ...]
    """The most frequent values with their counts."""
    head_share: float
    """Share of the training rows that these few values cover."""
    tail: tuple[tuple[str, int], ...]
    """How many features were seen how often: `1–9`, `10–99`, …"""


@dataclass(frozen=True)
class TableStatistics:
    """One table."""

    num_rows: dict[str, int]
    positive_share: dict[str, float]
    num_features: int
    fields: tuple[FieldStatistics, ...]
    frequency_curve: tuple[tuple[int, int], ...]
    """(rank, count) of the features training saw, over all fields, most frequent first, down to the rarest; ranks are
    evenly spaced on a log scale, and so are counts."""
    skipped_rows: int = 0


def table_statistics(table: EncodedTable, *, head: int = 5) -> TableStatistics:
    """Read through the table once and count."""
    splits = {name: table.split(name) for name in SPLITS}
    schema = table.schema
    unknown = {name: _unknown_shares(split, table) for name, split in splits.items()}
    values = [vocabulary.values for vocabulary in RowEncoder.load(table.folder).vocabularies]
    fields = []
    for at, (field, offset) in enumerate(zip(schema.fields, schema.field_offsets, strict=True)):
        counts = table.feature_counts[offset + 1 : offset + field.size]
        top = np.argsort(-counts, kind="stable")[:head]
        total = int(table.feature_counts[offset : offset + field.size].sum())
        fields.append(
            FieldStatistics(
                name=field.name,
                num_features=field.size,
                unknown_share={name: float(shares[at]) for name, shares in unknown.items()},
                head=tuple((values[at][int(place)], int(counts[place])) for place in top),
                head_share=float(counts[top].sum() / total) if total else 0.0,
                tail=_tail(counts),
            )
        )
    return TableStatistics(
        num_rows={name: split.num_rows for name, split in splits.items()},
        positive_share={name: split.positive_share for name, split in splits.items()},
        num_features=schema.num_features,
        fields=tuple(fields),
        frequency_curve=_curve(table.feature_counts),
        skipped_rows=int(table.facts.get("skipped", 0)),
    )


def count_unknown(ids: NDArray[np.int32], schema: Schema) -> NDArray[np.int64]:
    """How many rows of `ids` `[rows, F]` have each single-valued field's unknown feature, `[F]`."""
    offsets = np.array(schema.field_offsets[: ids.shape[1]], np.int32)
    counts: NDArray[np.int64] = (ids == offsets).sum(axis=0)
    return counts


def _unknown_shares(split: EncodedSplit, table: EncodedTable) -> NDArray[np.float64]:
    schema = table.schema
    singles = len(schema.single_fields)
    counts = np.zeros(schema.num_fields)
    for start in range(0, split.num_rows, _BLOCK_ROWS):
        counts[:singles] += count_unknown(split.ids[start : start + _BLOCK_ROWS], schema)
    totals = np.full(schema.num_fields, float(max(split.num_rows, 1)))
    for bag in split.bags:
        counts[bag.field] = np.count_nonzero(bag.values == schema.field_offsets[bag.field])
        totals[bag.field] = max(len(bag.values), 1)
    shares: NDArray[np.float64] = counts / totals
    return shares


def _tail(counts: NDArray[np.int64]) -> tuple[tuple[str, int], ...]:
    edges = [0, *TAIL_EDGES]
    names = ["0", *(f"{low:,}–{high - 1:,}" for low, high in pairwise(TAIL_EDGES))]
    names.append(f"{TAIL_EDGES[-1]:,}+")
    places = np.searchsorted(edges, counts, side="right") - 1
    return tuple((name, int(many)) for name, many in zip(names, np.bincount(places, minlength=len(names)), strict=True))


def _curve(counts: NDArray[np.int64], points: int = 60) -> tuple[tuple[int, int], ...]:
    ordered = np.sort(counts[counts > 0])[::-1]
    if not len(ordered):
        return ()
    by_rank = np.geomspace(1, len(ordered), points).astype(np.int64)
    # where counts fall steeply, in the tail, ranks alone would leave most of the fall out
    levels = np.geomspace(1, ordered[0], points)
    by_count = len(ordered) - np.searchsorted(ordered[::-1], levels, side="left")
    ranks = np.unique(np.concatenate([by_rank, by_count]))
    return tuple((int(rank), int(ordered[rank - 1])) for rank in ranks)
