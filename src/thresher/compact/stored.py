"""StoredEmbedding: a stored table in the place of an embedding, to predict with and nothing else.

It has no parameters: what it holds is the memory-mapped table itself. To train on, use `CompactEmbedding.from_table`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor, nn

from thresher.compact.embedding import CompactEmbedding
from thresher.compact.table import CompactTable
from thresher.embeddings.base import FieldEmbedding

if TYPE_CHECKING:
    from thresher.compact.method_table import MethodTable


class StoredEmbedding(FieldEmbedding):
    """Looks up ids `[...]` straight in a stored table → vectors `[..., D]`, without gradients."""

    def __init__(self, field_sizes: Sequence[int], table: "CompactTable | MethodTable") -> None:
        if table.num_features != sum(field_sizes):
            raise ValueError(f"the table has {table.num_features} rows, field_sizes sum to {sum(field_sizes)}")
        super().__init__(field_sizes, table.embedding_dim)
        self.table = table

    def forward(self, ids: Tensor) -> Tensor:
        return self.table.lookup(ids)

    def num_parameters(self) -> int:
        return self.table.num_parameters

    def storage_bytes(self) -> int:
        return self.table.storage_bytes

    def extra_repr(self) -> str:
        return repr(self.table)


def make_trainable_(model: nn.Module) -> Sequence[str]:
    """Give a model that was opened from a bundle its parameters back, to train it further.

    Every compact table becomes a `CompactEmbedding`. Returns the names of the tables it replaced.
    """
    stored = {name: module for name, module in model.named_modules() if isinstance(module, StoredEmbedding)}
    names = [name for name, module in stored.items() if isinstance(module.table, CompactTable)]
    for name in names:
        table = stored[name].table
        assert isinstance(table, CompactTable)
        model.set_submodule(name, CompactEmbedding.from_table(stored[name].field_sizes, table))
    model.requires_grad_(True)
    return names
