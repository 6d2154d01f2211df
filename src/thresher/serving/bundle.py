"""The bundle: a folder with everything that predictions need. It contains no code and no pickle.

    manifest.json             sizes and checksums of all other files
    bundle.json               format, version, model settings, metadata
    schema.json  vocabularies.safetensors   fields and keys; dropped features need no key
    network.safetensors       all weights outside of tables
    README.md                 the model card
    tables/<module>.safetensors   one table per embedding, including first-order weights: compact, or in the form of
                              a method that shares or projects rows

`save_bundle` writes a bundle, `open_bundle` checks it and builds its model.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

import thresher
from thresher._internal.forked import prepare_torch
from thresher._internal.mapped_tensors import load_tensors
from thresher._internal.settings import config_from_mapping, config_to_mapping
from thresher._internal.storage.documents import damaged_file
from thresher._internal.storage.files import atomic_folder, write_json, write_text
from thresher._internal.storage.folder_manifest import read_unchanged, write_manifest
from thresher.compact.layouts import ValueType
from thresher.compact.method_table import AnyTable, StoredEmbedding, has_table, load_any_table, to_table
from thresher.compact.table import CompactTable
from thresher.data.encode.row_encoder import RowEncoder
from thresher.embeddings.base import FieldEmbedding
from thresher.errors import ConfigError, FormatError
from thresher.models.base import CtrModel, ModelConfig
from thresher.models.model_registry import build_model, model_name
from thresher.serving.manifest import ARTEFACT, FORMAT, VERSION, Manifest, read_manifest
from thresher.serving.model_card import FILE as CARD, model_card
from thresher.serving.vocabularies import index_vocabularies, load_vocabularies, needs_key, save_vocabularies


@dataclass(frozen=True)
class Bundle:
    """An opened bundle: the encoder of raw rows, the model with its compact tables, and metadata."""

    folder: Path
    encoder: RowEncoder
    model: CtrModel
    model_config: ModelConfig
    tables: Mapping[str, AnyTable]
    metadata: Mapping[str, Any]
    searched: Collection[str]  # tables that budgets and results count: the embedding, first-order weights if searched

    @property
    def num_parameters(self) -> int:
        """Kept entries of the searched tables."""
        return sum(table.num_parameters for table in self.searched_tables.values())

    @property
    def storage_bytes(self) -> int:
        """Bytes of all tables: values and everything a lookup reads."""
        return sum(table.storage_bytes for table in self.tables.values())

    @property
    def searched_tables(self) -> dict[str, AnyTable]:
        return {name: table for name, table in self.tables.items() if name in self.searched}

    @property
    def searched_bytes(self) -> int:
        """Bytes of the searched tables: the `storage_bytes` in the results of a run."""
        return sum(table.storage_bytes for table in self.searched_tables.values())


def save_bundle(
    folder: str | Path,
    model: CtrModel,
    model_config: ModelConfig,
    encoder: RowEncoder,
    *,
    metadata: Mapping[str, Any] | None = None,
    value_type: ValueType = "fp32",
    searched: Collection[str] | None = None,
    keyed: NDArray[np.int64] | None = None,
) -> Path:
    """Write a trained model with compact tables as a bundle; an existing bundle is replaced atomically.

    A feature that all tables compute like the unknown feature of its field, such as a dropped one, is stored without
    its value: predictions are the same, and the bundle is smaller.

    Args:
        encoder: schema and vocabularies, for instance `RowEncoder.load(encoded_table.folder)`.
        value_type: how values of compact tables are stored. Tables trained with quantization keep their own type.
        searched: names of the tables that budgets count; by default, the tables made by an embedding method. Pass
            `Bundle.searched` for the model of an opened bundle.
        keyed: global ids of features whose values are stored in any case, for instance to train them later.
    """
    folder, modules = Path(folder), table_modules(model)
    tables = _tables_to_store(model, modules, value_type)
    if searched is None:
        searched = [name for name, module in modules.items() if _seems_searched(name, module)]
    description = {
        "format": FORMAT,
        "version": VERSION,
        "thresher": thresher.__version__,
        "model": config_to_mapping(model_config),
        "tables": {name: list(table.shape) for name, table in tables.items()},
        "searched": [name for name in tables if name in searched],
        "metadata": dict(metadata or {}),
    }
    shapes = {name: table.shape for name, table in tables.items()}
    card = model_card(model_name(model_config), encoder.schema, shapes, metadata or {}, thresher.__version__)
    keys = needs_key(tables.values(), encoder.schema.field_offsets, encoder.schema.num_features)
    if keyed is not None:
        keys[keyed] = True
    with atomic_folder(folder) as temporary:
        write_text(temporary / "schema.json", encoder.schema.to_json(indent=None))
        save_vocabularies(temporary, index_vocabularies(encoder.schema, encoder.vocabularies, keys))
        for name, table in tables.items():
            table.save(temporary / "tables" / f"{name}.safetensors")
        save_file(_weights_outside(tables, model), temporary / "network.safetensors")
        (temporary / CARD).write_text(card, encoding="utf-8")
        write_json(temporary / "bundle.json", description)
        write_manifest(temporary, ARTEFACT)
    return folder


def _tables_to_store(model: CtrModel, modules: Mapping[str, nn.Module], value_type: ValueType) -> dict[str, AnyTable]:
    tables = {name: to_table(module) for name, module in modules.items()}
    if model.embedding is not None and "embedding" not in tables:
        raise FormatError(
            f"{type(model.embedding).__qualname__} has no compact form, so it cannot be stored in a bundle. Register "
            "one with @to_compact.register, or implement to_stored() and from_stored()."
        )
    for name, table in tables.items():
        if isinstance(table, CompactTable) and table.value_type == "fp32":
            tables[name] = table.to_value_type(value_type)
    return tables


def _weights_outside(tables: Iterable[str], model: nn.Module) -> dict[str, Tensor]:
    """The model's weights that belong to none of the tables."""
    prefixes = tuple(f"{name}." for name in tables)
    return {
        name: tensor.detach().cpu().contiguous()
        for name, tensor in model.state_dict().items()
        if not name.startswith(prefixes)
    }


