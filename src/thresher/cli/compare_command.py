"""compare: several methods under one protocol, in one table and one figure."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.cli.console import Details, View, handle_errors, print_details, print_note
from thresher.cli.options import (
    MODEL,
    OUTPUT,
    DataOptions,
    Json,
    Quiet,
    SearchOptions,
    SettingsOptions,
    Sources,
    expand_options,
)
from thresher.cli.progress import display
from thresher.errors import ConfigError

if TYPE_CHECKING:
    from thresher.experiment.compare_config import CompareConfig
    from thresher.experiment.compared_points import ComparedPoint
    from thresher.experiment.config import RunConfig


def _model(metavar: str, text: str) -> Any:
    return typer.Option(metavar=metavar, help=text, show_default=False, rich_help_panel=MODEL)


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What to compare; None means "not given"."""

    methods: Annotated[
        str | None, _model("A,B", "Methods by name, or all; default pep,uniform,mde,magnitude,quantised.")
    ] = None
    models: Annotated[str | None, _model("A,B", "Models by name: fm (default), deepfm, autoint.")] = None
    budgets: Annotated[
        str | None,
        _model("30k,2%,1MB", "Target sizes: parameters, shares of the table, or bytes; default 10%,5%,2%,1%."),
    ] = None
    seeds: Annotated[int | None, _model("N", "Number of seeds, starting at --first-seed; default 3.")] = None
    first_seed: Annotated[
        int | None, _model("S", "The seed on which settings are tried; default 0. Above 0 for further seeds.")
    ] = None
    trials: Annotated[int | None, _model("N", "Settings tried per method, chosen on validation; default 3.")] = None
    epochs: Annotated[int | None, _model("E", "Limit every training and search to this many epochs.")] = None


@dataclass(frozen=True, kw_only=True)
class CompareRunOptions(SettingsOptions):
    """Output folder of a comparison."""

    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Folder of the comparison; finished results in it are skipped.",
            rich_help_panel=OUTPUT,
        ),
    ] = Path("runs/compare")
    time_limit: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Stop after this time; the same command continues from there.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            metavar="",
            help="Continue the comparison in --out; without DATA, with its stored settings.",
            rich_help_panel=OUTPUT,
        ),
    ] = False
    as_json: Json = False
    quiet: Quiet = False  # fmt: skip


@handle_errors(resumable=True, skip_flag="--set data.bad_rows=skip")
@expand_options
def compare(data: DataOptions, compared: CompareOptions, run: CompareRunOptions, sources: Sources = None) -> None:
    """Compare methods with the same data, retraining, seeds and number of trials; one result file per point."""
    from thresher.experiment.compare import compare as run_comparison

    config = _compare_config(sources, data, compared, run)
    _print_grids(config)
    with display(quiet=run.quiet) as progress:
        found = run_comparison(config, out=run.out, time_limit=run.time_limit, progress=progress)
    for (model, method, budget), reason in found.unmet.items():
        print_note(f"{model}, {method}, budget {budget}: {reason}")
    tables = comparison_tables(found.points, config.budgets)
    if run.as_json:
        print_note(tables)
    else:
        print(tables)  # noqa: T201
    for figure in found.figures:
        print_note(f"Figure   {figure}")
    print_note(f"Results  {run.out / 'points'}")
    if unconverged := _describe_unconverged(found.points, config.training.max_epochs):
        print_note(unconverged)
    if not found.finished:
        print_note("Stopped at the time limit. The same command continues from here.")
    if run.as_json:
        print(json.dumps({"points": [asdict(point) for point in found.points]}))  # noqa: T201


def _compare_config(
    sources: Sequence[str] | None, data: DataOptions, compared: CompareOptions, run: CompareRunOptions
) -> "CompareConfig":
    from thresher.cli.run_settings import print_guess, split_names
    from thresher.experiment.compare_config import with_epochs

    if run.resume and not sources and run.config is None:
        config = _stored_config(data, compared, run)
    else:
        config = _new_config(sources, data, compared, run)
    given: dict[str, Any] = {"seeds": compared.seeds, "first_seed": compared.first_seed, "trials": compared.trials}
    if compared.methods is not None:
        given["methods"] = _methods(compared.methods)
    if compared.models is not None:
        given["models"] = tuple(split_names(compared.models))
    config = replace(config, **{name: value for name, value in given.items() if value is not None})
    print_guess(config.data)
    return config if compared.epochs is None else with_epochs(config, compared.epochs)


def _stored_config(data: DataOptions, compared: CompareOptions, run: CompareRunOptions) -> "CompareConfig":
    """The stored settings of the comparison in a folder, with the given budgets if any."""
    from thresher._internal.settings import load_toml
    from thresher.experiment.compare_config import SETTINGS, CompareConfig
    from thresher.search.budget import parse_budgets

    if not (run.out / SETTINGS).exists():
        raise ConfigError(f"{run.out} holds no comparison to resume. Name its data, and leave --resume out.")
    if data != DataOptions() or run.settings or compared.epochs is not None:
        raise ConfigError(
            "--resume without DATA uses the data and settings stored in the folder. Only --methods, --models, "
            "--budgets, --seeds, --first-seed and --trials can be added; for other options, name the data, too."
        )
    stored = load_toml(CompareConfig, run.out / SETTINGS)
    if compared.budgets is None:
        return stored
    return replace(stored, budgets=tuple(map(str, parse_budgets(compared.budgets))))


