"""Command-line options and TOML → `RunConfig`: the file first, then options, then `--set`."""

from collections.abc import Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from thresher._internal.registry import import_modules
from thresher._internal.settings import config_from_mapping, load_toml, override
from thresher.cli.options import DataOptions, PruneOptions, SearchOptions, SettingsOptions
from thresher.data.config import DataConfig, FieldConfig
from thresher.data.encode.sources import source_names
from thresher.data.schema import DATE_PARTS
from thresher.errors import ConfigError
from thresher.experiment.config import RunConfig
from thresher.models.model_registry import model_config
from thresher.report.notes import print_note
from thresher.search.budget import parse_budgets

FILES, ENCODED = "files", "encoded"
PERCENT = 100  # a smaller number without a unit may be meant as a share
SOURCE_INDEPENDENT = {"split_seed", "vocabulary_from", "min_count", "bad_rows", "memory_mb", "synthetic"}


def run_config(
    sources: Sequence[str] | None, data: DataOptions, settings: SettingsOptions, model: SearchOptions | None = None
) -> RunConfig:
    """The settings of a command: defaults or the TOML file, then its options, then `--set`."""
    model = SearchOptions() if model is None else model
    imports = tuple(settings.imports or ())
    import_modules(imports)  # before a setting names what they register
    config = RunConfig() if settings.config is None else load_toml(RunConfig, settings.config)
    config = replace(config, imports=tuple(dict.fromkeys((*config.imports, *imports))))
    config = replace(config, data=_data_config(config.data, sources or (), data))
    config = _override_from(config, "data", data, ("bad_rows", "vocabulary_from", "new_values", "memory_mb"))
    dataset = config.data.source if settings.config is None else ""
    if settings.config is None:  # use the settings recorded for this data set, if any
        config = replace(config, model=model_config(model.model or "fm", dataset))
    elif model.model is not None:
        config = override(config, [f"model.name={model.model}"], where="--model")
    config = _override_from(config, "embedding", model, ("method", "embedding_dim"))
    max_auc_drop = model.max_auc_drop if isinstance(model, PruneOptions) else None
    if model.budgets is not None and max_auc_drop is not None:
        raise ConfigError("--budgets and --max-auc-drop are mutually exclusive.")
    if model.budgets is not None:
        budgets = tuple(str(budget) for budget in parse_budgets(model.budgets))
        _note_small_budgets(budgets)
        config = replace(config, budgets=budgets, max_auc_drop=None)
    for name in ("device", "precision"):
        if (value := getattr(model, name)) is not None:
            config = override(config, [f"{name}={value}"], where=f"--{name}")
    if model.effort is not None:
        config = override(config, [f"effort={model.effort}"], where="--effort")
    seeds = model.seeds if isinstance(model, PruneOptions) else None
    start_from = None if model.start_from is None else str(Path(model.start_from).absolute())
    given = {"max_auc_drop": max_auc_drop, "seed": model.seed, "seeds": seeds, "start_from": start_from}
    config = replace(config, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    config = override(config, settings.settings or (), where="--set")
    if model.teachers is None:
        return config
    teachers = tuple(model_config(name, dataset) for name in split_names(model.teachers))
    return replace(config, teacher_models=teachers)


def _note_small_budgets(budgets: Sequence[str]) -> None:
    """A number without a unit is a number of parameters; a small one is more likely meant as a share."""
    for text in budgets:
        if text.isdigit() and int(text) < PERCENT:
            print_note(f"budget {text} is {text} parameters; write {text}% for a share")


def split_names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _override_from(config: RunConfig, table: str, options: object, names: Sequence[str]) -> RunConfig:
    """Set `table.name` for each option that is given; errors name the option."""
    for name in names:
        if (value := getattr(options, name, None)) is not None:
            config = override(config, [f"{table}.{name}={value}"], where=f"--{name.replace('_', '-')}")
    return config


def _data_config(data: DataConfig, sources: Sequence[str], options: DataOptions) -> DataConfig:
    changes: dict[str, Any] = _source_settings(sources, data) if sources else {}
    for name in ("data_dir", "label", "min_count", "split_seed", "vocabulary_like", "positive", "drop"):
        if (value := getattr(options, name, None)) is not None:
            changes[name] = tuple(split_names(value)) if name in ("positive", "drop") else value
    if options.fields is not None:
        changes["fields"] = _parse_fields(split_names(options.fields))
    config = replace(data, **changes)
    if config.source == FILES and not config.paths:
        raise ConfigError(f"No data given. Name your files, or one of: {', '.join(_named_sources())}.")
    return config


def _source_settings(words: Sequence[str], data: DataConfig) -> dict[str, Any]:
    """Source and paths; settings in `data` that belong to another source are reset."""
    names = _named_sources()
    defaults = {field.name: field.default for field in fields(DataConfig) if field.name not in SOURCE_INDEPENDENT}
    if words[0] in names:
        files = {"paths": tuple(words[1:])} if len(words) > 1 else {}
        return ({} if data.source == words[0] else defaults) | {"source": words[0]} | files
    if len(words) == 1 and (Path(words[0]) / "table.json").exists():
        return ({} if data.source == ENCODED else defaults) | {"source": ENCODED, "paths": tuple(words)}
    near = get_close_matches(words[0], names, 1)
    if near and not Path(words[0]).exists():
        raise ConfigError(f"{words[0]}: no such file. Did you mean the data set {near[0]!r}?")
    return ({} if data.source == FILES else defaults) | {"source": FILES, "paths": tuple(words)}


def _named_sources() -> list[str]:
    return [name for name in source_names() if name not in (FILES, ENCODED)]


def _parse_fields(texts: Sequence[str]) -> tuple[FieldConfig, ...]:
    """Fields of `--fields`; several fields of one column are named as written, e.g. `when:hour`, `when:weekday`."""
    parsed = []
    for text in texts:
        name, _, transform = text.rpartition(":") if ":" in text else (text, "", "none")
        mapping = {"name": name, "transform": transform}
        if transform in DATE_PARTS:
            mapping |= {"transform": "date", "date_part": transform}
        parsed.append(config_from_mapping(FieldConfig, mapping, where=f"--fields {text}"))
    columns = [field.name for field in parsed]
    return tuple(
        replace(field, name=text, column=field.name) if columns.count(field.name) > 1 else field
        for field, text in zip(parsed, texts, strict=True)
    )
