"""compare: several methods under one protocol, in one table and one figure."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thresher.cli.console import Details, View, display, handle_errors, print_details
from thresher.cli.options import (
    BUDGETS_HELP,
    DataOptions,
    Json,
    Quiet,
    SearchOptions,
    SettingsOptions,
    Sources,
    expand_options,
    model_field,
    output_field,
)
from thresher.cli.processes import refuse_processes
from thresher.errors import ConfigError
from thresher.report.notes import print_note

if TYPE_CHECKING:
    from thresher.experiment.comparison.compare_config import CompareConfig
    from thresher.experiment.comparison.compared_points import ComparedPoint
    from thresher.experiment.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What to compare."""

    methods: str | None = model_field("A,B", "Methods by name, or all; default pep,uniform,mde,magnitude,quantized.")
    models: str | None = model_field("A,B", "Models by name: fm (default), deepfm, autoint.")
    budgets: str | None = model_field("30k,2%,1MB", BUDGETS_HELP)
    seeds: int | None = model_field("N", "Number of seeds, starting at --first-seed; default 3.")
    first_seed: int | None = model_field(
        "S", "The seed on which settings are tried; default 0. Above 0 for further seeds."
    )
    no_rival: bool = model_field(
        "", "Leave out the trivial rival, a narrower table of frequent features.", "--no-rival", default=False
    )
    trials: int | None = model_field("N", "Settings tried per method, chosen on validation; default 3.")
    epochs: int | None = model_field("E", "Limit every training and search to this many epochs.")


@dataclass(frozen=True, kw_only=True)
class CompareRunOptions(SettingsOptions):
    """Output folder of a comparison."""

    out: Path = output_field(
        "FOLDER", "Folder of the comparison; finished results in it are skipped.", "--out", "-o",
        default=Path("runs/compare"),
    )  # fmt: skip
    time_limit: float | None = output_field("SECONDS", "Stop after this time; the same command continues from there.")
    resume: bool = output_field(
        "", "Continue the comparison in --out; without DATA, with its stored settings.", "--resume", default=False
    )
    as_json: Json = False
    quiet: Quiet = False


@handle_errors(resumable=True, skip_flag="--set data.bad_rows=skip")
@expand_options
def compare(data: DataOptions, compared: CompareOptions, run: CompareRunOptions, sources: Sources = None) -> None:
    """Compare methods with the same data, retraining, seeds and number of trials; one result file per point."""
    from thresher.experiment.compare import compare as run_comparison
    from thresher.experiment.comparison.compared_points import comparison_text

    refuse_processes("compare")
    if run.time_limit is not None and run.time_limit <= 0:
        raise ConfigError(f"--time-limit {run.time_limit:g}: must be above 0 seconds.")
    config = _compare_config(sources, data, compared, run)
    _print_grids(config)
    with display(quiet=run.quiet) as progress:
        found = run_comparison(config, out=run.out, time_limit=run.time_limit, progress=progress)
    for (model, method, budget), reason in found.unmet.items():
        print_note(f"{model}, {method}, budget {budget}: {reason}")
    tables = comparison_text(found.points, config.budgets)
    if run.as_json or not tables:
        print_note(tables or "No result of a method yet.", fold=not tables)
    else:
        print(tables)
    for figure in found.figures:
        print_note(f"Figure   {figure}", fold=False)
    if found.points:
        print_note(f"Results  {run.out / 'points'}", fold=False)
        print_note(f"Report   {run.out / 'report' / 'index.html'}", fold=False)
    if unconverged := _describe_unconverged(found.points, config.training.max_epochs):
        print_note(unconverged)
    if not found.finished:
        print_note("Stopped at the time limit. The same command continues from here.")
    if run.as_json:
        print(json.dumps({"points": [asdict(point) for point in found.points]}))


def _compare_config(
    sources: Sequence[str] | None, data: DataOptions, compared: CompareOptions, run: CompareRunOptions
) -> "CompareConfig":
    from thresher.cli.run_settings import run_config, split_names
    from thresher.embeddings.method_registry import registered_embeddings
    from thresher.experiment.comparison.compare_config import CompareConfig, with_epochs

    if run.resume and not sources and run.config is None:
        config = _stored_config(data, compared, run)
    else:
        settings = run_config(sources, data, run, SearchOptions(budgets=compared.budgets))
        config = CompareConfig(
            data=settings.data,
            budgets=settings.budgets,
            embedding_dim=settings.embedding.embedding_dim,
            search=settings.search,
            training=settings.training,
            teacher_share=settings.teacher_share or 0.0,
            imports=settings.imports,
        )
        _check_shared_settings(settings)
    given: dict[str, Any] = {"seeds": compared.seeds, "first_seed": compared.first_seed, "trials": compared.trials}
    if compared.no_rival:
        given["rival"] = False
    if compared.methods is not None:
        methods = split_names(compared.methods)
        given["methods"] = tuple(registered_embeddings() if methods == ["all"] else methods)
    if compared.models is not None:
        given["models"] = tuple(split_names(compared.models))
    config = replace(config, **{name: value for name, value in given.items() if value is not None})
    return config if compared.epochs is None else with_epochs(config, compared.epochs)


