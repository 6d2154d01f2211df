"""What `show` prints of a ticket: what it keeps of each field."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from thresher._internal.text import format_bytes, format_share, shorten
from thresher.cli.display import console
from thresher.cli.display.console import Details, View, print_details, print_rows

if TYPE_CHECKING:
    from thresher.report.fields import FieldSummary
    from thresher.search.ticket import Ticket


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
