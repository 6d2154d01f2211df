"""show: what is in this run, ticket, bundle or encoded table, from its files alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.cli import options
from thresher.cli.console import show_frontier, show_json, told_plainly
from thresher.errors import FormatError
from thresher.report.frontier import Frontier
from thresher.report.tables import format_bytes, format_share

if TYPE_CHECKING:
    from thresher.data.encoded_table import EncodedTable
    from thresher.data.schema import Schema

Facts = dict[str, Any]


@told_plainly()
def show(
    path: Annotated[Path, typer.Argument(help="A run, a ticket, a bundle, an encoded table, or a results.json.")],
    as_json: options.Json = False,
) -> None:
    """What is in this run, ticket, bundle or encoded table."""
    facts, frontier = _describe(path)
    if as_json:
        show_json(facts if frontier is None else {**facts, "results": frontier.to_json()})
        return
    show_facts(facts)
    if frontier is not None:
        show_frontier(frontier)


def show_facts(facts: Mapping[str, Any]) -> None:
    """Facts one a line; lists of rows as a small table below."""
    plain = {key: value for key, value in facts.items() if not isinstance(value, list) or not _is_rows(value)}
    width = max(map(len, plain))
    for key, value in plain.items():
        print(f"{key.replace('_', ' '):<{width}}  {_write(key, value)}")  # noqa: T201
    for key, rows in facts.items():
        if key not in plain:
            print()  # noqa: T201
            _print_rows(rows)


def describe_table(table: "EncodedTable") -> Facts:
    """An encoded table: its rows by split, its fields with their sizes."""
    schema = table.schema
    return {
        "kind": "encoded table",
        "folder": str(table.folder),
        "rows": {str(name): int(count) for name, count in table.facts["rows"].items()},
        "label": schema.label.column,
        "positive_share": round(table.split("train").positive_share, 4),
        "num_features": schema.num_features,
        "fields": [
            {
                "field": f.name,
                "column": f.column,
                "features": f.size,
                "transform": f.transform,
                "min_count": f.min_count,
            }
            for f in schema.fields
        ],
    }


def _describe(path: Path) -> tuple[Facts, Frontier | None]:
    from thresher.data.encoded_table import EncodedTable

    if not path.exists():
        raise FormatError(f"{path}: no such file or folder")
    if path.is_file():
        return {"kind": "results", "file": str(path)}, Frontier.load(path)
    if (path / "config.toml").exists():
        return _describe_run(path)
    if (path / "ticket.json").exists():
        return _describe_ticket(path), None
    if (path / "bundle.json").exists():
        return _describe_bundle(path), None
    if (path / "table.json").exists():
        return describe_table(EncodedTable.open(path)), None
    raise FormatError(f"{path} is no run, ticket, bundle or encoded table of ours; name such a folder")


def _describe_run(folder: Path) -> tuple[Facts, Frontier | None]:
    from thresher.embeddings.registry import method_name
    from thresher.files import read_json
    from thresher.models.registry import model_name
    from thresher.runs import Run

    run = Run.open(folder)
    config = run.config
    tickets = run.tickets / "tickets.json"
    stages = {"encoded": (run.encoded / "table.json").exists(), "dense": (run.dense / "point.json").exists()}
    stages |= {"tickets": tickets.exists()}
    stages |= {f"retrained {b}": (run.retrained(b) / "point.json").exists() for b in config.wanted_budgets()}
    facts = {
        "kind": "run",
        "folder": str(folder),
        "data": config.data.source if config.data.source != "files" else ", ".join(config.data.paths),
        "model": model_name(config.model),
        "method": method_name(config.embedding),
        "embedding_dim": config.embedding.embedding_dim,
        "budgets": [str(budget) for budget in config.wanted_budgets()],
        "seed": config.seed,
        "done": [name for name, done in stages.items() if done],
        "to_do": [name for name, done in stages.items() if not done],
    }
    if tickets.exists():
        facts["tickets"] = [str(run.tickets / slug) for slug in read_json(tickets)["tickets"]]
    return facts, Frontier.load(run.results) if run.results.exists() else None


def _describe_ticket(folder: Path) -> Facts:
    from thresher.config import config_to_mapping
    from thresher.data.schema import Schema
    from thresher.tickets.settings import SettingsTicket
    from thresher.tickets.sizes import SizeTicket
    from thresher.tickets.store import load_ticket
    from thresher.tickets.ticket import MaskTicket

    ticket = load_ticket(folder)
    facts: Facts = {
        "kind": "ticket",
        "folder": str(folder),
        "budget": str(ticket.budget),
        "num_parameters": ticket.num_parameters,
        "method": ticket.provenance.method,
        "seed": ticket.provenance.seed,
        "cut_at_step": ticket.provenance.step,
    }
    if isinstance(ticket, SettingsTicket):
        facts["settings"] = config_to_mapping(ticket.embedding)
        facts["storage_bytes"] = ticket.storage_bytes
    masks = ticket.masks if isinstance(ticket, MaskTicket) else {}
    for name, mask in masks.items():
        sizes = mask.sum(dim=1)
        facts[f"table {name}"] = (
            f"{mask.shape[0]:,} × {mask.shape[1]}, {int(mask.sum()):,} entries kept "
            f"({format_share(float(mask.float().mean()))}), {int((sizes == 0).sum()):,} features dropped"
        )
    if isinstance(ticket, SizeTicket):
        for name, table in ticket.tables.items():
            widths = ", ".join(f"{table.sizes.count(size)} of width {size}" for size in sorted(set(table.sizes)))
            facts[f"table {name}"] = f"{len(table.sizes)} groups of features: {widths}"
    sizes_by_table = ticket.sizes() if isinstance(ticket, MaskTicket | SizeTicket) else {}
    schema_file = folder.parent.parent / "encoded" / "schema.json"
    if sizes_by_table and schema_file.exists():
        schema = Schema.from_json(schema_file.read_text(encoding="utf-8"))
        facts["fields"] = _kept_by_field(schema, [sizes.tolist() for sizes in sizes_by_table.values()])
    return facts


def _kept_by_field(schema: "Schema", sizes_by_table: Sequence[list[int]]) -> list[Facts]:
    """How much of each field stays, over the tables that hold all features."""
    tables = [sizes for sizes in sizes_by_table if len(sizes) == schema.num_features]
    rows = []
    for field, start in zip(schema.fields, schema.field_offsets, strict=True):
        kept = [size for sizes in tables for size in sizes[start : start + field.size] if size]
        rows.append(
            {
                "field": field.name,
                "features": field.size,
                "kept": len(kept),
                "entries": sum(kept),
                "mean_size": round(sum(kept) / len(kept), 1) if kept else 0.0,
            }
        )
    return rows


def _describe_bundle(folder: Path) -> Facts:
    from thresher.export.bundle import open_bundle
    from thresher.models.registry import model_name

    bundle = open_bundle(folder)
    schema = bundle.encoder.schema
    return {
        "kind": "bundle",
        "folder": str(folder),
        "model": model_name(bundle.model_config),
        "num_parameters": bundle.num_parameters,
        "storage_bytes": bundle.storage_bytes,
        "bytes_on_disk": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        **{str(key): value for key, value in bundle.facts.items()},
        "tables": [
            {"table": name, "shape": f"{t.num_features:,} × {t.embedding_dim}", "kept": t.num_parameters,
             "bytes": t.storage_bytes}
            for name, t in bundle.tables.items()
        ],
        "fields": [{"field": f.name, "column": f.column, "features": f.size} for f in schema.fields],
    }  # fmt: skip


def _is_rows(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(item, Mapping) for item in value)


def _write(key: str, value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:,} ({format_bytes(value)})" if "bytes" in key else str(value) if key == "seed" else f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_write(name, item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "nothing"
    return str(value)


def _print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    titles = list(rows[0])
    cells = [
        [title.replace("_", " ") for title in titles],
        *([_write("", row[title]) for title in titles] for row in rows),
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(titles))]
    right = [isinstance(rows[0][title], int | float) for title in titles]
    for line in cells:
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)]
        print("  ".join(padded).rstrip())  # noqa: T201
