"""The distinct ids of a batch and their places, found once per step by a bitmap over the table: `O(batch + N/64)`."""

import threading
import weakref
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from thresher.errors import IdTypeError, OutsideTableError
from thresher.kernels.compiling import runs_on_kernels, serial_kernel
from thresher.kernels.primitives import popcount, trailing_zeros


@dataclass(frozen=True, eq=False)
class DistinctIds:
    """The ids of one batch, each once: `ids[places]` is the batch; place `U`: an id removed by `without`, vector 0."""

    ids: Tensor  # int64 [U], ascending
    places: Tensor  # int32 or int64 [...], the batch's shape
    num_features: int

    @property
    def num_ids(self) -> int:
        return self.ids.numel()

    def without(self, removed: Tensor) -> "DistinctIds":
        """The same batch without the ids where `removed` (bool `[U]`) is True."""
        if runs_on_kernels(self.ids, self.places):
            num_kept = self.num_ids - int(np.count_nonzero(removed.numpy()))
            if num_kept == self.num_ids:
                return self
            ids, places = self.ids.new_empty(num_kept), torch.empty_like(self.places)
            flat = self.places.view(-1).numpy(), places.view(-1).numpy()
            _renumber(removed.numpy(), self.ids.numpy(), ids.numpy(), *flat)
            return DistinctIds(ids, places, self.num_features)
        kept = ~removed
        num_kept = int(kept.sum())
        new_places = torch.where(removed, num_kept, kept.cumsum(0) - 1).to(self.places.dtype)  # [U]
        new_places = torch.cat((new_places, new_places.new_full((1,), num_kept)))
        return DistinctIds(self.ids[kept], new_places[self.places.long()], self.num_features)

    @cached_property
    def occurrences(self) -> tuple[Tensor, Tensor]:
        """Starts `[U + 1]` and positions `[batch]`, int32: id `u` is at `positions[starts[u]:starts[u + 1]]`."""
        places, num_ids = self.places, self.num_ids
        if not runs_on_kernels(places):
            order = torch.sort(places.flatten(), stable=True)
            bounds = torch.arange(num_ids + 1, device=places.device, dtype=order.values.dtype)
            starts = torch.searchsorted(order.values, bounds).int()
            return starts, order.indices[: int(starts[-1])].int()
        starts = torch.zeros(num_ids + 2, dtype=torch.int32)
        positions = torch.empty(places.numel(), dtype=torch.int32)
        _place_occurrences(places.flatten().numpy(), starts.numpy(), positions.numpy())
        return starts[:-1], positions[: starts[-2]]


def find_distinct(ids: Tensor, num_features: int) -> DistinctIds:
    """Distinct ids of a batch of any shape, cached for the next table; raises if not integers or outside the table."""
    check_ids(ids)
    if not runs_on_kernels(ids):
        return _find_by_torch(ids, num_features)
    if (cached := _last.get(ids, num_features)) is not None:
        return cached
    found = _find_by_kernel(ids, num_features)
    if not torch.is_inference_mode_enabled():  # tensors made in inference mode cannot be used in training
        _last.set(ids, found)
    return found


def check_ids(ids: Tensor) -> None:
    """Raise unless ids are integers, as `nn.Embedding` does."""
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise IdTypeError(f"ids have dtype {ids.dtype}: expected integers. Convert them with ids.long().")


class _LastBatch(threading.local):
    """Per thread, the last batch and its distinct ids; values are compared, since a tensor's buffer can be refilled."""

    def __init__(self) -> None:
        self.batch: weakref.ref[Tensor] | None = None
        self.values = torch.empty(0, dtype=torch.int64)
        self.found: DistinctIds | None = None

    def get(self, ids: Tensor, num_features: int) -> DistinctIds | None:
        if self.batch is None or self.batch() is not ids or self.found is None:
            return None
        same = self.found.num_features == num_features and torch.equal(self.values, ids)
        return self.found if same else None

    def set(self, ids: Tensor, found: DistinctIds) -> None:
        if self.values.shape != ids.shape or self.values.dtype != ids.dtype:
            self.values = torch.empty_like(ids)
        self.values.copy_(ids)
        self.batch, self.found = weakref.ref(ids), found


