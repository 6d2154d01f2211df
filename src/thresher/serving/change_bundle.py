"""Changed copies of a bundle: with other values, with rows for new ids, or as a trainable model."""

import copy
import shutil
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from thresher._internal.storage.files import atomic_folder
from thresher.attach.extend import Growth, Start, extend_table
from thresher.compact.embedding import CompactEmbedding
from thresher.compact.layouts import ValueType
from thresher.compact.method_table import AnyTable, StoredEmbedding, make_trainable_
from thresher.compact.table import CompactTable
from thresher.data.encode.row_encoder import RowEncoder
from thresher.errors import ConfigError, FormatError
from thresher.models.base import CtrModel
from thresher.serving.bundle import Bundle, open_bundle, save_bundle
from thresher.serving.manifest import bundle_file_names, read_manifest


def copy_bundle(source: str | Path, folder: str | Path) -> Path:
    """Copy the files of a bundle that its manifest lists, after a check of their checksums."""
    source, folder = Path(source), Path(folder)
    with atomic_folder(folder) as temporary:
        for name in sorted(bundle_file_names(source)):
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            if (source / name).exists():  # bundles of version 1 have no manifest
                shutil.copyfile(source / name, temporary / name)
        read_manifest(temporary)
    return folder


def convert_bundle(source: str | Path, folder: str | Path, value_type: ValueType) -> Path:
    """Copy a bundle with its values rounded to another type.

    Metrics in the metadata were measured before rounding; they move under the key `before_rounding`.
    """
    bundle = open_bundle(source)
    check_can_round(bundle, value_type)
    metadata = dict(bundle.metadata)
    if value_type != "fp32":
        measured = [key for key in metadata if key == "storage_bytes" or key.startswith(("validation_", "test_"))]
        before = {key: metadata.pop(key) for key in measured}
        metadata |= {"value_type": value_type, "before_rounding": before}
    parts = bundle.model, bundle.model_config, bundle.encoder
    return save_bundle(folder, *parts, metadata=metadata, value_type=value_type, searched=bundle.searched)


def check_can_round(bundle: Bundle, value_type: ValueType) -> None:
    """Raise if the searched tables cannot be rounded to this type: only compact float32 tables can."""
    searched = bundle.searched_tables or bundle.tables
    is_float32 = all(isinstance(table, CompactTable) and table.value_type == "fp32" for table in searched.values())
    if value_type != "fp32" and not is_float32:
        raise ConfigError(
            f"{bundle.folder}: only compact tables of float32 values can be rounded. Leave the value type unchanged."
        )


def extend_bundle(source: str | Path, folder: str | Path, encoder: RowEncoder, start: Start = "unknown") -> Path:
    """Write a copy of a bundle for larger vocabularies; predictions for known ids do not change (see `extend_table`).

    Args:
        encoder: the new schema and vocabularies; each vocabulary must begin with the old one.
        start: initial values of new rows. With `unknown`, predictions for new ids do not change either. Given rows are
            for the embedding; other tables use their unknown feature.
    """
    bundle = open_bundle(source)
    for old, new in zip(bundle.encoder.vocabularies, encoder.vocabularies, strict=False):
        new_ids = dict(new.items())
        if new.size < old.size or any(new_ids.get(value) != at for value, at in old.items()):
            raise FormatError(f"the vocabularies do not begin with those of the bundle ({source}). Append new values.")
    growth = Growth(bundle.encoder.schema.field_sizes, encoder.schema.field_sizes)
    tables: dict[str, AnyTable] = {}
    for name, table in bundle.tables.items():
        if not isinstance(table, CompactTable):
            raise FormatError(f"rows cannot be added to table {name!r} ({source}): it is not stored row by row")
        is_embedding = bundle.model.get_submodule(name) is bundle.model.embedding
        table_start = "unknown" if isinstance(start, Tensor) and not is_embedding else start
        tables[name] = extend_table(table, growth, table_start)
        bundle.model.set_submodule(name, StoredEmbedding(growth.new_sizes, tables[name]))
    larger = replace(bundle, tables=tables)
    sizes = {"num_parameters": larger.num_parameters, "storage_bytes": larger.searched_bytes}
    metadata = {key: sizes.get(key, value) for key, value in bundle.metadata.items()}
    parts, keyed = (bundle.model, bundle.model_config, encoder), growth.new_rows().numpy()
    return save_bundle(folder, *parts, metadata=metadata, searched=bundle.searched, keyed=keyed)


def to_trainable(bundle: Bundle) -> CtrModel:
    """A trainable copy of a bundle's model, to refresh it: kept values and the network are trained.

    Pruned tables stay pruned. Tables that were not searched, such as first-order weights by default, become dense.
    """
    for name, table in bundle.tables.items():
        if not isinstance(table, CompactTable):
            raise FormatError(f"table {name!r} is stored in the form of its method. Train a new model.")
    model = copy.deepcopy(bundle.model, {id(table): table for table in bundle.tables.values()})  # they are memory maps
    make_trainable_(model)
    for name in bundle.tables.keys() - bundle.searched_tables.keys():
        embedding = model.get_submodule(name)
        assert isinstance(embedding, CompactEmbedding)
        N, D = embedding.num_features, embedding.embedding_dim
        model.set_submodule(name, nn.Embedding(N, D, _weight=embedding.to_dense().detach()))
    return model.train()
