"""share_first_order_(): most first-order weights of a trained model become one shared weight per field.

First-order weights are a table of width 1 over all features. Beside a strongly pruned table they, and the values that
belong to them, are nearly the whole bundle.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from thresher.compact.method_table import AnyTable, StoredEmbedding
from thresher.compact.table import CompactTable
from thresher.data.schema import Schema
from thresher.errors import ConfigError
from thresher.models.base import CtrModel

FIRST_ORDER = "linear_term.weights"
BIAS = "linear_term.bias"


def share_first_order_(
    model: CtrModel,
    tables: Mapping[str, AnyTable],
    schema: Schema,
    counts: NDArray[np.int64],
    num_own: int,
) -> dict[str, AnyTable]:
    """Keep `num_own` first-order weights of a model from a bundle; all others of a field get one shared weight.

    The shared weight is their mean in the training rows. It moves into the bias, so that the table keeps nothing of it.
    A weight stays its own if this changes the logits of the training rows most: by `count · (weight − shared)²`. If the
    unknown feature of a field is rarer than the dropped features together, it is dropped, too: then no dropped feature
    of the field needs a value in the bundle. Multi-valued fields share the weight 0.

    Args:
        counts: occurrences of each feature in the training rows `[N]` (`EncodedTable.feature_counts`).

    Returns:
        The new tables; `model` uses them.
    """
    first_order = tables.get(FIRST_ORDER)
    if not isinstance(first_order, CompactTable):
        raise ConfigError("the model has no first-order weights to share")
    for table in tables.values():
        if isinstance(table, CompactTable) and table.placeholder is not None:
            raise ConfigError("first-order weights cannot be shared if pruned entries read as the mean of their field")
    weights = first_order.to_dense()[:, 0].astype(np.float64)
    own, shared = _choose_own(weights, schema, counts, num_own)
    vectors = {name: table for name, table in tables.items() if name != FIRST_ORDER}
    keyed = own.copy()
    for table in vectors.values():
        if isinstance(table, CompactTable):
            keyed |= table.sizes() > 0
    cleared = rare_unknowns(keyed, schema, counts)
    own &= ~cleared
    new: dict[str, AnyTable] = {name: _without_rows(table, cleared) for name, table in vectors.items()}
    differences = (weights - np.repeat(shared, schema.field_sizes))[own].astype(np.float32)
    new[FIRST_ORDER] = CompactTable.from_entries(first_order.shape, np.flatnonzero(own), differences)
    for name, table in new.items():
        model.set_submodule(name, StoredEmbedding(schema.field_sizes, table))
    with torch.no_grad():
        model.get_parameter(BIAS).add_(float(shared.sum()))
    return {name: new[name] for name in tables}


def _choose_own(
    weights: NDArray[np.float64], schema: Schema, counts: NDArray[np.int64], num_own: int
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """The features that keep their weight `[N]`, and the weight that the others of a field share `[F]`."""
    sizes = np.array(schema.field_sizes)
    fields = np.repeat(np.arange(len(sizes)), sizes)  # [N]
    mass, own = counts.astype(np.float64), np.zeros(len(weights), np.bool_)
    single = np.array([field.pooling is None for field in schema.fields])
    for _ in range(3):  # the shared weight depends on which features share it
        shared = _field_means(weights, np.where(own, 0.0, mass), fields, len(sizes)) * single
        distance = mass * (weights - shared[fields]) ** 2
        own = np.zeros(len(weights), np.bool_)
        chosen = np.argsort(-distance, kind="stable")[:num_own]
        own[chosen[distance[chosen] > 0]] = True
    return own, shared


def rare_unknowns(kept: NDArray[np.bool_], schema: Schema, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The unknown features that are rarer than all features of their field that are not kept together, `[N]`."""
    offsets, sizes = np.array(schema.field_offsets), np.array(schema.field_sizes)
    fields = np.repeat(np.arange(len(sizes)), sizes)
    dropped = np.bincount(fields[~kept], counts[~kept], len(sizes))
    rare = np.zeros(len(kept), np.bool_)
    rare[offsets[counts[offsets] <= dropped]] = True
    return rare


def _field_means(
    weights: NDArray[np.float64], mass: NDArray[np.float64], fields: NDArray[np.int64], num_fields: int
) -> NDArray[np.float64]:
    total = np.bincount(fields, mass, num_fields)
    return np.asarray(np.bincount(fields, mass * weights, num_fields) / np.maximum(total, 1.0))


def _without_rows(table: AnyTable, rows: NDArray[np.bool_]) -> AnyTable:
    """A compact table without the entries of some rows."""
    if not isinstance(table, CompactTable) or not (table.sizes()[rows] > 0).any():
        return table
    positions, values = table.entries()
    stays = ~rows[positions // table.embedding_dim]
    return CompactTable.from_entries(table.shape, positions[stays], values[stays], value_type=table.value_type)
