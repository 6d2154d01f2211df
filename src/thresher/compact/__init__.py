"""Trained embedding → CompactTable: only the kept values, and where they belong."""

from thresher.compact.convert import to_compact
from thresher.compact.embedding import CompactEmbedding
from thresher.compact.layouts import compact_bytes
from thresher.compact.stored import StoredEmbedding
from thresher.compact.table import CompactTable

__all__ = ["CompactEmbedding", "CompactTable", "StoredEmbedding", "compact_bytes", "to_compact"]
