"""prune, search, retrain and demo: the commands that train, each in the folder of a run."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.cli import options
from thresher.cli.console import display, handle_errors, print_frontier, print_json
from thresher.cli.options import (
    DataOptions,
    Imports,
    Json,
    PruneOptions,
    Quiet,
    RunOptions,
    SearchOptions,
    Sources,
    expand_options,
    option,
)
from thresher.cli.processes import joined_processes, start_processes
from thresher.errors import ConfigError
from thresher.report.notes import print_note

if TYPE_CHECKING:
    from thresher.data.table import EncodedTable
    from thresher.experiment.config import RunConfig
    from thresher.experiment.prune import PruneResult

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, written by prune or search.")]


@handle_errors(resumable=True, skip_flag="--set data.bad_rows=skip")
@expand_options
def prune(data: DataOptions, model: PruneOptions, run: RunOptions, sources: Sources = None) -> None:
    """Raw files → pruned models of several sizes: their AUC and bytes, and bundles that predict.

    One search, which starts from the trained dense model, serves all sizes. Each size is trained on from the search and
    tested once. --effort decides how much training that costs.
    """
    from thresher.experiment.prune import prune as prune_run

    start_processes(run.processes)
    with joined_processes() as prints:
        config = _run_config(sources, data, model, run)
        with display(quiet=run.quiet or not prints) as progress:
            result = prune_run(config, out=run.out, resume=run.resume, force=run.force, progress=progress)
    if prints:
        _print_result(result, as_json=run.as_json)


@handle_errors(resumable=True, skip_flag="--set data.bad_rows=skip")
@expand_options
def search(data: DataOptions, model: SearchOptions, run: RunOptions, sources: Sources = None) -> None:
    """Only the search: one ticket per budget, to be retrained later or elsewhere."""
    from thresher._internal.processes import Processes, training_together
    from thresher.experiment.prune import check_settings, encode_once
    from thresher.experiment.run.run_folder import Run
    from thresher.experiment.run.run_workflow import RunWorkflow

    start_processes(run.processes)
    with joined_processes() as prints, training_together(Processes.of()):
        config = _run_config(sources, data, model, run)
        check_settings(config)
        with (
            display(quiet=run.quiet or not prints) as progress,
            Run.started(run.out, config, resume=run.resume, force=run.force) as started,
        ):
            table = encode_once(started, progress)
            if prints:
                _print_skipped(table)
            first = config.candidate_plans()[0]
            tickets = RunWorkflow.of(started, table, progress).search(first)
    if not prints:
        return
    folder = started.ticket_folder(first)
    found = [
        {"budget": str(t.budget), "num_parameters": t.num_parameters, "folder": str(folder / t.budget.slug)}
        for t in tickets
    ]
    if run.as_json:
        print_json({"run": str(run.out), "tickets": found})
        return
    for ticket in found:
        print(f"{ticket['budget']:>8}  {ticket['num_parameters']:>12,} parameters  {ticket['folder']}")
    print_note(f"Retrain them with: thresher retrain {shlex.quote(str(run.out))}", fold=False)


@handle_errors(repeatable=True)
def retrain(
    folder: RunFolder,
    imports: Imports = None,
    processes: options.Processes = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train the dense model and retrain the tickets of a search.

    Finished stages are skipped, interrupted ones are resumed.
    """
    from thresher._internal.processes import Processes, training_together
    from thresher._internal.registry import import_modules
    from thresher._internal.storage.files import exclusive_lock
    from thresher.data.table import EncodedTable
    from thresher.experiment.prune import check_settings, run_stages
    from thresher.experiment.run.run_folder import Run

    start_processes(processes)
    import_modules(imports or ())
    run = Run.open(folder)
    check_settings(run.config)
    if not (run.ticket_folder(run.config.candidate_plans()[0]) / "tickets.json").exists():
        again = shlex.join(["thresher", "search", "--out", str(folder), "--resume"])
        raise ConfigError(f"The search is not finished. Continue it with: {again}")
    with joined_processes() as prints, training_together(Processes.of()), ExitStack() as lock:
        if prints:
            lock.enter_context(exclusive_lock(folder))
        table = EncodedTable.open(run.encoded)
        with display(quiet=quiet or not prints) as progress:
            result = run_stages(run, table, progress)
    if prints:
        _print_result(result, as_json=as_json)


