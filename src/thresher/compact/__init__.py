"""Trained embedding → CompactTable: only the kept values, and where they belong.

The table is read without torch; what needs torch is loaded at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thresher.compact.convert import to_compact
    from thresher.compact.embedding import CompactEmbedding
    from thresher.compact.layouts import compact_bytes
    from thresher.compact.stored import StoredEmbedding
    from thresher.compact.table import CompactTable

_HOMES = {
    "CompactEmbedding": "thresher.compact.embedding",
    "CompactTable": "thresher.compact.table",
    "StoredEmbedding": "thresher.compact.stored",
    "compact_bytes": "thresher.compact.layouts",
    "to_compact": "thresher.compact.convert",
}

__all__ = ["CompactEmbedding", "CompactTable", "StoredEmbedding", "compact_bytes", "to_compact"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'thresher.compact' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
