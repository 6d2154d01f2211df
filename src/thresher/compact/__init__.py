"""Compact tables: the kept values of a pruned embedding and their positions.

`CompactTable` works without torch; names that need torch are loaded at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thresher.compact.embedding import CompactEmbedding
    from thresher.compact.layouts import compact_bytes
    from thresher.compact.stored import StoredEmbedding, to_compact
    from thresher.compact.table import CompactTable

_MODULES = {
    "CompactEmbedding": "thresher.compact.embedding",
    "CompactTable": "thresher.compact.table",
    "StoredEmbedding": "thresher.compact.stored",
    "compact_bytes": "thresher.compact.layouts",
    "to_compact": "thresher.compact.stored",
}

__all__ = ["CompactEmbedding", "CompactTable", "StoredEmbedding", "compact_bytes", "to_compact"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'thresher.compact' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
