"""Follows the optimizers that update attached tables by rows: a search does not know the optimizer of its loop."""

import weakref
from collections.abc import Iterable
from functools import cache
from typing import Any, Protocol, cast

from torch import nn
from torch.optim import Optimizer, SparseAdam
from torch.optim.optimizer import register_optimizer_step_post_hook

from thresher.embeddings.pep import PepEmbedding


class _CatchesUp(Protocol):
    def catch_up(self) -> None: ...


_watches: "weakref.WeakSet[OptimizerWatch]" = weakref.WeakSet()


@cache
def _install_hook() -> None:
    """One hook for all watches, never removed: PyTorch may iterate over its hooks when a watch is garbage collected."""

    def see(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for watch in _watches:
            watch._see(optimizer)

    register_optimizer_step_post_hook(see)


class OptimizerWatch:
    """Sees each step of every optimizer, for tables whose score histograms follow row updates."""

    def __init__(self, holders: Iterable[PepEmbedding]) -> None:
        self._holders: dict[nn.Parameter, list[PepEmbedding]] = {}
        for holder in holders:
            for parameter in (holder.raw_weight, holder.thresholds):
                self._holders.setdefault(parameter, []).append(holder)
        self._deferring: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        _watches.add(self)
        _install_hook()

    def catch_up(self) -> None:
        """Apply what optimizers such as `RowAdam` deferred for rows of the tables that were not in a batch."""
        for optimizer in self._deferring:
            cast(_CatchesUp, optimizer).catch_up()

    def _see(self, optimizer: Optimizer) -> None:
        updated = {
            holder: None
            for group in optimizer.param_groups
            for parameter in group["params"]
            for holder in self._holders.get(parameter, ())
        }
        if updated and callable(getattr(optimizer, "catch_up", None)):
            self._deferring.add(optimizer)
        if type(optimizer) is SparseAdam:  # writes only the rows of a gradient, but marks the whole tensor as written
            for holder in updated:
                holder.accept_row_update()
