"""Which rows are known to be wholly pruned, and from which clock on: they need neither be read nor updated.

A row found all 0 at some clock stays so at every higher clock until its values or thresholds change; and they cannot
change, since a pruned row gets no gradient. For thresholds with a row per feature.
"""

import numpy as np
import torch
from torch import Tensor

from thresher.kernels.distinct import DistinctIds
from thresher.kernels.parallel import runs_on_kernels, serial_kernel


class PrunedRows:
    """A note per row of `weight` `[N, D]`: the lowest clock at which it was seen to be all 0 (∞: never seen so)."""

    def __init__(self, weight: Tensor, deviation: Tensor) -> None:
        self.weight, self.deviation = weight, deviation
        self.from_clock = torch.full((weight.shape[0],), torch.inf, device=weight.device)
        self._versions = self._current_versions()

    def leave_out(self, distinct: DistinctIds, clock: float) -> DistinctIds:
        """The batch without the ids whose rows are known to be pruned at this clock."""
        versions = self._current_versions()
        if versions != self._versions:  # somebody wrote into the table as a whole: a dense step, a loaded state
            self.from_clock.fill_(torch.inf)
            self._versions = versions
            return distinct
        if not runs_on_kernels(self.from_clock, distinct.ids):
            return distinct.without(self.from_clock[distinct.ids] <= clock)
        left_out = torch.empty(distinct.num_ids, dtype=torch.bool)
        _find_pruned(self.from_clock.numpy(), distinct.ids.numpy(), clock, left_out.numpy())
        return distinct.without(left_out)

    def note(self, ids: Tensor, is_pruned: Tensor, clock: float) -> None:
        """Rows `ids` `[U]` were looked up at this clock; those where `is_pruned` came out all 0.

        The others are about to be updated: what was known of them from a higher clock no longer holds.
        """
        if runs_on_kernels(self.from_clock, ids):
            _note(self.from_clock.numpy(), ids.numpy(), is_pruned.numpy(), clock)
        else:
            self.from_clock[ids] = torch.where(is_pruned, clock, torch.inf)

    def _current_versions(self) -> tuple[int, int]:
        return self.weight._version, self.deviation._version


@serial_kernel
def _find_pruned(from_clock, ids, clock, left_out):  # type: ignore[no-untyped-def]
    for u in range(ids.shape[0]):
        left_out[u] = from_clock[ids[u]] <= clock


@serial_kernel
def _note(from_clock, ids, is_pruned, clock):  # type: ignore[no-untyped-def]
    for u in range(ids.shape[0]):
        from_clock[ids[u]] = clock if is_pruned[u] else np.inf
