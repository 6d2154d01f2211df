"""What `show` prints of a ticket or a bundle: the size of its tables, and what each field keeps."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from thresher._internal.text import format_bytes, format_share, shorten
from thresher.cli import console
from thresher.cli.console import Details, View, print_details, print_rows

if TYPE_CHECKING:
    from thresher.report.fields import FieldSummary
    from thresher.search.ticket import Ticket
    from thresher.serving.bundle import Bundle


NAME_WIDTH = 20


def view_ticket(folder: Path) -> View:
    import numpy as np

    from thresher.data.schema import Schema
    from thresher.report.fields import plot_kept_fields, summarise_fields
    from thresher.search.ticket import MaskTicket, SizeTicket
    from thresher.search.ticket_files import load_ticket

    ticket = load_ticket(folder)
    details = _describe_ticket(folder, ticket)
    sizes = ticket.sizes() if isinstance(ticket, MaskTicket | SizeTicket) else {}
    # tickets of a distilled search are one folder deeper in the run's folder
    schema_file = next((path for up in folder.parents[1:3] if (path := up / "encoded" / "schema.json").exists()), None)
    if not sizes or schema_file is None:
        return View(details, partial(print_details, details))
    schema = Schema.from_json(schema_file.read_text(encoding="utf-8"))
    whole = [np.asarray(kept) for kept in sizes.values() if len(kept) == schema.num_features]
    fields = summarise_fields(schema, np.reshape(whole, (-1, schema.num_features)), "ticket")
    rows = [
        {
            "field": field.field,
            "features": field.num_features,
            "kept": field.num_kept,
            "entries": field.num_parameters,
            "mean_size": round(field.mean_size, 1),
        }
        for field in fields
    ]

    def display() -> None:
        print_details(details)
        print_fields("", fields)

    return View({**details, "fields": rows}, display, partial(plot_kept_fields, fields))


def _describe_ticket(folder: Path, ticket: "Ticket") -> Details:
    from thresher._internal.settings import config_to_mapping
    from thresher.search.ticket import MaskTicket, SettingsTicket, SizeTicket

    details: Details = {
        "kind": "ticket",
        "folder": str(folder),
        "budget": str(ticket.budget),
        "num_parameters": ticket.num_parameters,
        "method": ticket.provenance.method,
        "seed": ticket.provenance.seed,
        "cut_at_step": ticket.provenance.step,
    }
    if isinstance(ticket, SettingsTicket):
        details["settings"] = config_to_mapping(ticket.embedding)
        details["storage_bytes"] = ticket.storage_bytes
    for name, mask in ticket.masks.items() if isinstance(ticket, MaskTicket) else ():
        num_dropped = int((mask.sum(dim=1) == 0).sum())
        details[f"table {name}"] = (
            f"{mask.shape[0]:,} × {mask.shape[1]}, {int(mask.sum()):,} entries kept "
            f"({format_share(float(mask.float().mean()))}), {num_dropped:,} features dropped"
        )
    for name, table in ticket.tables.items() if isinstance(ticket, SizeTicket) else ():
        widths = ", ".join(f"{table.sizes.count(size)} of width {size}" for size in sorted(set(table.sizes)))
        details[f"table {name}"] = f"{len(table.sizes)} groups of features: {widths}"
    return details


def print_fields(prefix: str, fields: "Sequence[FieldSummary]") -> None:
    print(f"\n{prefix}kept features and entries of each field; the bar is the share of features kept")
    rows = []
    for field in fields:
        row: Details = {
            "field": shorten(field.field, NAME_WIDTH),
            "features": field.num_features,
            "features kept": field.num_kept,
            "features dropped": field.num_features - field.num_kept,
            "entries kept": field.num_parameters,
            "mean size": round(field.mean_size, 1),
        }
        row |= {} if field.storage_bytes is None else {"stored": format_bytes(field.storage_bytes)}
        rows.append(row | {"": console.share_bar(field.num_kept / max(field.num_features, 1), 10)})
    print_rows(rows)


def view_bundle(folder: Path) -> View:
    from thresher.report.fields import plot_kept_fields
    from thresher.serving.bundle import open_bundle

    bundle = open_bundle(folder)
    details = _describe_bundle(bundle)
    tables, fields = _describe_tables(bundle)
    names = [table["table"] for table in tables]
    main = "embedding" if "embedding" in names or not names else names[0]
    of_main = [field for field in fields if field.table == main]
    widths = {table["table"]: table["embedding_dim"] for table in tables}
    more = [
        {
            "density": field.num_parameters / max(field.num_features * widths[field.table], 1),
            "num_dropped": field.num_features - field.num_kept,
        }
        for field in fields
    ]
    content = details | {"tables": tables, "fields": [asdict(f) | m for f, m in zip(fields, more, strict=True)]}

    def display() -> None:
        print_details({key: round(value, 4) if isinstance(value, float) else value for key, value in details.items()})
        _print_tables(tables)
        if of_main:
            print_fields(f"{main}: ", of_main)

    return View(content, display, partial(plot_kept_fields, of_main))


def _describe_tables(bundle: "Bundle") -> "tuple[list[Details], list[FieldSummary]]":
    """All tables, largest first, and the fields of each compact table."""
    from thresher.compact.table import CompactTable
    from thresher.report.fields import summarise_fields

    tables, fields = [], []
    for name, table in bundle.tables.items():
        num_features, embedding_dim = table.shape
        details: Details = {
            "table": name,
            "num_features": num_features,
            "embedding_dim": embedding_dim,
            "num_parameters": table.num_parameters,
            "num_dropped": 0,
            "storage_bytes": table.storage_bytes,
            "share_of_dense": table.storage_bytes / max(4 * num_features * embedding_dim, 1),
        }
        if isinstance(table, CompactTable):
            sizes, layout = table.sizes(), table.layout
            full = ["full rows marked"] if layout.num_full_rows else []
            details["num_dropped"] = int((sizes == 0).sum())
            details["layout"] = ", ".join([f"{layout.row_index} rows", layout.content, layout.value_type, *full])
            fields += summarise_fields(bundle.encoder.schema, sizes, name, table.storage_bytes)
        else:
            details["layout"] = str(table.form.kind)
        tables.append(details)
    return sorted(tables, key=lambda table: -table["storage_bytes"]), fields


def _describe_bundle(bundle: "Bundle") -> Details:
    from thresher.models.model_registry import model_name

    details: Details = {
        "kind": "bundle",
        "folder": str(bundle.folder),
        "model": model_name(bundle.model_config),
        "num_parameters": bundle.num_parameters,
        "storage_bytes": bundle.storage_bytes,
        "bytes_on_disk": sum(file.stat().st_size for file in bundle.folder.rglob("*") if file.is_file()),
    }
    stored = {"method" if key == "label" else str(key): value for key, value in bundle.metadata.items()}
    return details | {key: value for key, value in stored.items() if key not in details and value is not None}


def _print_tables(tables: Sequence[Details]) -> None:
    rows = [
        {
            "table": table["table"],
            "shape": f"{table['num_features']:,} × {table['embedding_dim']}",
            "entries kept": table["num_parameters"],
            "features kept": table["num_features"] - table["num_dropped"],
            "features dropped": table["num_dropped"],
            "stored": format_bytes(table["storage_bytes"]),
            "of dense": format_share(table["share_of_dense"]),
        }
        for table in tables
    ]
    if rows:
        print()
        print_rows(rows)
    for table in tables:
        print(f"  {table['table']}: {table['layout']}")