def open_bundle(folder: str | Path, *, verify: bool = True) -> Bundle:
    """Check a bundle and build its model. Tables are memory-mapped. `verify=False` skips the checksums."""
    prepare_torch()
    place = Path(folder)
    return read_unchanged(place, lambda: _open_bundle(place, verify=verify))


def _open_bundle(folder: Path, *, verify: bool) -> Bundle:
    manifest = read_manifest(folder, verify=verify)
    try:
        config = config_from_mapping(ModelConfig, manifest.model, where=str(manifest.folder / "bundle.json"))
    except ConfigError as error:
        raise FormatError(f"{folder}: the model cannot be built: {error}") from error
    schema = manifest.read_schema()
    # read_manifest verified the checksums
    encoder = RowEncoder(schema, load_vocabularies(manifest.folder, schema, verify=False))
    tables = manifest.load_tables(load_any_table)
    model = _build_model(manifest, config, encoder, tables)
    return Bundle(manifest.folder, encoder, model, config, tables, manifest.metadata, manifest.searched)


def table_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The outermost modules of a model that a bundle stores as tables, by name."""
    modules: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if has_table(module) and not any(name.startswith(f"{outer}.") for outer in modules):
            modules[name] = module
    return modules


def _seems_searched(name: str, module: nn.Module) -> bool:
    """Whether a method made this table. A stored table does not record that, but pruned entries show it."""
    if isinstance(module, StoredEmbedding):
        return name == "embedding" or module.table.num_parameters < math.prod(module.table.shape)
    return isinstance(module, FieldEmbedding)


def _build_model(
    manifest: Manifest, config: ModelConfig, encoder: RowEncoder, tables: Mapping[str, AnyTable]
) -> CtrModel:
    schema = encoder.schema
    network = load_tensors(manifest.network_path)
    with damaged_file(f"{manifest.folder}: its files do not fit its model, or one", "Export it again."):
        stored = {name: StoredEmbedding(schema.field_sizes, table) for name, table in tables.items()}
        _check_sizes(manifest.model, len(network))

        def build() -> CtrModel:
            # a model without embedding vectors (LR) uses only the sizes of its embedding
            embedding = stored.get("embedding") or next(iter(stored.values()))
            with torch.random.fork_rng(devices=[]):  # initialization must not change the caller's random state
                model = build_model(embedding, config, num_dense=schema.num_dense)
            for name, module in stored.items():
                model.set_submodule(name, module)
            return model

        try:
            with torch.device("meta"):  # shapes without memory: settings may ask for a model of any size
                model = build()
        except NotImplementedError:  # a user's model computes with values, which meta tensors do not have
            model = build()
        model.load_state_dict(network, assign=True)
        if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):  # buffers that are not stored
            model = build()
            model.load_state_dict(network, assign=True)
    return model.eval().requires_grad_(False)


def _check_sizes(model: Mapping[str, Any], num_tensors: int) -> None:
    """Raise if the settings ask for more layers than the bundle has tensors; each layer has at least one."""
    for key, value in model.items():
        if isinstance(value, Mapping):
            _check_sizes(value, num_tensors)
        num_layers = len(value) if isinstance(value, list) else value if key == "num_layers" else 0
        if isinstance(num_layers, int) and num_layers > num_tensors:
            raise ValueError(f"{key} asks for {num_layers:,} layers, but {num_tensors} tensors are stored")
