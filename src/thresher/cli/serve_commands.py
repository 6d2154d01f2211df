"""export, predict: from a finished run to a bundle elsewhere, and from a bundle to probabilities."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thresher.cli import options
from thresher.cli.console import say, show_json, told_plainly
from thresher.errors import BudgetError, ConfigError, FormatError

if TYPE_CHECKING:
    from thresher.export.predictor import Predictor, Probabilities


@told_plainly()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run whose tickets are retrained.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the bundle goes.")],
    budget: Annotated[
        str | None,
        typer.Option(metavar="2%", help="Which size; without it the recommended one, or the best on validation."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is in --out.")] = False,
    as_json: options.Json = False,
) -> None:
    """Take one pruned model out of a run: a folder with all that predicting needs, and no pickle."""
    from thresher.export.bundle import open_bundle
    from thresher.files import replacing_folder
    from thresher.runs import Run
    from thresher.tickets.budget import Budget

    opened = Run.open(run)
    wanted = Budget.parse(_chosen_budget(opened.results) if budget is None else budget)
    source = opened.bundle(wanted)
    if not source.exists():
        known = ", ".join(str(known) for known in opened.config.wanted_budgets() if opened.bundle(known).exists())
        raise BudgetError(f"{run} has no bundle for budget {wanted}; it has: {known or 'none yet'}")
    if out.exists() and not force:
        raise ConfigError(f"{out} already exists; choose another folder (--out), or replace it (--force)")
    bundle = open_bundle(source)
    with replacing_folder(out) as beside:
        shutil.copytree(source, beside, dirs_exist_ok=True)
    facts = {"bundle": str(out), "budget": str(wanted), "num_parameters": bundle.num_parameters}
    if as_json:
        show_json(facts)
    else:
        print(out)  # noqa: T201
        say(f"{bundle.num_parameters:,} parameters ({wanted}). Try: thresher predict {out} ROWS.csv")


@told_plainly()
def predict(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder of a bundle.")],
    rows: Annotated[
        str, typer.Argument(metavar="ROWS", help="CSV, TSV, Parquet or JSON lines; '-' reads JSON lines from stdin.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write a CSV with the column 'probability' instead of stdout.")
    ] = None,
) -> None:
    """Probabilities of raw rows, one a line, in their order. Values training never saw are fine."""
    from thresher.export.predictor import load_bundle
    from thresher.files import replacing_file

    predictor = load_bundle(bundle)
    chunks = _predict_stdin(predictor) if rows == "-" else predictor.predict_file(rows)
    if out is None:
        for chunk in chunks:
            sys.stdout.write(_lines(chunk))
        sys.stdout.flush()
        return
    num_rows = 0
    with replacing_file(out) as beside, beside.open("w", encoding="utf-8") as file:
        file.write("probability\n")
        for chunk in chunks:
            file.write(_lines(chunk))
            num_rows += len(chunk)
    say(f"{num_rows:,} rows → {out}")


def _lines(probabilities: "Probabilities") -> str:
    return "".join(f"{value:.9g}\n" for value in probabilities.tolist())  # nine digits give a float32 back exactly


def _predict_stdin(predictor: "Predictor") -> Iterator["Probabilities"]:
    from thresher.export.raw_rows import read_json_lines

    for frame in read_json_lines(sys.stdin, predictor.schema):
        yield predictor.predict_frame(frame)


def _chosen_budget(results: Path) -> str:
    from thresher.report.frontier import Frontier

    if not results.exists():
        raise FormatError(f"{results} does not exist yet; finish the run, or name a --budget")
    frontier = Frontier.load(results)
    recommended = frontier.facts.get("recommended")
    return str(recommended or frontier.best()[-1].budget)
