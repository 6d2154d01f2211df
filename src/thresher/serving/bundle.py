"""The bundle: a folder with all a prediction needs, and nothing that could run code.

    bundle.json               format, version, model settings, checksums of every other file, facts of the run
    schema.json  vocabularies/<k>.parquet
    network.safetensors       every weight that is in no table
    tables/<module>.safetensors   one table per embedding, the first-order weights among them:
                              compact, or in the form of a method that shares or projects rows

`save_bundle` writes it, `open_bundle` checks it and builds the model from these files alone. Predicting: `predictor`.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

import thresher
from thresher._internal.files import atomic_folder, write_json
from thresher._internal.settings import config_from_mapping, config_to_mapping
from thresher.compact.method_table import AnyTable, has_table, load_any_table, to_table
from thresher.compact.stored import StoredEmbedding
from thresher.compact.table import CompactTable
from thresher.compact.value_types import ValueType
from thresher.data.encode.row_encoder import RowEncoder
from thresher.embeddings.base import FieldEmbedding
from thresher.errors import ConfigError, FormatError
from thresher.models.base import CtrModel, ModelConfig
from thresher.models.model_registry import build_model
from thresher.serving.bundle_files import FORMAT, VERSION, BundleFacts, read_bundle_facts, sha256


@dataclass(frozen=True)
class Bundle:
    """An opened bundle: the encoder of raw rows, the model in its compact form, and what is known about it."""

    folder: Path
    encoder: RowEncoder
    model: CtrModel
    model_config: ModelConfig
    tables: Mapping[str, AnyTable]
    facts: Mapping[str, Any]
    searched: Collection[str]
    """Names of the tables that budgets and results count: the embedding, and first-order weights if searched, too."""

    @property
    def num_parameters(self) -> int:
        """Kept entries of the searched tables."""
        return sum(table.num_parameters for table in self.searched_tables.values())

    @property
    def storage_bytes(self) -> int:
        """Bytes of all tables, searched or not: values and everything a lookup reads."""
        return sum(table.storage_bytes for table in self.tables.values())

    @property
    def searched_tables(self) -> dict[str, AnyTable]:
        return {name: table for name, table in self.tables.items() if name in self.searched}

    @property
    def searched_bytes(self) -> int:
        """Bytes of the searched tables, which are the `storage_bytes` of a run's results."""
        return sum(table.storage_bytes for table in self.searched_tables.values())


def save_bundle(
    folder: str | Path,
    model: CtrModel,
    model_config: ModelConfig,
    encoder: RowEncoder,
    *,
    facts: Mapping[str, Any] | None = None,
    value_type: ValueType = "fp32",
    searched: Collection[str] | None = None,
) -> Path:
    """Write all a prediction needs; an older bundle at the same place is replaced as a whole.

    Args:
        folder: where; parents are made.
        model: the trained model; every table in it is stored in its compact form.
        model_config: the settings the model was built with.
        encoder: schema and vocabularies, for instance `RowEncoder.load(encoded_table.folder)`.
        facts: anything worth keeping as JSON: budget, AUC, seed.
        value_type: how the values of compact tables are stored. What was trained in fewer bits stays as it is.
        searched: names of the tables that budgets count, as `Bundle.searched` has them for a model out of a bundle; by
            default those under a method.
    """
    folder, modules = Path(folder), find_tables(model)
    tables = {name: _with_values(to_table(module), value_type) for name, module in modules.items()}
    if searched is None:
        searched = _under_method(modules, tables)
    if model.embedding is not None and "embedding" not in tables:
        raise FormatError(
            f"{type(model.embedding).__qualname__} has no compact form, so a bundle cannot hold it; "
            "register one with @to_compact.register, or give it to_stored() and from_stored()"
        )
    inside = tuple(f"{name}." for name in tables)
    network = {
        name: tensor.detach().cpu().contiguous()
        for name, tensor in model.state_dict().items()
        if not name.startswith(inside)
    }
    with atomic_folder(folder) as beside:
        encoder.save(beside)
        for name, table in tables.items():
            table.save(beside / "tables" / f"{name}.safetensors")
        save_file(network, beside / "network.safetensors")
        files = sorted(path for path in beside.rglob("*") if path.is_file())
        write_json(
            beside / "bundle.json",
            {
                "format": FORMAT,
                "version": VERSION,
                "thresher": thresher.__version__,
                "model": config_to_mapping(model_config),
                "tables": {name: list(table.shape) for name, table in tables.items()},
                "searched": [name for name in tables if name in searched],
                "facts": dict(facts or {}),
                "files": {path.relative_to(beside).as_posix(): sha256(path) for path in files},
            },
        )
    return folder


