"""Flags and TOML → `RunConfig`: the file first, then flags, then `--set`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from thresher._internal.settings import config_from_mapping, load_toml, override
from thresher.cli.console import say
from thresher.data.config import DataConfig, FieldConfig
from thresher.data.encode.sources import build_source, source_names
from thresher.data.read.column_values import SHOWN_VALUES
from thresher.data.schema import DATE_PARTS
from thresher.errors import ConfigError
from thresher.experiment.runs import RunConfig
from thresher.models.model_registry import model_config
from thresher.search.budget import parse_budgets

FILES, ENCODED = "files", "encoded"
ANY_SOURCE = {"split_seed", "vocabulary_from", "min_count", "bad_rows", "memory_mb", "synthetic"}
"""Settings of `[data]` that mean the same whatever the source."""


@dataclass(frozen=True, kw_only=True)
class Flags:
    """What was said on the command line; None is "not said"."""

    sources: Sequence[str] = ()
    config: Path | None = None
    settings: Sequence[str] = ()
    data_dir: str | None = None
    label: str | None = None
    positive: str | None = None
    fields: str | None = None
    drop: str | None = None
    min_count: int | None = None
    split_seed: int | None = None
    bad_rows: str | None = None
    vocabulary_from: str | None = None
    vocabulary_like: str | None = None
    new_values: str | None = None
    memory_mb: int | None = None
    model: str | None = None
    embedding_dim: int | None = None
    method: str | None = None
    teachers: str | None = None
    budgets: str | None = None
    max_auc_drop: float | None = None
    seed: int | None = None

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> "Flags":
        """The flags among a command's parameters, which bear the same names."""
        said = {field.name: params[field.name] for field in fields(cls) if params.get(field.name) is not None}
        return cls(**said)


def run_config(flags: Flags) -> RunConfig:
    """The settings a command runs with."""
    config = RunConfig() if flags.config is None else load_toml(RunConfig, flags.config)
    config = replace(config, data=_data(config.data, flags))
    for name in ("bad_rows", "vocabulary_from", "new_values", "memory_mb"):
        if (value := getattr(flags, name)) is not None:
            config = override(config, [f"data.{name}={value}"], where=f"--{name.replace('_', '-')}")
    if flags.config is None:  # the settings recorded for this data set, where there are any
        config = replace(config, model=model_config(flags.model or "fm", config.data.source))
    elif flags.model is not None:
        config = override(config, [f"model.name={flags.model}"], where="--model")
    if flags.method is not None:
        config = override(config, [f"embedding.method={flags.method}"], where="--method")
    if flags.embedding_dim is not None:
        config = override(config, [f"embedding.embedding_dim={flags.embedding_dim}"], where="--embedding-dim")
    if flags.budgets is not None and flags.max_auc_drop is not None:
        raise ConfigError("--budgets says what may stay, --max-auc-drop what may be lost; give one of them")
    if flags.budgets is not None:
        budgets = tuple(str(budget) for budget in parse_budgets(flags.budgets))
        config = replace(config, budgets=budgets, max_auc_drop=None)
    said = {name: getattr(flags, name) for name in ("max_auc_drop", "seed") if getattr(flags, name) is not None}
    config = override(replace(config, **said), flags.settings, where="--set")
    if flags.teachers is None:
        return config
    dataset = config.data.source if flags.config is None else ""  # as for --model
    return replace(config, teacher_models=tuple(model_config(name, dataset) for name in _parts(flags.teachers)))


def show_guess(data: DataConfig) -> None:
    """Say what had to be guessed about one's own files, and why, so that a wrong guess is seen before it costs time."""
    source = build_source(data)
    guess, labels = getattr(source, "guess", None), getattr(source, "labels", ())
    if labels and data.positive and not any(each.meaning for each in labels):
        found = ", ".join(repr(each.value) for each in labels[:SHOWN_VALUES])
        say(f"No label in the first rows is {' or '.join(map(repr, data.positive))} (--positive); there are {found}.")
    if guess is None:
        return
    rows, left = list(guess.reasons), []
    if data.fields:  # the guess is of the label alone: what it would have made of the other columns is of no interest
        said = {field.column or field.name: _said(field) for field in data.fields}
        used = {guess.label, *said, data.weight, data.split.column, *(d.column or d.name for d in data.dense)}
        rows = [(column, said.get(column, reason)) for column, reason in guess.reasons if column in used]
        left = [column for column, _ in guess.reasons if column not in used]
        say("Columns used, the label as guessed (say otherwise with --label):")
    else:
        say("Columns as guessed (say otherwise with --label, --fields, --drop):")
    width = max(len(column) for column, _ in rows)
    for column, reason in rows:
        say(f"  {column:<{width}}  {reason}")
    if left:
        say(f"Not used: {', '.join(left)}")


def _said(field: FieldConfig) -> str:
    return "field: as said" + (f", {field.transform}" if field.transform != "none" else "")


def _data(data: DataConfig, flags: Flags) -> DataConfig:
    changes: dict[str, Any] = {}
    if flags.sources:
        changes = _source(flags.sources, data)
    for name in ("data_dir", "label", "min_count", "split_seed", "vocabulary_like"):
        if getattr(flags, name) is not None:
            changes[name] = getattr(flags, name)
    for name in ("positive", "drop"):
        if getattr(flags, name) is not None:
            changes[name] = tuple(_parts(getattr(flags, name)))
    if flags.fields is not None:
        changes["fields"] = _fields(_parts(flags.fields))
    made = replace(data, **changes)
    if made.source == FILES and not made.paths:
        raise ConfigError(f"no data given; name your files, or one of: {', '.join(_named_sources())}")
    return made


def _source(words: Sequence[str], data: DataConfig) -> dict[str, Any]:
    """A named data set, perhaps with its files, or files. What TOML said of another source does not hold for this."""
    names = _named_sources()
    defaults = {field.name: field.default for field in fields(DataConfig) if field.name not in ANY_SOURCE}
    if words[0] in names:
        files = {"paths": tuple(words[1:])} if len(words) > 1 else {}
        return ({} if data.source == words[0] else defaults) | {"source": words[0]} | files
    if len(words) == 1 and (Path(words[0]) / "table.json").exists():
        return ({} if data.source == ENCODED else defaults) | {"source": ENCODED, "paths": tuple(words)}
    near = get_close_matches(words[0], names, 1)
    if near and not Path(words[0]).exists():
        raise ConfigError(f"{words[0]}: no such file; did you mean the data set {near[0]!r}?")
    return ({} if data.source == FILES else defaults) | {"source": FILES, "paths": tuple(words)}


def _named_sources() -> list[str]:
    return [name for name in source_names() if name not in (FILES, ENCODED)]


def _fields(texts: Sequence[str]) -> tuple[FieldConfig, ...]:
    """Fields as said; several of one column have what was said for a name, e.g. `when:hour` and `when:weekday`."""
    made = [_field(text) for text in texts]
    columns = [field.name for field in made]
    return tuple(
        replace(field, name=text, column=field.name) if columns.count(field.name) > 1 else field
        for field, text in zip(made, texts, strict=True)
    )


def _field(text: str) -> FieldConfig:
    name, colon, transform = text.rpartition(":")
    mapping = {"name": name, "transform": transform} if colon else {"name": text}
    if colon and transform in DATE_PARTS:
        mapping |= {"transform": "date", "date_part": transform}
    return config_from_mapping(FieldConfig, mapping, where=f"--fields {text}")


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