@handle_errors()
def demo(
    out: Annotated[
        Path, option("FOLDER", "Folder of the run; an earlier demo is replaced.", "--out", "-o", show_default=True)
    ] = Path("runs/demo"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prune a model of synthetic clicks, half of whose fields are noise, to four sizes; about a minute on a CPU."""
    from thresher.experiment.prune import prune as prune_run
    from thresher.serving.predictor import load_bundle

    if not as_json:
        print_note("Synthetic clicks: 4 informative fields and 4 noise fields. One search prunes to four sizes.")
    config = demo_config()
    with display(quiet=quiet) as progress:
        result = prune_run(config, out=out, force=_holds_demo(out, config), progress=progress)
    _print_result(result, as_json=as_json)
    if not as_json:
        predictor = load_bundle(result.run.bundle(result.run.config.wanted_budgets()[-1]))
        row = {field.column: "0" for field in predictor.schema.fields}
        print_note(f"Prediction of the smallest bundle: P(label = 1 | every field = 0) = {predictor.predict(row):.3f}")


def demo_config() -> "RunConfig":
    from thresher.data.config import DataConfig, SyntheticConfig
    from thresher.embeddings.pep import PepConfig
    from thresher.experiment.config import RunConfig
    from thresher.search.schedule import SearchConfig

    return RunConfig(
        data=DataConfig(source="synthetic", synthetic=SyntheticConfig(num_rows=60_000, field_size=500)),
        embedding=PepConfig(embedding_dim=16),
        search=SearchConfig(plan_epochs=8),
        budgets=("20%", "10%", "5%", "2%"),
    )


def _holds_demo(out: Path, config: "RunConfig") -> bool:
    """Whether the folder holds an earlier demo to replace; raise if it holds another run."""
    from thresher.experiment.config import changed_settings
    from thresher.experiment.run.run_folder import Run

    try:
        stored = Run.open(out).config
    except ConfigError:
        return False  # `prune` raises if the folder holds something else
    if stored != config:
        raise ConfigError(
            f"{out} holds a run that is not the demo ({changed_settings(stored, config)}). Use another --out."
        )
    return True


def _print_result(result: "PruneResult", *, as_json: bool) -> None:
    from thresher.data.table import EncodedTable
    from thresher.experiment.run.cost import cost_table

    run, frontier = result.run, result.frontier
    bundles = {str(point.budget): str(run.bundle(str(point.budget))) for point in frontier.points}
    if as_json:
        print_json({**frontier.to_json(), "run": str(run.folder), "bundles": bundles})
        return
    metadata = frontier.metadata
    _print_skipped(EncodedTable.open(run.encoded))
    print_frontier(frontier, title=f"{metadata['source']} · {metadata['model']} · {_seeds(metadata)}")
    for sentence in result.recommendation:
        print_note(sentence)
    if improving := metadata.get("still_improving"):
        epochs = run.config.training.max_epochs
        print_note(f"Still improving after {epochs} epochs (training.max_epochs): {', '.join(improving)}")
    print_note(_describe_distillation(run.config, metadata["distillation"]))
    of_seeds = f" of {len(metadata['seeds'])} seeds" if "seeds" in metadata else ""
    costs = cost_table(metadata["cost"])
    print_note(f"Cost of all training{of_seeds}, in seconds and in units of the dense training:\n{costs}")
    best = str(frontier.best()[-1].budget if result.recommended is None else result.recommended.budget)
    print_note(f"Results  {run.results}", fold=False)
    print_note(
        f"Report   {run.report / 'index.html'} (thresher show --open {shlex.quote(str(run.folder))})", fold=False
    )
    imports = [word for module in run.config.imports for word in ("--import", module)]
    print_note(f"Predict  {shlex.join(['thresher', 'predict', bundles[best], 'ROWS.csv', *imports])}", fold=False)


def _seeds(metadata: Mapping[str, Any]) -> str:
    if "seeds" in metadata:
        return f"mean ± standard deviation of {len(metadata['seeds'])} seeds; bundles are of seed {metadata['seed']}"
    return f"seed {metadata['seed']}"


def _describe_distillation(config: "RunConfig", teacher: Mapping[str, Any]) -> str:
    """Whether distillation was used, and the validation AUCs that decided it."""
    stages = "Searched and retrained" if teacher["search_share"] else "Retrained"
    labels = "hard labels"
    if teacher["share"]:
        others = teacher.get("teacher_models", ())
        number = teacher.get("num_teachers", 1) * (1 + len(others))
        labels = "soft labels of the dense model" if number == 1 else f"mean soft labels of {number} dense models"
        labels += f" (with {', '.join(others)})" if others else ""
    if "validation_auc" not in teacher:
        return f"{stages} with {labels}, as set."
    aucs, plans = teacher["validation_auc"], config.candidate_plans()
    tried = "; ".join(f"{aucs[str(plan)]:.4f} {plan.description}" for plan in plans if str(plan) in aucs)
    size = "a short trial"
    if config.stage_settings().start != "dense":
        decided_by = f" ({teacher['decided_by']})" if "decided_by" in teacher else ""
        size = f"the smallest size{decided_by}, which decides for all"
    failed = f" Not tried: {teacher['failed']}" if "failed" in teacher else ""
    return f"{stages} with {labels}. Validation AUC of {size}: {tried} (teacher_share, distill_search).{failed}"


def _print_skipped(table: "EncodedTable") -> None:
    if skipped := table.metadata.get("skipped", 0):
        print_note(
            f"Bad rows left out: {skipped:,}; see them with: thresher show {shlex.quote(str(table.folder))}", fold=False
        )


def _run_config(sources: Sequence[str] | None, data: DataOptions, model: SearchOptions, run: RunOptions) -> "RunConfig":
    from thresher.cli.run_settings import run_config

    if run.resume and not sources and run.config is None:
        stored = run.out / "config.toml"
        if not stored.exists():
            raise ConfigError(f"{run.out} holds no run to resume. Name its data, and leave --resume out.")
        run = replace(run, config=stored)
    return run_config(sources, data, run, model)
