"""ValueCoder: values → codes 0, 1, … in order of first appearance, over any number of calls, in little memory.

Values are told apart by a 64-bit hash and are not held: twelve bytes a slot, whatever their length. Among ten million
distinct values of a field the chance that any two fall together is 3 in a million.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.kernels.compiling import kernel

_MAX_LOAD = 0.7


class ValueCoder:
    """A growing map from the hash of a value to its code."""

    def __init__(self) -> None:
        self._keys = np.zeros(1024, np.uint64)  # 0: the slot is free
        self._codes = np.zeros(1024, np.int32)
        self.size = 0

    def encode(self, values: pl.Series) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Codes of the values, and the rows where the new codes first appear, in the order of the codes."""
        hashes = values.hash(seed=0).to_numpy()
        codes = np.empty(len(hashes), np.int32)
        first_rows = np.empty(min(len(hashes), 1 << 16), np.int64)
        pieces: list[NDArray[np.int64]] = []
        done = 0
        while True:
            room = int(len(self._keys) * _MAX_LOAD) - self.size
            limit = self.size + min(room, len(first_rows))
            done, size = _insert(self._keys, self._codes, self.size, limit, hashes, codes, first_rows, done)
            if size > self.size:
                pieces.append(first_rows[: size - self.size].copy())
            self.size = size
            if done == len(hashes):
                break
            if self.size >= int(len(self._keys) * _MAX_LOAD):
                self._grow()
        return codes, np.concatenate(pieces) if pieces else np.empty(0, np.int64)

    def forget(self) -> None:
        """Drop the map; only the size is left."""
        self._keys, self._codes = np.zeros(0, np.uint64), np.zeros(0, np.int32)

    def _grow(self) -> None:
        keys = np.zeros(2 * len(self._keys), np.uint64)
        codes = np.zeros(2 * len(self._keys), np.int32)
        _move(self._keys, self._codes, keys, codes)
        self._keys, self._codes = keys, codes


@kernel
def _insert(keys, codes, size, limit, hashes, out, first_rows, start):  # type: ignore[no-untyped-def]
    """Code rows from `start` on until a new value would be number `limit`; where it stopped, and the new size."""
    mask = np.uint64(len(keys) - 1)
    before = size
    for row in range(start, len(hashes)):
        key = hashes[row]
        if key == 0:
            key = np.uint64(1)
        slot = key & mask
        while keys[slot] != key and keys[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        if keys[slot] == 0:
            if size == limit:
                return row, size
            keys[slot] = key
            codes[slot] = size
            first_rows[size - before] = row
            size += 1
        out[row] = codes[slot]
    return len(hashes), size


@kernel
def _move(old_keys, old_codes, keys, codes):  # type: ignore[no-untyped-def]
    mask = np.uint64(len(keys) - 1)
    for at in range(len(old_keys)):
        key = old_keys[at]
        if key != 0:
            slot = key & mask
            while keys[slot] != 0:
                slot = (slot + np.uint64(1)) & mask
            keys[slot] = key
            codes[slot] = old_codes[at]


@kernel
def add_counts(counts, codes, chosen):  # type: ignore[no-untyped-def]
    """counts[code] += 1 for each chosen row."""
    for row in range(len(codes)):
        if chosen[row]:
            counts[codes[row]] += 1


@kernel
def replace_codes(codes, tables, starts):  # type: ignore[no-untyped-def]
    """codes[row, f] = tables[starts[f] + codes[row, f]]."""
    for row in range(codes.shape[0]):
        for field in range(codes.shape[1]):
            codes[row, field] = tables[starts[field] + codes[row, field]]
