"""show: what is in this run, comparison, ticket, bundle or encoded table, from its files alone."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thresher._internal.text import format_share
from thresher.cli import options
from thresher.cli.console import Facts, Shown, handle_errors, say, show_facts, show_frontier, show_json
from thresher.cli.show_bundle import look_at_bundle, show_kept
from thresher.cli.show_comparison import look_at_comparison
from thresher.cli.show_table import look_at_table
from thresher.errors import ConfigError, FormatError
from thresher.report.frontier import Frontier

if TYPE_CHECKING:
    from thresher.data.schema import Schema

OTHER_FIGURES = (".pdf", ".jpg", ".jpeg", ".gif", ".eps", ".ps", ".webp", ".tif", ".tiff", ".bmp", ".html", ".xlsx")


@handle_errors()
def show(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="THING", help="A run, a comparison, a ticket, a bundle, an encoded table, or a results.json."
        ),
    ],
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw it, too: FILE.png and FILE.svg.", rich_help_panel=options.OUTPUT),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """What is in this run, comparison, ticket, bundle or encoded table.

    Run: what is done, and its results. Comparison: its table. Ticket: what it keeps of each field.
    Bundle: tables by size, kept and dropped features of each field, quality.
    Encoded table: rows, features, unknown share, head and tail of frequencies.
    """
    _check_figure(figure)
    shown = _look(path)
    if as_json:
        show_json(shown.facts)
    else:
        shown.display()
    if figure is None:
        return
    if shown.draw is None:
        raise ConfigError(f"{path}: there is nothing to draw yet; leave --figure out")
    for file in shown.draw(figure):
        say(f"Figure  {file}")


def _check_figure(figure: Path | None) -> None:
    """Refuse an ending that would only become part of the file's name."""
    if figure is not None and figure.suffix.lower() in OTHER_FIGURES:
        raise ConfigError(
            f"--figure {figure}: figures are written as .png and .svg; name {figure.with_suffix('.png')} for both"
        )


def _look(path: Path) -> Shown:
    if not path.exists():
        raise FormatError(f"{path}: no such file or folder")
    if path.is_file() and path.suffix.lower() != ".json":
        raise FormatError(
            f"{path} is no file of ours; what we would make of a file of rows shows: thresher encode {path} --dry-run"
        )
    if path.is_file():
        return _shown({"kind": "results", "file": str(path)}, Frontier.load(path))
    if (path / "config.toml").exists():
        return _shown(*_describe_run(path))
    if (path / "ticket.json").exists():
        return _look_at_ticket(path)
    if (path / "bundle.json").exists():
        return look_at_bundle(path)
    if (path / "table.json").exists():
        return look_at_table(path)
    if (path / "settings.toml").exists() and (path / "points").is_dir():
        return look_at_comparison(path)
    raise FormatError(f"{path} is no run, comparison, ticket, bundle or encoded table of ours; name such a folder")


def _shown(facts: Facts, frontier: Frontier | None) -> Shown:
    """Facts, and results where there are any."""
    if frontier is None:
        return Shown(facts, partial(show_facts, facts))
    from thresher.report.plots import plot_frontier

    def display() -> None:
        show_facts(facts)
        show_frontier(frontier)

    return Shown({**facts, "results": frontier.to_json()}, display, partial(plot_frontier, frontier))


def _describe_run(folder: Path) -> tuple[Facts, Frontier | None]:
    from thresher._internal.files import read_json
    from thresher.embeddings.method_registry import method_name
    from thresher.experiment.runs import Run
    from thresher.models.model_registry import model_name

    run = Run.open(folder)
    config = run.config
    tickets = run.tickets / "tickets.json"
    stages = {"encoded": (run.encoded / "table.json").exists(), "dense": (run.dense / "point.json").exists()}
    stages |= {"tickets": tickets.exists()}
    stages |= {f"retrained {b}": (run.retrained(b) / "point.json").exists() for b in config.wanted_budgets()}
    facts = {
        "kind": "run",
        "folder": str(folder),
        "data": ", ".join(config.data.paths) or config.data.source,
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
    frontier = Frontier.load(run.results) if run.results.exists() else None
    if config.max_auc_drop is not None:
        facts["max_auc_drop"] = config.max_auc_drop
        if frontier is not None:
            facts |= {name: frontier.metadata[name] for name in ("recommended", "doubts") if name in frontier.metadata}
    return facts, frontier


def _look_at_ticket(folder: Path) -> Shown:
    from thresher._internal.settings import config_to_mapping
    from thresher.data.schema import Schema
    from thresher.report.field_plots import KeptField, plot_kept_fields
    from thresher.search.ticket import MaskTicket, SettingsTicket, SizeTicket
    from thresher.search.ticket_files import load_ticket

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
    # in the run's folder, whose ticket may be of a taught search, a folder further down
    schema_file = next((path for up in folder.parents[1:3] if (path := up / "encoded" / "schema.json").exists()), None)
    if sizes_by_table and schema_file is not None:
        schema = Schema.from_json(schema_file.read_text(encoding="utf-8"))
        facts["fields"] = _kept_by_field(schema, [sizes.tolist() for sizes in sizes_by_table.values()])
        kept = [KeptField(name=row["field"], num_features=row["features"], num_kept=row["kept"],
                          mean_size=row["mean_size"]) for row in facts["fields"]]  # fmt: skip
        return Shown(facts, partial(_display_ticket, facts), partial(plot_kept_fields, kept))
    return Shown(facts, partial(show_facts, facts))


def _display_ticket(facts: Facts) -> None:
    show_facts({key: value for key, value in facts.items() if key != "fields"})
    print("\nwhat is kept of each field, and the share of features kept")  # noqa: T201
    show_kept([(*row.values(), None) for row in facts["fields"]])


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
