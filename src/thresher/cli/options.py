"""The options of all commands, each defined once: a field of a dataclass with its help text.

A command takes these dataclasses as parameters; `expand_options` shows their fields to typer as single options.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from thresher.errors import ConfigError

DATA, MODEL, OUTPUT = "Data", "Model and search", "Run and output"
BUDGETS_HELP = "Target sizes: parameters, shares of the table, bytes (1MB, '1MB bundle'); default 10%,5%,2%,1%."
_RAW = (
    "Your files (CSV, TSV, Parquet, also .gz or .zst; several or a 'glob*'), or a data set by name: "
    "movielens-1m, criteo, avazu (with --data-dir, or followed by its files), synthetic"
)


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each dataclass parameter of a command by one parameter per field, for typer."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters = []
    for parameter in signature(command).parameters.values():
        if parameter.name not in groups:
            parameters.append(parameter.replace(annotation=hints[parameter.name], kind=Parameter.KEYWORD_ONLY))
            continue
        kinds = get_type_hints(groups[parameter.name], include_extras=True)
        for item in fields(groups[parameter.name]):
            kind = Annotated[kinds[item.name], item.metadata["option"]] if item.metadata else kinds[item.name]
            parameters.append(Parameter(item.name, Parameter.KEYWORD_ONLY, default=item.default, annotation=kind))

    @wraps(command)
    def run(**values: Any) -> None:
        for name, value in values.items():
            if value == "":
                raise ConfigError(f"--{name.replace('_', '-')} is empty. Give a value, or leave the option out.")
        for name, group in groups.items():
            values[name] = group(**{item.name: values.pop(item.name) for item in fields(group)})
        command(**values)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def option(metavar: str, text: str, *names: str, panel: str | None = None, show_default: bool = False) -> Any:
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, show_default=show_default)


def option_field(metavar: str, text: str, *names: str, panel: str, default: Any = None) -> Any:
    """A field of a dataclass of options; None means "not given"."""
    shown = isinstance(default, Path)
    return field(default=default, metadata={"option": option(metavar, text, *names, panel=panel, show_default=shown)})


data_field = partial(option_field, panel=DATA)
model_field = partial(option_field, panel=MODEL)
output_field = partial(option_field, panel=OUTPUT)

Json = Annotated[bool, option("", "Print one JSON document instead of a table.", "--json", panel=OUTPUT)]
Quiet = Annotated[bool, option("", "No progress.", "--quiet", "-q", panel=OUTPUT)]
Force = Annotated[bool, option("", "Replace the run or table in --out.", "--force", panel=OUTPUT)]
PROCESSES_HELP = "Processes on this machine that share each batch (docs/gpu_and_many_machines.md); default 1."
Processes = Annotated[int | None, option("N", PROCESSES_HELP, "--processes", panel=OUTPUT)]
IMPORT_HELP = "Import this module first; it registers your models, methods or data sources (docs/custom_code.md)."
Imports = Annotated[list[str] | None, option("MODULE", IMPORT_HELP, "--import", panel=OUTPUT)]
RawSources = Annotated[list[str] | None, typer.Argument(metavar="DATA", help=f"{_RAW}.", show_default=False)]
Sources = Annotated[
    list[str] | None,
    typer.Argument(metavar="DATA", help=f"{_RAW}; or a folder written by thresher encode.", show_default=False),
]


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Which files to read, and how."""

    label: str | None = data_field("COLUMN", "Label column; guessed by default.")
    positive: str | None = data_field("A,B", "Label values that mean 1; by default the label is 0/1.")
    fields: str | None = data_field(
        "A,B:log2",
        "Columns to use, each with an optional transform: log2, quantiles, or a part of a date: hour, weekday, "
        "day, month, year, hour_of_week (hash needs --config). By default columns and transforms are guessed.",
    )
    drop: str | None = data_field("A,B", "Columns to leave out of the guess.")
    data_dir: str | None = data_field(
        "FOLDER",
        "Folder of a named data set's raw files: ratings.dat, users.dat, movies.dat (movielens-1m), train.txt or "
        "day_* (criteo), train.csv (avazu).",
    )
    min_count: int | None = data_field("N", "Values seen fewer times become unknown; default 1, criteo and avazu 10.")
    split_seed: int | None = data_field("N", "Seed of the train/validation/test split; default 0.")


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(DataOptions):
    """Further data options, of `encode` only; the other commands take them by `--set`."""

    bad_rows: str | None = data_field(
        "error|skip", "On an unreadable row: stop (default), or leave it out, count and show it."
    )
    vocabulary_from: str | None = data_field(
        "train|all", "Rows that define the vocabularies: training split (default), or all as in the paper."
    )
    vocabulary_like: str | None = data_field(
        "FOLDER", "Use the fields and vocabularies of this encoded table, e.g. for a later file."
    )
    new_values: str | None = data_field(
        "unknown|append", "With --vocabulary-like: new values become unknown (default), or are appended."
    )
    memory_mb: int | None = data_field("MB", "Approximate memory for reading, without the vocabularies; default 1000.")


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Model, method and budgets."""

    model: str | None = model_field(
        "NAME", "fm (default), deepfm, autoint, or a registered one; lr with --set embedding.first_order=true."
    )
    embedding_dim: int | None = model_field("D", "Embedding size before pruning; default 64.", "--embedding-dim", "-d")
    method: str | None = model_field(
        "NAME", "Compression method: pep (default), magnitude, uniform, mde, hash, … (docs/methods.md)."
    )
    effort: str | None = model_field(
        "fast|standard|best|paper", "How much training is spent: standard (default), see docs/search.md."
    )
    start_from: str | None = model_field(
        "FOLDER", "A run or a bundle whose trained model is pruned, instead of training one.", "--start-from"
    )
    teachers: str | None = model_field(
        "NAME,…", "Further teacher models for distillation, e.g. deepfm,autoint (docs/distillation.md)."
    )
    budgets: str | None = model_field("30k,2%,1MB", BUDGETS_HELP)
    seed: int | None = model_field("N", "Seed of initial weights and batch order; default 0.")
    device: str | None = model_field("cpu|cuda|cuda:1|mps", "Device to train on; by default cuda, else cpu.")
    precision: str | None = model_field("float32|bf16", "Precision of matrix products; default float32.")


@dataclass(frozen=True, kw_only=True)
class PruneOptions(SearchOptions):
    """Options of `prune` only."""

    max_auc_drop: float | None = model_field(
        "0.001", "Instead of budgets: the validation AUC that may be lost; finds the smallest such size."
    )
    seeds: int | None = model_field("N", "Number of seeds, from --seed on; results are means. Default 1.")


@dataclass(frozen=True, kw_only=True)
class SettingsOptions:
    """Settings by file and by dotted name."""

    config: Path | None = output_field("FILE", "TOML file with settings; other options override it.", "--config", "-c")
    settings: list[str] | None = output_field(
        "KEY=VALUE", "Any setting by its dotted name, e.g. training.batch_size=4096.", "--set"
    )
    imports: Imports = None


@dataclass(frozen=True, kw_only=True)
class RunOptions(SettingsOptions):
    """Output folder of a run, and what to do with a run that is already there."""

    out: Path = output_field("FOLDER", "Folder of the run.", "--out", "-o", default=Path("runs/run"))
    resume: bool = output_field(
        "", "Continue the run in --out; without DATA, with its stored settings.", "--resume", default=False
    )
    processes: Processes = None
    force: Force = False
    as_json: Json = False
    quiet: Quiet = False
