"""compare: many methods under one protocol, in one table and one figure."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.cli import options
from thresher.cli.console import handle_errors, say
from thresher.cli.progress import display
from thresher.errors import ConfigError

if TYPE_CHECKING:
    from thresher.cli.run_settings import Flags
    from thresher.experiment.compare_config import CompareConfig
    from thresher.experiment.compared_points import ComparedPoint
    from thresher.experiment.runs import RunConfig


@handle_errors(resumable=True, skip_flag="--set data.bad_rows=skip")
def compare(
    context: typer.Context,
    sources: options.Sources = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Methods by name, or all; default pep,uniform,mde,magnitude,quantised.",
            show_default=False, rich_help_panel=options.MODEL,
        ),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Models by name: fm (default), deepfm, autoint.", show_default=False,
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    budgets: options.Budgets = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="How many seeds, from --first-seed on; default 3.", show_default=False,
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    first_seed: Annotated[
        int | None,
        typer.Option(
            metavar="S", help="The one settings are tried on; above 0 for further seeds made elsewhere.",
            show_default=False, rich_help_panel=options.MODEL,
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Settings each method may try, chosen on validation; default 3.", show_default=False,
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            metavar="E", help="Cut every training and search to so many epochs: a quick look.", show_default=False,
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    label: options.Label = None,
    positive: options.Positive = None,
    fields: options.Fields = None,
    drop: options.Drop = None,
    data_dir: options.DataDir = None,
    min_count: options.MinCount = None,
    split_seed: options.SplitSeed = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="Folder of the comparison; what is done there is passed over.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = Path("runs/compare"),
    time_limit: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Stop after so long; the same command goes on from there.", show_default=False,
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", metavar="", help="Go on with what is in --out; alone, as it was last asked for.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:  # fmt: skip
    """Methods side by side: the same data, retraining, seeds and number of trials for each; one result file a point."""
    from thresher.experiment.compare import compare as run_comparison

    compared = _settle(context.params)
    _say_grids(compared)
    with display(quiet=quiet) as progress:
        found = run_comparison(compared, out=out, time_limit=time_limit, progress=progress)
    for (model, method, budget), reason in found.unmet.items():
        say(f"{model}, {method}: {reason} (asked for {budget})")
    tables = comparison_tables(found.points, compared.budgets)
    if as_json:
        say(tables)
    else:
        print(tables)  # noqa: T201
    for figure in found.figures:
        say(f"Figure   {figure}")
    say(f"Results  {out / 'points'}")
    if cut_off := _cut_off(found.points, compared.training.max_epochs):
        say(cut_off)
    if not found.finished:
        say("The time limit came before the end; the same command goes on from here.")
    if as_json:
        print(json.dumps({"points": [asdict(point) for point in found.points]}))  # noqa: T201


def _settle(params: Mapping[str, Any]) -> "CompareConfig":
    from thresher.cli.run_settings import Flags, show_guess
    from thresher.experiment.compare_config import with_epochs

    flags = Flags.of(params)
    goes_on = params["resume"] and not flags.sources and flags.config is None
    config = _asked_before(params["out"], flags, params["epochs"]) if goes_on else _asked_now(flags)
    said = {name: params[name] for name in ("seeds", "first_seed", "trials") if params[name] is not None}
    if params["methods"] is not None:
        said["methods"] = _methods(params["methods"])
    if params["models"] is not None:
        said["models"] = tuple(_parts(params["models"]))
    config = replace(config, **said)
    show_guess(config.data)
    return config if params["epochs"] is None else with_epochs(config, params["epochs"])


def _asked_before(out: Path, flags: "Flags", epochs: int | None) -> "CompareConfig":
    """What the comparison in a folder was last asked for, at other budgets if such were said."""
    from thresher._internal.settings import load_toml
    from thresher.cli.run_settings import Flags
    from thresher.experiment.compare_config import SETTINGS, CompareConfig
    from thresher.search.budget import parse_budgets

    if not (out / SETTINGS).exists():
        raise ConfigError(f"{out} holds no comparison to go on with; name its data, and leave --resume out")
    if replace(flags, budgets=None) != Flags() or epochs is not None:
        raise ConfigError(
            "--resume without data goes on with the data and settings of the folder; methods, models, budgets and "
            "seeds may be said beside it. To say more, name the data, too"
        )
    asked = load_toml(CompareConfig, out / SETTINGS)
    if asked == asked.shared():  # what folders of the first version hold
        raise ConfigError(f"{out / SETTINGS} does not say what was compared; name data, methods and budgets again")
    return asked if flags.budgets is None else replace(asked, budgets=tuple(map(str, parse_budgets(flags.budgets))))


def _asked_now(flags: "Flags") -> "CompareConfig":
    from thresher.cli.run_settings import run_config
    from thresher.experiment.compare_config import CompareConfig

    run = run_config(flags)
    config = CompareConfig(
        data=run.data,
        budgets=run.budgets,
        embedding_dim=run.embedding.embedding_dim,
        search=run.search,
        training=run.training,
        teacher_share=run.teacher_share or 0.0,
    )
    _refuse_what_is_not_shared(run, config)
    return config


def _methods(text: str) -> tuple[str, ...]:
    from thresher.embeddings.method_registry import registered_embeddings

    names = _parts(text)
    return tuple(registered_embeddings()) if names == ["all"] else tuple(names)


def _refuse_what_is_not_shared(run: "RunConfig", config: "CompareConfig") -> None:
    """A setting of a single run that no comparison has must not pass for one that counts."""
    from thresher.experiment.runs import RunConfig, what_differs

    default = RunConfig()
    plain = replace(
        default, data=run.data, budgets=run.budgets, search=run.search, training=run.training,
        teacher_share=run.teacher_share, embedding=replace(default.embedding, embedding_dim=config.embedding_dim),
    )  # fmt: skip
    if told := what_differs(plain, run):
        raise ConfigError(
            f"a comparison does not take this: {told}. Methods, models and seeds are flags of their own, a method's "
            "settings come from its grid (docs/methods.md); data, search, training, teacher_share and "
            "embedding.embedding_dim can be set"
        )


def _say_grids(config: "CompareConfig") -> None:
    """What the grids fix, so that nobody waits for a width that was asked for and is not tried."""
    from thresher.embeddings.method_registry import describe_grid

    say(
        f"Tried on seed {config.first_seed}, the best on validation kept, 'more' are left out by --trials "
        f"{config.trials}; widths come from these grids, and "
        f"embedding_dim {config.embedding_dim} is what shares are of:"
    )
    width = max(map(len, config.methods))
    for method in config.methods:
        say(f"  {method:<{width}}  {describe_grid(method, first=config.trials)}")


def comparison_tables(points: "Sequence[ComparedPoint]", budgets: Sequence[str]) -> str:
    """Test AUC of each method at each budget, a table for each model."""
    from thresher.experiment.compared_points import FLOOR
    from thresher.report.comparison import comparison_table

    floor = [point.frontier_point() for point in points if point.model == FLOOR]
    blocks = []
    for model in dict.fromkeys(point.model for point in points if point.model != FLOOR):
        of_model = [point.frontier_point() for point in points if point.model == model]
        title = f"{model}: test AUC by budget, best of each starred{_floor_note(floor)}"
        blocks.append(f"{title}\n{comparison_table(of_model, budgets)}")
    return "\n\n".join(blocks)


def _cut_off(points: "Sequence[ComparedPoint]", max_epochs: int) -> str:
    """Which methods had trainings that the last epoch ended, not validation, and how many."""
    methods = Counter(point.method for point in points if point.retrain_epochs >= max_epochs)
    if not methods:
        return ""
    told = ", ".join(f"{method} ({count})" for method, count in sorted(methods.items()))
    return f"Trained to the last of {max_epochs} epochs (training.max_epochs), with more they may change places: {told}"


def _floor_note(floor: Sequence[Any]) -> str:
    aucs = [point.test_auc for point in floor]
    return f"; logistic regression, with no embedding: {sum(aucs) / len(aucs):.4f}" if aucs else ""


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
