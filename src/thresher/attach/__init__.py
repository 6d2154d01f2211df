"""PEP on the embedding tables of any PyTorch model."""

from thresher.attach.attach import AttachedTable, attach_, detach_, threshold_group
from thresher.attach.compact_tables import CompactedTable, compact_

__all__ = ["AttachedTable", "CompactedTable", "attach_", "compact_", "detach_", "threshold_group"]
