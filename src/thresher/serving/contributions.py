"""What each input contributes to a prediction, for any model that predicts encoded rows. Works without torch."""

from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from thresher.data.schema import Schema
from thresher.data.table import Bag, EncodedRows

TINY = 1e-7  # float32 probabilities of exactly 0 or 1 have no finite log-odds
State = Literal["known", "unknown", "number"]


class SchemaPredictor(Protocol):
    """What `Predictor` and `NumpyPredictor` have in common."""

    @property
    def schema(self) -> Schema: ...

    def predict_rows(self, rows: EncodedRows) -> npt.NDArray[np.float32]: ...


@dataclass(frozen=True)
class Contribution:
    """One field or dense column of one row."""

    name: str
    column: str
    state: State
    """`unknown`: no value of the field has a feature of its own; `number`: a dense column."""
    contribution: float
    """The log-odds of the row, minus those with this input unknown (a dense column: at its training mean)."""


def field_contributions(predictor: SchemaPredictor, row: EncodedRows) -> list[Contribution]:
    """The contribution of each input of one encoded row, in the order of the schema.

    Inputs interact in most models, so that contributions do not add up to the log-odds of the row. They do for `lr`.
    """
    if len(row.ids) != 1:
        raise ValueError(f"expected one row, got {len(row.ids)}")
    schema = predictor.schema
    inputs = _inputs(schema)
    logits = _log_odds(predictor.predict_rows(_variants(row, schema)))
    states = _states(row, schema)
    return [
        Contribution(name, column, states[at], float(logits[0] - logits[at + 1]))
        for at, (name, column) in enumerate(inputs)
    ]


def _inputs(schema: Schema) -> list[tuple[str, str]]:
    """Name and raw column of every input: single-valued fields, multi-valued fields, dense columns."""
    fields, dense = (
        ((each.name, each.column) for each in schema.fields),
        ((each.name, each.column) for each in schema.dense),
    )
    return [*fields, *dense]


def _variants(row: EncodedRows, schema: Schema) -> EncodedRows:
    """The row itself, then one copy for each input in which this input is unknown."""
    num_single, num_bags = row.ids.shape[1], len(row.bags)
    copies = 1 + num_single + num_bags + schema.num_dense
    ids = np.repeat(row.ids, copies, axis=0)
    at = np.arange(num_single)
    ids[1 + at, at] = np.array(schema.field_offsets[:num_single], np.int32)
    bags = tuple(_without_one(bag, copies, 1 + num_single + place) for place, bag in enumerate(row.bags))
    if row.dense is None:
        return EncodedRows(ids, None, bags)
    dense = np.repeat(row.dense, copies, axis=0)
    at = np.arange(schema.num_dense)
    dense[1 + num_single + num_bags + at, at] = 0  # scaled numbers have mean 0
    return EncodedRows(ids, dense, bags)


def _without_one(bag: Bag, copies: int, empty: int) -> Bag:
    """A bag of one row, repeated; the copy at place `empty` has no values."""
    values = np.asarray(bag.values)
    counts = np.full(copies, len(values), np.int64)
    counts[empty] = 0
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.asarray(bag.offsets).dtype)
    return replace(bag, values=np.tile(values, copies - 1), offsets=offsets)


def _states(row: EncodedRows, schema: Schema) -> list[State]:
    offsets = schema.field_offsets
    states: list[State] = ["unknown" if row.ids[0, at] == offsets[at] else "known" for at in range(row.ids.shape[1])]
    states += ["known" if (np.asarray(bag.values) != offsets[bag.field]).any() else "unknown" for bag in row.bags]
    return states + ["number"] * schema.num_dense


def _log_odds(probabilities: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    clipped = np.clip(probabilities.astype(np.float64), TINY, 1 - TINY)
    return np.log(clipped) - np.log1p(-clipped)
