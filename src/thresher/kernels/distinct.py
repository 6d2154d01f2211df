"""The distinct ids of a batch and where each occurs: found once per step, used by every lookup and every gradient.

A bitmap over the table replaces sorting: `O(batch + N/64)`. Not here: what is looked up with them.
"""

import threading
import weakref
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from thresher.errors import IdTypeError, OutsideTableError
from thresher.kernels.bit_vectors import popcount, trailing_zeros
from thresher.kernels.parallel import runs_on_kernels, serial_kernel


@dataclass(frozen=True, eq=False)
class DistinctIds:
    """The ids of one batch, each once.

    Attributes:
        ids: int64 `[U]`, ascending.
        places: int32 or int64 of the batch's shape `[...]`; `ids[places]` is the batch. A place of `U` stands for an id
            that was left out (`without`): its vector is 0 and no gradient reaches it.
        num_features: rows of the table the ids point into (`N`).
    """

    ids: Tensor
    places: Tensor
    num_features: int

    @property
    def num_ids(self) -> int:
        return self.ids.numel()

    def without(self, left_out: Tensor) -> "DistinctIds":
        """The same batch with the ids where `left_out` (bool `[U]`) is True taken from the list."""
        if runs_on_kernels(self.ids, self.places):
            num_kept = _count_false(left_out.numpy())
            if num_kept == self.num_ids:
                return self
            ids, places = self.ids.new_empty(num_kept), torch.empty_like(self.places)
            flat = places.view(-1).numpy(), self.places.view(-1).numpy()
            _renumber(left_out.numpy(), self.ids.numpy(), ids.numpy(), flat[1], flat[0])
            return DistinctIds(ids, places, self.num_features)
        kept = ~left_out
        num_kept = int(kept.sum())
        new_places = torch.where(left_out, num_kept, kept.cumsum(0) - 1).to(self.places.dtype)  # [U]
        new_places = torch.cat((new_places, new_places.new_full((1,), num_kept)))
        return DistinctIds(self.ids[kept], new_places[self.places.long()], self.num_features)

    @cached_property
    def occurrences(self) -> tuple[Tensor, Tensor]:
        """Starts `[U + 1]` and positions `[batch]`, int32: id `u` stands at `positions[starts[u]:starts[u + 1]]`."""
        return find_occurrences(self.places, self.num_ids)


def find_distinct(ids: Tensor, num_features: int) -> DistinctIds:
    """Distinct ids of a batch of any shape, int32 or int64.

    The last answer is kept: a second table looked up with the same ids finds nothing anew.
    """
    check_ids(ids)
    if not runs_on_kernels(ids):
        return _find_by_torch(ids, num_features)
    if (known := _last.answer_for(ids, num_features)) is not None:
        return known
    found = _find_by_kernel(ids, num_features)
    if not torch.is_inference_mode_enabled():  # what is made in there can be used in no training
        _last.keep(ids, found)
    return found


def check_ids(ids: Tensor) -> None:
    """Raise unless ids are whole numbers, as `nn.Embedding` does."""
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise IdTypeError(f"ids are {ids.dtype}; a table is looked up by whole numbers: ids.long()")


class _LastAnswer(threading.local):
    """The last batch of a thread, and its distinct ids.

    The batch is compared by its values, too: a tensor over somebody's buffer can be filled anew without a trace.
    """

    def __init__(self) -> None:
        self.batch: weakref.ref[Tensor] | None = None
        self.values = torch.empty(0, dtype=torch.int64)
        self.found: DistinctIds | None = None

    def answer_for(self, ids: Tensor, num_features: int) -> DistinctIds | None:
        if self.batch is None or self.batch() is not ids or self.found is None:
            return None
        same = self.found.num_features == num_features and torch.equal(self.values, ids)
        return self.found if same else None

    def keep(self, ids: Tensor, found: DistinctIds) -> None:
        if self.values.shape != ids.shape or self.values.dtype != ids.dtype:
            self.values = torch.empty_like(ids)
        self.values.copy_(ids)
        self.batch, self.found = weakref.ref(ids), found


_last = _LastAnswer()


