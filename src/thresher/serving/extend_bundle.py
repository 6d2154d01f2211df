"""Adding rows for new ids to a bundle, and making its model trainable again to refresh it."""

import copy
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from thresher.attach.extend import Growth, Start, extend_table
from thresher.compact.embedding import CompactEmbedding
from thresher.compact.stored import AnyTable, StoredEmbedding, make_trainable_
from thresher.compact.table import CompactTable
from thresher.data.encode.row_encoder import RowEncoder
from thresher.errors import FormatError
from thresher.models.base import CtrModel
from thresher.serving.bundle import Bundle, open_bundle, save_bundle


def extend_bundle(source: str | Path, folder: str | Path, encoder: RowEncoder, start: Start = "unknown") -> Path:
    """Write a copy of a bundle for larger vocabularies; predictions for known ids do not change (see `extend_table`).

    Args:
        encoder: the new schema and vocabularies; each vocabulary must begin with the old one.
        start: initial values of new rows. With `unknown`, predictions for new ids do not change either. Given rows are
            for the embedding; other tables use their unknown feature.
    """
    bundle = open_bundle(source)
    for old, new in zip(bundle.encoder.vocabularies, encoder.vocabularies, strict=False):
        if not new.values.head(len(old.values)).equals(old.values):
            raise FormatError(
                f"the vocabularies do not begin with those of the bundle ({source}). "
                "Encode the data with the bundle's vocabularies and append new values."
            )
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
    return save_bundle(folder, bundle.model, bundle.model_config, encoder, metadata=metadata, searched=bundle.searched)


def to_trainable(bundle: Bundle) -> CtrModel:
    """A trainable copy of a bundle's model, to refresh it: kept values and the network are trained.

    Pruned tables stay pruned. Tables that were not searched, such as first-order weights by default, become dense.
    """
    for name, table in bundle.tables.items():
        if not isinstance(table, CompactTable):
            raise FormatError(
                f"table {name!r} is stored in the form of its method ({table.form.kind}), which cannot be trained "
                f"({bundle.folder}). Train a new model."
            )
    model = copy.deepcopy(bundle.model, {id(table): table for table in bundle.tables.values()})  # they are memory maps
    make_trainable_(model)
    for name in bundle.tables.keys() - bundle.searched_tables.keys():
        embedding = model.get_submodule(name)
        assert isinstance(embedding, CompactEmbedding)
        N, D = embedding.num_features, embedding.embedding_dim
        model.set_submodule(name, nn.Embedding(N, D, _weight=embedding.values.detach().view(N, D)))
    return model.train()