def _stored_config(data: DataOptions, compared: CompareOptions, run: CompareRunOptions) -> "CompareConfig":
    """The stored settings of the comparison in a folder, with the given budgets if any."""
    from thresher._internal.registry import import_modules
    from thresher._internal.settings import load_toml
    from thresher.experiment.comparison.compare_config import SETTINGS, CompareConfig
    from thresher.search.budget import parse_budgets

    if not (run.out / SETTINGS).exists():
        raise ConfigError(f"{run.out} holds no comparison to resume. Name its data, and leave --resume out.")
    if data != DataOptions() or run.settings or compared.epochs is not None:
        raise ConfigError(
            "--resume without DATA uses the data and settings stored in the folder. Only --methods, --models, "
            "--budgets, --seeds, --first-seed, --trials and --import can be added; for other options, name the data, "
            "too."
        )
    import_modules(run.imports or ())
    stored = load_toml(CompareConfig, run.out / SETTINGS)
    stored = replace(stored, imports=tuple(dict.fromkeys((*stored.imports, *(run.imports or ())))))
    if compared.budgets is None:
        return stored
    return replace(stored, budgets=tuple(map(str, parse_budgets(compared.budgets))))


def _check_shared_settings(run: "RunConfig") -> None:
    """Raise if a setting was changed that a comparison does not have."""
    from thresher.experiment.config import RunConfig, changed_settings

    names = ("data", "budgets", "search", "training", "teacher_share", "imports")
    shared = {name: getattr(run, name) for name in names}
    embedding = replace(RunConfig().embedding, embedding_dim=run.embedding.embedding_dim)
    plain = RunConfig(embedding=embedding, **shared)
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
    width = max(map(len, config.all_methods))
    for method in config.all_methods:
        print_note(f"  {method:<{width}}  {describe_grid(method, first=config.trials)}")


def _describe_unconverged(points: "Sequence[ComparedPoint]", max_epochs: float) -> str:
    """Methods with trainings that ended at the last epoch instead of by early stopping, and how many."""
    from thresher.models.model_registry import FLOOR

    compared = [point for point in points if point.model != FLOOR]  # the floor has as many epochs as it needs
    methods = Counter(point.method for point in compared if point.retrain_epochs >= max_epochs)
    if not methods:
        return ""
    counts = ", ".join(f"{method} ({count})" for method, count in sorted(methods.items()))
    return f"Not converged after {max_epochs} epochs (training.max_epochs); more may change the order: {counts}"


def view_comparison(folder: Path) -> View:
    """Tables and figures of the points that a comparison has so far."""
    from thresher.experiment.comparison.compared_points import compared_models, comparison_text, load_points

    points = load_points(folder / "points")
    sizes: dict[str, int] = {}
    for point in points:
        if point.budget is not None:
            sizes[point.budget] = max(sizes.get(point.budget, 0), point.num_parameters)
    details: Details = {
        "kind": "comparison",
        "folder": str(folder),
        "data": ", ".join(dict.fromkeys(point.source for point in points)) or "no results yet",
        "methods": list(dict.fromkeys(point.method for point in points if point.budget is not None)),
        "seeds": len({point.seed for point in points}),
        "points": len(points),
    }

    def display() -> None:
        print_details(details)
        if sizes:
            largest_first = sorted(sizes, key=lambda budget: -sizes[budget])
            print(f"\n{comparison_text(points, largest_first)}")

    everything = details | {"points": [asdict(point) for point in points]}
    return View(everything, display, partial(_draw, points) if compared_models(points) else None)


def _draw(points: "Sequence[ComparedPoint]", figure: Path) -> list[Path]:
    """Draw one figure, or one per model with the model's name appended to the file name."""
    from thresher.experiment.comparison.compared_points import compared_models, draw_comparison

    if len(compared_models(points)) == 1:
        return draw_comparison(points, lambda _: figure)
    return draw_comparison(points, lambda model: figure.with_name(f"{figure.stem}-{model}{figure.suffix}"))