def find_occurrences(places: Tensor, num_ids: int) -> tuple[Tensor, Tensor]:
    """Where each of `num_ids` distinct ids stands in a batch; see `DistinctIds.occurrences`."""
    if not runs_on_kernels(places):
        order = torch.sort(places.flatten(), stable=True)
        bounds = torch.arange(num_ids + 1, device=places.device, dtype=order.values.dtype)
        starts = torch.searchsorted(order.values, bounds).int()
        return starts, order.indices[: int(starts[-1])].int()
    starts = torch.zeros(num_ids + 2, dtype=torch.int32)
    positions = torch.empty(places.numel(), dtype=torch.int32)
    _place_occurrences(places.flatten().numpy(), starts.numpy(), positions.numpy())
    return starts[:-1], positions[: starts[-2]]


def is_ascending(ids: Tensor) -> bool:
    """Whether each of the ids `[U]` is above the one before it, and so all are distinct."""
    return bool(_is_ascending(ids.numpy()) if runs_on_kernels(ids) else (ids[1:] > ids[:-1]).all())


def mark_(flags: Tensor, ids: Tensor) -> None:
    """Set `flags` (bool `[N]`) at `ids` `[U]`."""
    if runs_on_kernels(ids) and flags.device.type == "cpu":
        _mark(flags.numpy(), ids.numpy())
    else:
        flags[ids] = True


def _find_by_kernel(ids: Tensor, num_features: int) -> DistinctIds:
    size = min(ids.numel(), num_features)
    distinct = torch.empty(size, dtype=torch.int64)
    places = torch.empty(ids.shape, dtype=torch.int32)
    flat = ids.flatten().numpy()
    num_ids = _mark_and_rank(flat, num_features, distinct.numpy(), places.view(-1).numpy())
    if num_ids < 0:
        raise _outside(int(flat[-num_ids - 1]), num_features)
    return DistinctIds(distinct[:num_ids], places, num_features)


def _find_by_torch(ids: Tensor, num_features: int) -> DistinctIds:
    distinct, places = torch.unique(ids, return_inverse=True)
    if not torch.compiler.is_compiling() and distinct.numel():
        for id_ in (int(distinct[0]), int(distinct[-1])):
            if not 0 <= id_ < num_features:
                raise _outside(id_, num_features)
    return DistinctIds(distinct.long(), places, num_features)


def _outside(id_: int, num_features: int) -> OutsideTableError:
    return OutsideTableError(
        f"id {id_} is outside a table of {num_features} rows; new ids need rows first, and in a model made from a "
        "schema ids are global (field offset + local id), as its encoder gives them"
    )


@serial_kernel
def _mark_and_rank(ids, num_features, distinct, places):  # type: ignore[no-untyped-def]
    """Fill `distinct` and `places`; returns how many are distinct, or −1 − i when `ids[i]` is outside the table."""
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
def _is_ascending(ids):  # type: ignore[no-untyped-def]
    num_steps_back = 0
    for u in range(1, ids.shape[0]):
        num_steps_back += ids[u] <= ids[u - 1]
    return num_steps_back == 0


@serial_kernel
def _mark(flags, ids):  # type: ignore[no-untyped-def]
    for u in range(ids.shape[0]):
        flags[ids[u]] = True


@serial_kernel
def _count_false(flags):  # type: ignore[no-untyped-def]
    num_false = 0
    for u in range(flags.shape[0]):
        num_false += not flags[u]
    return num_false


@serial_kernel
def _renumber(left_out, ids, new_ids, places, new_places):  # type: ignore[no-untyped-def]
    renumbered = np.empty(ids.shape[0] + 1, np.int32)
    renumbered[:] = new_ids.shape[0]
    num_kept = 0
    for u in range(ids.shape[0]):
        if not left_out[u]:
            new_ids[num_kept] = ids[u]
            renumbered[u] = num_kept
            num_kept += 1
    for i in range(places.shape[0]):
        new_places[i] = renumbered[places[i]]


@serial_kernel
def _place_occurrences(places, starts, positions):  # type: ignore[no-untyped-def]
    """Counting sort, stable; `starts` `[U + 2]` holds zeros on entry, and the places left out come last."""
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
