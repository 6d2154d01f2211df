"""The plug-in: PEP on the embedding tables of any PyTorch model."""

from thresher.attach.attach import AttachedTable, attach_, threshold_group
from thresher.attach.compact import CompactedTable, compact_
from thresher.attach.detach import detach_

__all__ = ["AttachedTable", "CompactedTable", "attach_", "compact_", "detach_", "threshold_group"]