def _new_config(
    sources: Sequence[str] | None, data: DataOptions, compared: CompareOptions, run: CompareRunOptions
) -> "CompareConfig":
    from thresher.cli.run_settings import run_config
    from thresher.experiment.compare_config import CompareConfig

    settings = run_config(sources, data, run, SearchOptions(budgets=compared.budgets))
    config = CompareConfig(
        data=settings.data,
        budgets=settings.budgets,
        embedding_dim=settings.embedding.embedding_dim,
        search=settings.search,
        training=settings.training,
        teacher_share=settings.teacher_share or 0.0,
    )
    _check_shared_settings(settings, config)
    return config


def _methods(text: str) -> tuple[str, ...]:
    from thresher.cli.run_settings import split_names
    from thresher.embeddings.method_registry import registered_embeddings

    names = split_names(text)
    return tuple(registered_embeddings()) if names == ["all"] else tuple(names)


def _check_shared_settings(run: "RunConfig", config: "CompareConfig") -> None:
    """Raise if a setting was changed that a comparison does not have."""
    from thresher.experiment.config import RunConfig, changed_settings

    default = RunConfig()
    plain = replace(
        default, data=run.data, budgets=run.budgets, search=run.search, training=run.training,
        teacher_share=run.teacher_share, embedding=replace(default.embedding, embedding_dim=config.embedding_dim),
    )  # fmt: skip
    if changed := changed_settings(plain, run):
        raise ConfigError(
            f"A comparison does not have these settings: {changed}. Use --methods, --models and --seeds; a method's "
            "settings come from its grid (docs/methods.md). data, search, training, teacher_share and "
            "embedding.embedding_dim can be set."
        )


def _print_grids(config: "CompareConfig") -> None:
    """Print the settings that are tried: widths come from the grids, not from `embedding_dim`."""
    from thresher.embeddings.method_registry import describe_grid

    print_note(
        f"Settings tried on seed {config.first_seed} (the best on validation is used; --trials {config.trials} limits "
        f"them). Widths come from these grids; budgets in percent are shares of embedding_dim {config.embedding_dim}:"
    )
    width = max(map(len, config.methods))
    for method in config.methods:
        print_note(f"  {method:<{width}}  {describe_grid(method, first=config.trials)}")


def comparison_tables(points: "Sequence[ComparedPoint]", budgets: Sequence[str]) -> str:
    """Test AUC by method and budget, one table per model."""
    from thresher.experiment.compared_points import FLOOR
    from thresher.report.frontier import comparison_table

    floor = [point.frontier_point() for point in points if point.model == FLOOR]
    blocks = []
    for model in dict.fromkeys(point.model for point in points if point.model != FLOOR):
        of_model = [point.frontier_point() for point in points if point.model == model]
        title = f"{model}: test AUC by budget, the best with a star{_floor_note(floor)}"
        blocks.append(f"{title}\n{comparison_table(of_model, budgets)}")
    return "\n\n".join(blocks)


def _describe_unconverged(points: "Sequence[ComparedPoint]", max_epochs: int) -> str:
    """Methods with trainings that ended at the last epoch instead of by early stopping, and how many."""
    methods = Counter(point.method for point in points if point.retrain_epochs >= max_epochs)
    if not methods:
        return ""
    counts = ", ".join(f"{method} ({count})" for method, count in sorted(methods.items()))
    return f"Not converged after {max_epochs} epochs (training.max_epochs); more may change the order: {counts}"


def _floor_note(floor: Sequence[Any]) -> str:
    aucs = [point.test_auc for point in floor]
    return f"; logistic regression without embedding: {sum(aucs) / len(aucs):.4f}" if aucs else ""


def view_comparison(folder: Path) -> View:
    """Tables and figures of the points that a comparison has so far."""
    from thresher.experiment.compared_points import compared_models, load_points

    points = load_points(folder / "points")
    budgets = {point.budget: 0 for point in points if point.budget is not None}
    for point in points:
        if point.budget is not None:
            budgets[point.budget] = max(budgets[point.budget], point.num_parameters)
    details: Details = {
        "kind": "comparison",
        "folder": str(folder),
        "data": ", ".join(dict.fromkeys(point.source for point in points)),
        "methods": list(dict.fromkeys(point.method for point in points if point.budget is not None)),
        "seeds": len({point.seed for point in points}),
        "points": len(points),
    }

    def display() -> None:
        print_details(details)
        if budgets:
            largest_first = sorted(budgets, key=lambda budget: -budgets[budget])
            print(f"\n{comparison_tables(points, largest_first)}")  # noqa: T201

    everything = details | {"points": [asdict(point) for point in points]}
    return View(everything, display, partial(_draw, points) if compared_models(points) else None)


def _draw(points: "Sequence[ComparedPoint]", figure: Path) -> list[Path]:
    """Draw one figure, or one per model with the model's name appended to the file name."""
    from thresher.experiment.compared_points import compared_models, draw_comparison

    if len(compared_models(points)) == 1:
        return draw_comparison(points, lambda _: figure)
    return draw_comparison(points, lambda model: figure.with_name(f"{figure.stem}-{model}{figure.suffix}"))
