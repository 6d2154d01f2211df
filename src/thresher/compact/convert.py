"""to_compact: any embedding → CompactTable. Single dispatch: a method with its own stored form registers it here."""

from functools import singledispatch

import torch
from torch import nn

from thresher.compact.embedding import CompactEmbedding
from thresher.compact.table import CompactTable


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
def _(embedding: nn.Embedding) -> CompactTable:
    weight = embedding.weight
    return CompactTable.from_mask(torch.ones_like(weight, dtype=torch.bool), weight)
