"""prune, search, retrain: the commands that train, each on the folder of a run."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.cli import options
from thresher.cli.console import handle_errors, say, show_frontier, show_json
from thresher.cli.progress import display
from thresher.errors import ConfigError

if TYPE_CHECKING:
    from thresher.data.table import EncodedTable
    from thresher.experiment.report import PruneResult
    from thresher.experiment.runs import RunConfig
    from thresher.training.distillation import DistillationPlan

Out = Annotated[
    Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder of the run.", rich_help_panel=options.OUTPUT)
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, as prune and search write it.")]
DEFAULT_OUT = Path("runs/run")


@handle_errors(resumable=True, skip_flag="--set data.bad_rows=skip")
def prune(
    context: typer.Context,
    sources: options.Sources = None,
    label: options.Label = None,
    positive: options.Positive = None,
    fields: options.Fields = None,
    drop: options.Drop = None,
    data_dir: options.DataDir = None,
    min_count: options.MinCount = None,
    split_seed: options.SplitSeed = None,
    model: options.Model = None,
    embedding_dim: options.EmbeddingDim = None,
    method: options.Method = None,
    teachers: options.Teachers = None,
    budgets: options.Budgets = None,
    max_auc_drop: options.MaxAucDrop = None,
    seed: options.Seed = None,
    out: Out = DEFAULT_OUT,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
    resume: options.Resume = False,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """The whole path: raw files → pruned models at several sizes, their AUC and bytes, and bundles that predict.

    One search serves all sizes, and a second one where the dense model proves a good teacher; each size is retrained
    from the initial weights, and tested once.
    """
    from thresher.experiment.prune import prune as prune_run

    settled = _settle(context.params)
    with display(quiet=quiet) as progress:
        result = prune_run(settled, out=out, resume=resume, force=force, progress=progress)
    show_result(result, as_json=as_json)


@handle_errors(resumable=True, skip_flag="--set data.bad_rows=skip")
def search(
    context: typer.Context,
    sources: options.Sources = None,
    label: options.Label = None,
    positive: options.Positive = None,
    fields: options.Fields = None,
    drop: options.Drop = None,
    data_dir: options.DataDir = None,
    min_count: options.MinCount = None,
    split_seed: options.SplitSeed = None,
    model: options.Model = None,
    embedding_dim: options.EmbeddingDim = None,
    method: options.Method = None,
    teachers: options.Teachers = None,
    budgets: options.Budgets = None,
    seed: options.Seed = None,
    out: Out = DEFAULT_OUT,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
    resume: options.Resume = False,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """The search alone, by labels unless told otherwise: one ticket per budget, to be retrained later or elsewhere."""
    from thresher.experiment.prune import check_settings
    from thresher.experiment.runs import Run
    from thresher.experiment.stages import batches, encode_data
    from thresher.experiment.stages import find_run_tickets as search_run

    settled = _settle(context.params)
    check_settings(settled)
    with display(quiet=quiet) as progress, Run.started(out, settled, resume=resume, force=force) as run:
        table = encode_data(run, progress)
        say_skipped(table)
        first = settled.candidate_plans()[0]
        tickets = search_run(run, table, batches(run, table), first, progress)
    folder = run.searched(first)
    found = [
        {"budget": str(t.budget), "num_parameters": t.num_parameters, "folder": str(folder / t.budget.slug)}
        for t in tickets
    ]
    if as_json:
        show_json({"run": str(out), "tickets": found})
        return
    for ticket in found:
        print(f"{ticket['budget']:>8}  {ticket['num_parameters']:>12,} parameters  {ticket['folder']}")  # noqa: T201
    say(f"Retrain them with: thresher retrain {out}")


@handle_errors(repeatable=True)
def retrain(folder: RunFolder, as_json: options.Json = False, quiet: options.Quiet = False) -> None:
    """Retrain the tickets of a search, beside a dense model to measure them against.

    Where the dense model proves a good teacher, tickets are searched once more, with it (docs/search.md).
    What is done is passed over, what was interrupted is taken up again.
    """
    from thresher._internal.files import exclusive_lock
    from thresher.data.table import EncodedTable
    from thresher.experiment.prune import retrain_all
    from thresher.experiment.runs import Run
    from thresher.experiment.stages import batches

    run = Run.open(folder)
    if not (run.searched(run.config.candidate_plans()[0]) / "tickets.json").exists():
        raise ConfigError(
            f"the search in {folder} has not ended; go on with: thresher search … --out {folder} --resume"
        )
    table = EncodedTable.open(run.encoded)
    with display(quiet=quiet) as progress, exclusive_lock(folder):
        result = retrain_all(run, table, batches(run, table), progress)
    show_result(result, as_json=as_json)


def show_result(result: "PruneResult", *, as_json: bool) -> None:
    """The table of a finished run, and where its files are."""
    from thresher.data.table import EncodedTable

    run, frontier = result.run, result.frontier
    bundles = {str(point.budget): str(run.bundle(str(point.budget))) for point in frontier.points}
    if as_json:
        show_json({**frontier.to_json(), "run": str(run.folder), "bundles": bundles})
        return
    facts = frontier.metadata
    say_skipped(EncodedTable.open(run.encoded))
    show_frontier(frontier, title=f"{facts['source']} · {facts['model']} · seed {facts['seed']}")
    drop = run.config.max_auc_drop
    if drop is not None and result.recommended is None:
        say(f"No size keeps validation AUC within {drop} of the dense model's; allow more, or give --budgets.")
    elif result.recommended is not None:
        say(f"Smallest within {drop} of the dense model's validation AUC: {result.recommended.budget}")
    if doubts := facts.get("doubts"):
        say(doubts)
    if improving := facts.get("still_improving"):
        epochs = run.config.training.max_epochs
        say(f"Still improving after {epochs} epochs (training.max_epochs): {', '.join(improving)}")
    if "validation_auc" in facts.get("teacher", {}):
        say(_teacher(run.config.candidate_plans(), facts["teacher"]))
    best = str(frontier.best()[-1].budget if result.recommended is None else result.recommended.budget)
    say(f"Results  {run.results}")
    say(f"Figure   {run.report / 'frontier.png'}, and .svg")
    say(f"Predict  thresher predict {shlex.quote(str(bundles[best]))} ROWS.csv")


def _teacher(ways: Sequence["DistillationPlan"], facts: Mapping[str, Any]) -> str:
    """Whether search and tickets learned from dense models, and what decided it."""
    did = "Searched and retrained" if facts["search_share"] else "Retrained"
    chosen = _whose(facts.get("num_teachers", 1), facts.get("teacher_models", ())) if facts["share"] else "labels"
    aucs = facts["validation_auc"]
    tried = "; ".join(f"{aucs[str(way)]:.4f} {way.description}" for way in ways if str(way) in aucs)
    failed = f" Could not be tried: {facts['failed']}" if "failed" in facts else ""
    return f"{did} on {chosen}. Validation AUC of the smallest size: {tried} (teacher_share, distill_search).{failed}"


def _whose(number: int, others: Sequence[str]) -> str:
    """What is learned, by who says it.

    >>> _whose(1, []), _whose(3, ["deepfm"])
    ("the dense model's predictions", 'the mean prediction of 6 dense models, deepfm among them')
    """
    if number == 1 and not others:
        return "the dense model's predictions"
    among = f", {' and '.join(others)} among them" if others else ""
    return f"the mean prediction of {number * (1 + len(others))} dense models{among}"


def say_skipped(table: "EncodedTable") -> None:
    """How many bad rows were left out, so that it does not go unseen."""
    if skipped := table.metadata.get("skipped", 0):
        say(f"Bad rows left out: {skipped:,}; see them: thresher show {table.folder}")


def _settle(params: Mapping[str, Any]) -> "RunConfig":
    """The settings of a run, with what had to be guessed about its files shown."""
    from thresher.cli.run_settings import Flags, run_config, show_guess

    flags, stored = Flags.of(params), params["out"] / "config.toml"
    if params["resume"] and not flags.sources and flags.config is None:
        if not stored.exists():
            raise ConfigError(f"{params['out']} holds no run to go on with; name its data, and leave --resume out")
        flags = replace(flags, config=stored)  # nothing was said of the data: it is the run's own
    config = run_config(flags)
    show_guess(config.data)
    return config