def open_bundle(folder: str | Path, *, verify: bool = True) -> Bundle:
    """Check a bundle and build its model from files alone. Tables are memory-mapped.

    Args:
        folder: a folder `save_bundle` wrote.
        verify: compare every file with its checksum; without it only structure and sizes are checked.
    """
    about = read_bundle_facts(Path(folder), verify=verify)
    try:
        config = config_from_mapping(ModelConfig, about.model, where=str(about.folder / "bundle.json"))
    except ConfigError as error:
        raise FormatError(f"{folder}: the model cannot be built: {error}") from error
    encoder = RowEncoder.load(folder)
    tables = {name: _load_table(about, name) for name in about.tables}
    model = _build(about, config, encoder, tables)
    searched = _seem_searched(tables) if about.searched is None else about.searched
    return Bundle(about.folder, encoder, model, config, tables, about.facts, searched)


def convert_bundle(source: str | Path, folder: str | Path, value_type: ValueType) -> Path:
    """Write a bundle again with its values stored as another type, rounded.

    What was measured of the model before is no fact of the rounded one: it goes under `before_rounding`.
    """
    bundle = open_bundle(source)
    check_rounding(bundle, value_type)
    facts = bundle.facts if value_type == "fp32" else _facts_of_rounded(bundle.facts, value_type)
    return save_bundle(
        folder,
        bundle.model,
        bundle.model_config,
        bundle.encoder,
        facts=facts,
        value_type=value_type,
        searched=bundle.searched,
    )


def check_rounding(bundle: Bundle, value_type: ValueType) -> None:
    """Raise if the searched tables of a bundle cannot be stored as this type: only float32 values are rounded."""
    searched = bundle.searched_tables or bundle.tables
    is_plain = all(isinstance(table, CompactTable) and table.value_type == "fp32" for table in searched.values())
    if value_type != "fp32" and not is_plain:
        raise ConfigError(
            f"{bundle.folder}: only compact tables of float32 values can be rounded. Leave the value type unchanged."
        )


def _facts_of_rounded(facts: Mapping[str, Any], value_type: ValueType) -> dict[str, Any]:
    stale = {
        key: value for key, value in facts.items() if key == "storage_bytes" or key.startswith(("validation_", "test_"))
    }
    kept = {key: value for key, value in facts.items() if key not in stale}
    return kept | {"value_type": value_type, "before_rounding": stale}


def find_tables(model: nn.Module) -> dict[str, nn.Module]:
    """The modules of a model that a bundle keeps as tables, by name; not those inside another such module."""
    tables: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if has_table(module) and not any(name.startswith(f"{outer}.") for outer in tables):
            tables[name] = module
    return tables


def _build(about: BundleFacts, config: ModelConfig, encoder: RowEncoder, tables: Mapping[str, AnyTable]) -> CtrModel:
    schema = encoder.schema
    try:
        stored = {name: StoredEmbedding(schema.field_sizes, table) for name, table in tables.items()}
        # a model without vectors reads only the sizes of its embedding
        embedding = stored.get("embedding") or next(iter(stored.values()))
        with torch.random.fork_rng(devices=[]):  # initial weights, soon replaced, draw no numbers from the caller's
            model = build_model(embedding, config, num_dense=schema.num_dense)
        for name, module in stored.items():
            model.set_submodule(name, module)
        model.load_state_dict(load_file(about.network_path), assign=True)
    except (RuntimeError, ValueError, AttributeError, StopIteration, SafetensorError, OSError) as error:
        raise FormatError(
            f"{about.folder}: its files do not fit its model ({error}); export the model again"
        ) from error
    return model.eval().requires_grad_(False)


def _with_values(table: AnyTable, value_type: ValueType) -> AnyTable:
    if isinstance(table, CompactTable) and table.value_type == "fp32":
        return table.to_value_type(value_type)
    return table


def _under_method(modules: Mapping[str, nn.Module], tables: Mapping[str, AnyTable]) -> Collection[str]:
    """Names of the tables that a method has made; a stored one does not tell."""
    if any(isinstance(module, StoredEmbedding) for module in modules.values()):
        return _seem_searched(tables)
    return [name for name, module in modules.items() if isinstance(module, FieldEmbedding)]


def _seem_searched(tables: Mapping[str, AnyTable]) -> Collection[str]:
    """Where nobody says which tables were searched: the embedding, and those of which something was left out."""
    return [
        name for name, table in tables.items() if name == "embedding" or table.num_parameters < math.prod(table.shape)
    ]


def _load_table(about: BundleFacts, name: str) -> AnyTable:
    # the checksum of the whole file has been compared, if that was wanted
    table = load_any_table(about.table_path(name), verify=False)
    if table.shape != about.tables[name]:
        raise FormatError(
            f"{about.folder}: table {name!r} has shape {table.shape}, bundle.json says {about.tables[name]}"
        )
    return table
