"""The options of all commands, each defined once: a field of a dataclass whose annotation holds its help text.

A command takes these dataclasses as parameters; `expand_options` shows their fields to typer as single options.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

DATA, MODEL, OUTPUT = "Data", "Model and search", "Run and output"
_RAW = (
    "Your files (CSV, TSV, Parquet, also .gz or .zst; several or a 'glob*'), or a data set by name: "
    "movielens-1m, criteo, avazu (with --data-dir, or followed by its files), synthetic"
)


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each dataclass parameter of a command by one parameter per field, for typer."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters = []
    for parameter in signature(command).parameters.values():
        if parameter.name not in groups:
            parameters.append(parameter.replace(annotation=hints[parameter.name], kind=Parameter.KEYWORD_ONLY))
            continue
        kinds = get_type_hints(groups[parameter.name], include_extras=True)
        parameters += [
            Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=kinds[field.name])
            for field in fields(groups[parameter.name])
        ]

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})  # type: ignore[operator]
        command(**values)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _data(metavar: str, text: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=DATA, show_default=False)


def _model(metavar: str, text: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=MODEL, show_default=False)


def _output(metavar: str, text: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=OUTPUT)


Json = Annotated[bool, _output("", "Print one JSON document instead of a table.", "--json")]
Quiet = Annotated[bool, _output("", "No progress.", "--quiet", "-q")]
Out = Annotated[Path, _output("FOLDER", "Folder of the run.", "--out", "-o")]
Force = Annotated[bool, _output("", "Replace the run or table in --out.", "--force")]
RawSources = Annotated[list[str] | None, typer.Argument(metavar="DATA", help=f"{_RAW}.", show_default=False)]
Sources = Annotated[
    list[str] | None,
    typer.Argument(metavar="DATA", help=f"{_RAW}; or a folder written by thresher encode.", show_default=False),
]


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Which files to read, and how; None means "not given"."""

    label: Annotated[str | None, _data("COLUMN", "Label column; guessed by default.")] = None
    positive: Annotated[str | None, _data("A,B", "Label values that mean 1; by default the label is 0/1.")] = None
    fields: Annotated[
        str | None,
        _data(
            "A,B:log2",
            "Columns to use, each with an optional transform: log2, quantiles, or a part of a date: hour, weekday, "
            "day, month, year, hour_of_week (hash needs --config). By default columns and transforms are guessed.",
        ),
    ] = None
    drop: Annotated[str | None, _data("A,B", "Columns to leave out of the guess.")] = None
    data_dir: Annotated[
        str | None,
        _data(
            "FOLDER",
            "Folder of a named data set's raw files: ratings.dat, users.dat, movies.dat (movielens-1m), train.txt or "
            "day_* (criteo), train.csv (avazu).",
        ),
    ] = None
    min_count: Annotated[
        int | None, _data("N", "Values seen fewer times become unknown; default 1, criteo and avazu 10.")
    ] = None
    split_seed: Annotated[int | None, _data("N", "Seed of the train/validation/test split; default 0.")] = None


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(DataOptions):
    """Further data options, of `encode` only; the other commands take them by `--set`."""

    bad_rows: Annotated[
        str | None, _data("error|skip", "On an unreadable row: stop (default), or leave it out, count and show it.")
    ] = None
    vocabulary_from: Annotated[
        str | None,
        _data("train|all", "Rows that define the vocabularies: training split (default), or all as in the paper."),
    ] = None
    vocabulary_like: Annotated[
        str | None, _data("FOLDER", "Use the fields and vocabularies of this encoded table, e.g. for a later file.")
    ] = None
    new_values: Annotated[
        str | None,
        _data("unknown|append", "With --vocabulary-like: new values become unknown (default), or are appended."),
    ] = None
    memory_mb: Annotated[
        int | None, _data("MB", "Approximate memory for reading, without the vocabularies; default 1000.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Model, method and budgets."""

    model: Annotated[
        str | None,
        _model("NAME", "fm (default), deepfm, autoint, or a registered one; lr with --set embedding.first_order=true."),
    ] = None
    embedding_dim: Annotated[
        int | None, _model("D", "Embedding size before pruning; default 64.", "--embedding-dim", "-d")
    ] = None
    method: Annotated[
        str | None,
        _model("NAME", "Compression method: pep (default), magnitude, uniform, mde, hash, … (docs/methods.md)."),
    ] = None
    teachers: Annotated[
        str | None,
        _model("NAME,…", "Further teacher models for distillation, e.g. deepfm,autoint (docs/search.md)."),
    ] = None
    budgets: Annotated[
        str | None,
        _model("30k,2%,1MB", "Target sizes: parameters, shares of the table, or bytes; default 10%,5%,2%,1%."),
    ] = None
    seed: Annotated[int | None, _model("N", "Seed of initial weights and batch order; default 0.")] = None


@dataclass(frozen=True, kw_only=True)
class PruneOptions(SearchOptions):
    """Options of `prune` only."""

    max_auc_drop: Annotated[
        float | None,
        _model("0.001", "Instead of budgets: the validation AUC that may be lost; finds the smallest such size."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SettingsOptions:
    """Settings by file and by dotted name."""

    config: Annotated[
        Path | None, _output("FILE", "TOML file with settings; other options override it.", "--config", "-c")
    ] = None
    settings: Annotated[
        list[str] | None,
        _output("KEY=VALUE", "Any setting by its dotted name, e.g. training.batch_size=4096.", "--set"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RunOptions(SettingsOptions):
    """Output folder of a run, and what to do with a run that is already there."""

    out: Out = Path("runs/run")
    resume: Annotated[
        bool, _output("", "Continue the run in --out; without DATA, with its stored settings.", "--resume")
    ] = False
    force: Force = False
    as_json: Json = False
    quiet: Quiet = False
