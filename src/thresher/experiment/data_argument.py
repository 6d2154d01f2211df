"""What `prune` and `compare` are given as data: settings, a data frame, or the path of a file.

A data frame is written once into the folder of the run, as `data.parquet`. The run can be resumed without it, and its
data is recorded like any other file.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TypeAlias, TypeVar

import polars as pl

from thresher._internal.storage.files import atomic_file
from thresher.data.read.column_values import check_columns
from thresher.data.read.data_frames import DataFrame, to_polars
from thresher.errors import ConfigError, FolderError, FormatError, SettingsConflictError, WriteError
from thresher.experiment.comparison.compare_config import CompareConfig
from thresher.experiment.config import RunConfig
from thresher.models.base import ModelConfig
from thresher.models.model_registry import model_config
from thresher.search.budget import Budgets, parse_budgets

Data: TypeAlias = DataFrame | str | Path
Config = TypeVar("Config", RunConfig, CompareConfig)

DATA_FILE = "data.parquet"
RUNS = Path("runs")


def output_folder(out: str | Path | None, name: str, *, resume: bool = False) -> Path:
    """`out`, by default a new folder `runs/<name>-<date>-<time>`."""
    if out is not None:
        return Path(out)
    if resume:
        raise ConfigError("resume needs `out`, the folder of the run to continue.")
    new = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (new if number == 1 else f"{new}-{number}" for number in count(1))
    return next(RUNS / name for name in names if not (RUNS / name).exists())


def run_settings(
    data: object,
    folder: Path,
    label: str | None,
    budgets: Budgets | None,
    model: str | ModelConfig | None,
    config: RunConfig | None,
) -> tuple[RunConfig, pl.DataFrame | None]:
    """The settings of a run from the arguments of `prune`, and the rows to store in its folder, if any."""
    if isinstance(data, RunConfig):
        _reject(data, label=label, budgets=budgets, model=model, config=config)
        return data, None
    settings, frame = _with_data(RunConfig() if config is None else config, data, folder, label)
    if budgets is not None:
        settings = replace(settings, budgets=tuple(map(str, parse_budgets(budgets))), max_auc_drop=None)
    if model is not None:
        settings = replace(settings, model=model_config(model) if isinstance(model, str) else model)
    return settings, frame


def compare_settings(
    data: object,
    folder: Path,
    label: str | None,
    methods: Sequence[str] | None,
    budgets: Budgets | None,
    config: CompareConfig | None,
) -> tuple[CompareConfig, pl.DataFrame | None]:
    """The settings of a comparison from the arguments of `compare`, and the rows to store in its folder, if any."""
    if isinstance(data, CompareConfig):
        _reject(data, label=label, methods=methods, budgets=budgets, config=config)
        return data, None
    settings, frame = _with_data(CompareConfig() if config is None else config, data, folder, label)
    if methods is not None:
        settings = replace(settings, methods=tuple(methods))
    if budgets is not None:
        settings = replace(settings, budgets=tuple(map(str, parse_budgets(budgets))))
    return settings, frame


def _reject(settings: RunConfig | CompareConfig, **given: object) -> None:
    """Raise if settings are given as arguments beside a config that contains them."""
    if names := [name for name, value in given.items() if value is not None]:
        kind = type(settings).__name__
        raise ConfigError(f"{', '.join(names)} cannot be set beside a {kind}. Set them in the {kind}.")


def _with_data(config: Config, data: object, folder: Path, label: str | None) -> tuple[Config, pl.DataFrame | None]:
    """The settings with this data, and its rows if they are in memory."""
    settings = config.data
    if settings.paths or settings.source != "files":
        raise SettingsConflictError(
            f"the data is given twice: as an argument, and in config.data (source {settings.source!r}, paths "
            f"{list(settings.paths)}). Remove one of them."
        )
    settings = settings if label is None else replace(settings, label=str(label))  # pandas names columns 0, 1, 2, …
    if isinstance(data, str | Path):
        source = "encoded" if (Path(data) / "table.json").exists() else "files"
        return replace(config, data=replace(settings, source=source, paths=(str(data),))), None
    expected = f"a {type(config).__name__}, a pandas or polars data frame, or the path of a file"
    frame = to_polars(data, expected=expected)
    check_columns(frame.columns, filter(None, [settings.label]))
    return replace(config, data=replace(settings, paths=(str(folder / DATA_FILE),))), frame


def store_frame(frame: pl.DataFrame, folder: Path) -> None:
    """Write the rows of a run, or raise if the folder already holds other rows."""
    path = folder / DATA_FILE
    if not path.exists():
        with atomic_file(path) as temporary:
            try:
                frame.write_parquet(temporary)
            except pl.exceptions.PolarsError as error:
                raise WriteError(f"the data frame cannot be written to {path}: {error}") from error
        return
    try:
        stored = pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise FormatError(f"{path}: damaged ({error}). Choose another folder, or replace the run.") from error
    if not stored.equals(frame):
        raise FolderError(
            f"the data frame is not the one that the run in {folder} was started with (see {path}). Resume it with the "
            "same rows, or choose another folder."
        )
