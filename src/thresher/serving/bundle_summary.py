"""Summary of a bundle: sizes of its tables, and kept features and entries of each field."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from thresher.compact.table import CompactTable
from thresher.serving.bundle import Bundle


@dataclass(frozen=True, kw_only=True)
class FieldSummary:
    """One field of one table.

    Attributes:
        num_features: features of the field, including the unknown feature.
        num_kept: features with at least one kept entry; the others are dropped.
        num_parameters: kept entries.
        mean_size: kept entries per kept feature.
        storage_bytes: bytes of the table in proportion to the field's kept entries.
        density: share of entries that are kept.
    """

    table: str
    field: str
    num_features: int
    num_kept: int
    num_parameters: int
    mean_size: float
    storage_bytes: int
    density: float

    @property
    def num_dropped(self) -> int:
        return self.num_features - self.num_kept


@dataclass(frozen=True, kw_only=True)
class TableSummary:
    """One table: shape, kept entries, size and layout."""

    table: str
    num_features: int
    embedding_dim: int
    num_parameters: int
    num_dropped: int
    storage_bytes: int
    share_of_dense: float
    """`storage_bytes` divided by the bytes of a dense float32 table."""
    layout: str


@dataclass(frozen=True, kw_only=True)
class BundleSummary:
    """All tables, largest first, and the fields of each in the order of the schema."""

    tables: tuple[TableSummary, ...]
    fields: tuple[FieldSummary, ...]

    def fields_of(self, table: str) -> tuple[FieldSummary, ...]:
        return tuple(field for field in self.fields if field.table == table)


def summarise(bundle: Bundle) -> BundleSummary:
    """Count kept features and entries per table and field. Only compact tables are counted per field."""
    tables, fields = [], []
    for name, table in bundle.tables.items():
        sizes = table.sizes() if isinstance(table, CompactTable) else None
        num_features, embedding_dim = table.shape
        tables.append(
            TableSummary(
                table=name,
                num_features=num_features,
                embedding_dim=embedding_dim,
                num_parameters=table.num_parameters,
                num_dropped=0 if sizes is None else int((sizes == 0).sum()),
                storage_bytes=table.storage_bytes,
                share_of_dense=table.storage_bytes / max(4 * num_features * embedding_dim, 1),
                layout=_describe_layout(table),
            )
        )
        if sizes is not None:
            fields += _summarise_fields(bundle, name, sizes, table.storage_bytes, embedding_dim)
    tables.sort(key=lambda table: -table.storage_bytes)
    return BundleSummary(tables=tuple(tables), fields=tuple(fields))


def _summarise_fields(
    bundle: Bundle, table: str, sizes: Any, storage_bytes: int, embedding_dim: int
) -> list[FieldSummary]:
    schema = bundle.encoder.schema
    total = max(int(sizes.sum()), 1)
    fields = []
    for field, first in zip(schema.fields, schema.field_offsets, strict=True):
        own = sizes[first : first + field.size]
        entries, kept = int(own.sum()), int(np.count_nonzero(own))
        fields.append(
            FieldSummary(
                table=table,
                field=field.name,
                num_features=field.size,
                num_kept=kept,
                num_parameters=entries,
                mean_size=entries / kept if kept else 0.0,
                storage_bytes=round(storage_bytes * entries / total),
                density=entries / max(field.size * embedding_dim, 1),
            )
        )
    return fields


def _describe_layout(table: Any) -> str:
    if not isinstance(table, CompactTable):
        return str(table.form.kind)
    layout = table.layout
    parts = [f"{layout.row_index} rows", layout.content, layout.value_type]
    parts += ["full rows marked"] if layout.num_full_rows else []
    return ", ".join(parts)