_last = _LastBatch()


def is_ascending(ids: Tensor) -> bool:
    """Whether ids `[U]` strictly ascend, and so are distinct."""
    numbers = ids.numpy() if runs_on_kernels(ids) else ids  # numpy does not wake torch's threads
    return bool((numbers[1:] > numbers[:-1]).all())


def mark_(flags: Tensor, ids: Tensor) -> None:
    """Set `flags` (bool `[N]`) at `ids` `[U]`."""
    if runs_on_kernels(ids) and flags.device.type == "cpu":
        flags.numpy()[ids.numpy()] = True
    else:
        flags[ids] = True


def _find_by_kernel(ids: Tensor, num_features: int) -> DistinctIds:
    size = min(ids.numel(), num_features)
    distinct = torch.empty(size, dtype=torch.int64)
    places = torch.empty(ids.shape, dtype=torch.int32)
    flat = ids.flatten().numpy()
    num_ids = _mark_and_rank(flat, num_features, distinct.numpy(), places.view(-1).numpy())
    if num_ids < 0:
        raise OutsideTableError.of(int(flat[-num_ids - 1]), num_features)
    return DistinctIds(distinct[:num_ids], places, num_features)


def _find_by_torch(ids: Tensor, num_features: int) -> DistinctIds:
    distinct, places = torch.unique(ids, return_inverse=True)
    if not torch.compiler.is_compiling() and distinct.numel():
        for id_ in (int(distinct[0]), int(distinct[-1])):
            if not 0 <= id_ < num_features:
                raise OutsideTableError.of(id_, num_features)
    return DistinctIds(distinct.long(), places, num_features)


@serial_kernel
def _mark_and_rank(ids, num_features, distinct, places):  # type: ignore[no-untyped-def]
    """Fill `distinct` and `places`; returns the number of distinct ids, or −1 − i if `ids[i]` is outside the table."""
    one = np.uint64(1)
    words = np.zeros((num_features + 63) >> 6, np.uint64)
    ranks = np.empty(words.shape[0], np.int32)  # distinct ids before the first of each word
    for i in range(ids.shape[0]):
        id_ = np.int64(ids[i])
        if id_ < 0 or id_ >= num_features:
            return -1 - i
        words[id_ >> 6] |= one << np.uint64(id_ & 63)
    num_ids = 0
    for word in range(words.shape[0]):
        bits = words[word]
        ranks[word] = num_ids
        while bits:
            distinct[num_ids] = (word << 6) + np.int64(trailing_zeros(bits))
            num_ids += 1
            bits &= bits - one
    for i in range(ids.shape[0]):
        id_ = np.int64(ids[i])
        below = (one << np.uint64(id_ & 63)) - one
        places[i] = ranks[id_ >> 6] + np.int32(popcount(words[id_ >> 6] & below))
    return num_ids


@serial_kernel
def _renumber(removed, ids, new_ids, places, new_places):  # type: ignore[no-untyped-def]
    renumbered = np.empty(ids.shape[0] + 1, np.int32)
    renumbered[:] = new_ids.shape[0]
    num_kept = 0
    for u in range(ids.shape[0]):
        if not removed[u]:
            new_ids[num_kept] = ids[u]
            renumbered[u] = num_kept
            num_kept += 1
    for i in range(places.shape[0]):
        new_places[i] = renumbered[places[i]]


@serial_kernel
def _place_occurrences(places, starts, positions):  # type: ignore[no-untyped-def]
    """Counting sort, stable; `starts` `[U + 2]` holds zeros on entry, and removed ids come last."""
    for i in range(places.shape[0]):
        starts[places[i] + 1] += 1
    for u in range(1, starts.shape[0]):
        starts[u] += starts[u - 1]
    for i in range(places.shape[0]):
        positions[starts[places[i]]] = i
        starts[places[i]] += 1
    for u in range(starts.shape[0] - 1, 0, -1):
        starts[u] = starts[u - 1]
    starts[0] = 0
