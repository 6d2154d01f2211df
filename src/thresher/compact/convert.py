"""to_compact: any embedding → CompactTable. Single dispatch: a method with its own stored form registers it here."""

from functools import singledispatch

import torch
from torch import nn

from thresher.compact.embedding import CompactEmbedding
from thresher.compact.stored import StoredEmbedding
from thresher.compact.table import CompactTable
from thresher.embeddings.pep import PepEmbedding
from thresher.embeddings.uniform import UniformEmbedding


@singledispatch
def to_compact(embedding: nn.Module) -> CompactTable:
    """The kept values of a trained embedding as a `CompactTable`.

    Other methods register theirs: `@to_compact.register` on a function of their class.
    """
    raise TypeError(
        f"{type(embedding).__qualname__} has no compact form; register one with @to_compact.register, "
        "or retrain a ticket first: that gives a CompactEmbedding"
    )


@to_compact.register
def _(embedding: CompactEmbedding) -> CompactTable:
    return embedding.to_table()


@to_compact.register
def _(embedding: StoredEmbedding) -> CompactTable:
    if not isinstance(embedding.table, CompactTable):
        raise TypeError(f"{embedding.table} is a method's own form and no compact table")
    return embedding.table


@to_compact.register
def _(embedding: PepEmbedding) -> CompactTable:
    weight = embedding.pruned_weight().detach()
    return CompactTable.from_mask(weight != 0, weight)


@to_compact.register(UniformEmbedding)
@to_compact.register(nn.Embedding)
def _(embedding: UniformEmbedding | nn.Embedding) -> CompactTable:
    weight = embedding.weight.detach()
    return CompactTable.from_mask(torch.ones_like(weight, dtype=torch.bool), weight)


def has_compact_form(module: nn.Module) -> bool:
    """Whether `to_compact` knows this kind of module."""
    return to_compact.dispatch(type(module)) is not to_compact.dispatch(nn.Module)
