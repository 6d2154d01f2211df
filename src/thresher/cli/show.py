"""show: the contents of a run, comparison, ticket, bundle or encoded table, from its files; verify: their checksums."""

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thresher._internal.registry import import_modules
from thresher.cli import console
from thresher.cli.compare_command import view_comparison
from thresher.cli.console import Details, View, handle_errors, print_details, print_json, print_rows
from thresher.cli.data_commands import view_table
from thresher.cli.options import OUTPUT, Imports, Json, option
from thresher.cli.ticket_views import view_bundle, view_ticket
from thresher.errors import ConfigError, FormatError
from thresher.report.frontier import Frontier
from thresher.report.notes import print_note

if TYPE_CHECKING:
    pass
    from thresher.experiment.run.verify import Verified


OTHER_FIGURES = (".pdf", ".jpg", ".jpeg", ".gif", ".eps", ".ps", ".webp", ".tif", ".tiff", ".bmp", ".html", ".xlsx")
PATH_HELP = "A run, a comparison, a ticket, a bundle, an encoded table, or a results.json."


@console.handle_errors()
def show(
    path: Annotated[Path, typer.Argument(metavar="PATH", help=PATH_HELP)],
    figure: Annotated[Path | None, option("FILE", "Also draw a figure: FILE.png and FILE.svg.", panel=OUTPUT)] = None,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the report page in a browser.", rich_help_panel=OUTPUT)
    ] = False,
    imports: Imports = None,
    as_json: Json = False,
) -> None:
    """Show a run, comparison, ticket, bundle or encoded table.

    Run: finished stages and results. Comparison: its table. Ticket: what it keeps of each field.
    Bundle: size of its tables, kept and dropped features of each field, quality.
    Encoded table: rows, features, share of unknown values, feature frequencies.
    """
    if figure is not None and figure.suffix.lower() in OTHER_FIGURES:
        raise ConfigError(f"--figure {figure}: figures are .png and .svg. Use {figure.with_suffix('.png')} for both.")
    import_modules(imports or ())
    if open_page:
        _open_page(path)
        return
    view = _view(path)
    if as_json:
        console.print_json(view.details)
    else:
        view.display()
    if figure is None:
        return
    if view.draw is None:
        raise ConfigError(f"{path}: nothing to draw yet. Leave --figure out.")
    for file in view.draw(figure):
        print_note(f"Figure  {file}", fold=False)


def _open_page(path: Path) -> None:
    import webbrowser

    page = path / "report" / "index.html"
    if not page.is_file():
        raise FormatError(
            f"{path} has no report page (report/index.html). Runs and comparisons have one once they are finished."
        )
    print(page)
    if not webbrowser.open(page.resolve().as_uri()):
        print_note("No browser was found. Open the file yourself.")


def _view(path: Path) -> View:
    if not path.exists():
        raise FormatError(f"{path}: no such file or folder.")
    if path.is_file() and path.suffix.lower() != ".json":
        raise FormatError(
            f"{path} was not written by Thresher. Look at raw data with: "
            f"{shlex.join(['thresher', 'encode', str(path)])} --dry-run"
        )
    if path.is_file():
        return _view_results({"kind": "results", "file": str(path)}, Frontier.load(path))
    if (path / "config.toml").exists():
        return _view_run(path)
    if (path / "ticket.json").exists():
        return view_ticket(path)
    if (path / "bundle.json").exists():
        return view_bundle(path)
    if (path / "table.json").exists():
        return view_table(path)
    if (path / "settings.toml").exists():
        return view_comparison(path)
    raise FormatError(f"{path} is not a run, comparison, ticket, bundle or encoded table.")


def _view_results(details: Details, frontier: Frontier | None) -> View:
    if frontier is None:
        return View(details, partial(print_details, details))
    from thresher.experiment.run.cost import cost_table
    from thresher.report.plots import plot_frontier

    def display() -> None:
        print_details(details)
        console.print_frontier(frontier)
        if cost := frontier.metadata.get("cost"):
            print(cost_table(cost))

    return View({**details, "results": frontier.to_json()}, display, partial(plot_frontier, frontier))


def _view_run(folder: Path) -> View:
    from thresher._internal.storage.files import read_json
    from thresher.embeddings.method_registry import method_name
    from thresher.experiment.run.run_folder import Run
    from thresher.models.model_registry import model_name

    run = Run.open(folder)
    config = run.config
    tickets = run.tickets / "tickets.json"
    stages = {"encoded": (run.encoded / "table.json").exists(), "dense": (run.dense / "point.json").exists()}
    stages |= {"tickets": tickets.exists()}
    stages |= {f"retrained {b}": (run.retrained(b) / "point.json").exists() for b in config.wanted_budgets()}
    details: Details = {
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
        details["tickets"] = [str(run.tickets / slug) for slug in read_json(tickets)["tickets"]]
    frontier = Frontier.load(run.results) if run.results.exists() else None
    if config.max_auc_drop is not None:
        details["max_auc_drop"] = config.max_auc_drop
        if frontier is not None:
            found = frontier.metadata
            details |= {name: found[name] for name in ("recommended", "doubts") if name in found}
    return _view_results(details, frontier)


@handle_errors()
def verify(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A run, comparison, table, ticket, bundle or file.")],
    as_json: Json = False,
) -> None:
    """Compare all files of a run, table, ticket or bundle with their checksums; exit code 2 if one is damaged."""
    from thresher.experiment.run.verify import verify_path

    found = verify_path(path)
    damaged = [part for part in found if part.problem is not None]
    if as_json:
        print_json([vars(part) for part in found])
    else:
        print_rows([_row(part) for part in found])
    if damaged:
        raise FormatError("\n".join(str(part.problem) for part in damaged))


def _row(part: "Verified") -> dict[str, object]:
    return {
        "path": part.path,
        "kind": part.kind,
        "files": part.num_files,
        "result": "damaged" if part.problem else "ok",
    }
