"""ValueIndex: the texts of one field → local ids, in a few arrays that can be memory-mapped. No dictionary is built.

Integers in their only spelling (`42`, or hexadecimal hashes of one length such as `05db9164`) are sorted numbers; all
other texts are one blob of UTF-8, grouped by CRC-32. Works without polars and torch.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from thresher.data.vocabulary.field_lookup import MAX_DIGITS, FieldLookup

Array = npt.NDArray[Any]
DECIMAL = 0  # the base of decimal numbers; any other base is the width of hexadecimal numbers
FEW_TEXTS = 8  # fewer are found faster one by one
FEW_KEYS = 1000  # fewer are worth a dictionary where there is no numba
MIN_NUMBERS = 16  # fewer are stored as text
KEYS_PER_BUCKET = 4
_DECIMAL = re.compile(rf"0|-?[1-9][0-9]{{0,{MAX_DIGITS - 1}}}")
_HEX = re.compile(r"[0-9a-f]{2,16}")
NUMBER_TYPES = ("uint8", "uint16", "uint32", "uint64", "int64")
ID_TYPES = ("uint8", "uint16", "uint32")
ARRAYS = {
    "number_keys": NUMBER_TYPES,
    "number_ids": ID_TYPES,
    "text_keys": ("uint8",),
    "text_sizes": ("uint8", "uint32"),
    "text_ids": ID_TYPES,
    "bucket_starts": ("uint32",),
    "bucket_bytes": ("uint32",),
}


class ValueIndex:
    """Texts → local ids, 0 for a text that is not stored.

    >>> index = ValueIndex.build(["Köln", "", "Ulm"], [1, 2, 3])
    >>> index.find("Ulm"), index.find("Bonn"), index.find_all(["", "Köln"]).tolist()
    (3, 0, [2, 1])
    """

    def __init__(self, arrays: Mapping[str, Array], base: int) -> None:
        """From the arrays and the base of its numbers: 0 for decimal, else the width of hexadecimal numbers."""
        # the little-endian types of a file are native ones on nearly every machine, but memoryview wants their names
        self.arrays = {
            name: array.view(array.dtype.newbyteorder("=")) if array.dtype.isnative else array.astype(array.dtype.name)
            for name, array in arrays.items()
        }
        self.base = base
        self.shift = 32 - (len(arrays["bucket_starts"]) - 2).bit_length()
        self._number = re.compile(rf"[0-9a-f]{{{base}}}") if base else _DECIMAL
        # memoryviews of a mapped file: reading one number costs a tenth of numpy's time
        self._views = {name: array.data for name, array in self.arrays.items()}

    @classmethod
    def build(cls, texts: Sequence[str], ids: Sequence[int]) -> "ValueIndex":
        """From distinct texts and their local ids, at least 1."""
        base = _best_base(texts)
        pattern = None if base is None else re.compile(rf"[0-9a-f]{{{base}}}") if base else _DECIMAL
        numbers, others = [], []
        for text, local_id in zip(texts, ids, strict=True):
            if pattern is not None and pattern.fullmatch(text):
                numbers.append((int(text, 16 if base else 10), local_id))
            else:
                others.append((text.encode("utf-8", "surrogatepass"), local_id))
        id_type = next(kind for kind in ID_TYPES if max(ids, default=0) <= np.iinfo(kind).max)
        arrays = _number_arrays(sorted(numbers), id_type) | _text_arrays(others, id_type)
        return cls(arrays, base or DECIMAL)

    def __len__(self) -> int:
        return len(self.arrays["number_keys"]) + len(self.arrays["text_sizes"])

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def find(self, text: str) -> int:
        """The local id of one text."""
        views = self._views
        if len(keys := views["number_keys"]) and self._number.fullmatch(text):
            number = int(text, 16 if self.base else 10)
            place = bisect_left(keys, number)
            return views["number_ids"][place] if place < len(keys) and keys[place] == number else 0
        return self.find_bytes(text.encode("utf-8", "surrogatepass"))

    def find_bytes(self, key: bytes) -> int:
        """The local id of a text in UTF-8 that is no number."""
        views = self._views
        sizes = views["text_sizes"]
        bucket = crc32(key) >> self.shift
        first, starts, length = views["bucket_bytes"][bucket], views["bucket_starts"], len(key)
        for place in range(starts[bucket], starts[bucket + 1]):
            size = sizes[place]
            if size == length and views["text_keys"][first : first + size] == key:
                return views["text_ids"][place]
            first += size
        return 0

    def find_keys(self, keys: Sequence[bytes]) -> list[int]:
        """The local ids of many texts in UTF-8 that are no numbers."""
        return list(map(self.find_bytes, keys) if self._few is None else map(self._few.get, keys, repeat(0)))

    @cached_property
    def _few(self) -> dict[bytes, int] | None:
        """All texts by their bytes; None if they are too many for a dictionary."""
        if len(self.arrays["text_sizes"]) > FEW_KEYS:
            return None
        return {text.encode("utf-8", "surrogatepass"): local_id for text, local_id in self._text_items()}

    def find_all(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """The local ids of texts `[n]`."""
        if len(texts) <= FEW_TEXTS:
            return np.array([self.find(text) for text in texts], np.int32)
        return self._lookup.find(texts)[:, 0]

    @cached_property
    def _lookup(self) -> FieldLookup:
        return FieldLookup([self], [0])

    def items(self) -> Iterator[tuple[str, int]]:
        """All stored texts with their local ids."""
        for number, local_id in zip(
            self.arrays["number_keys"].tolist(), self.arrays["number_ids"].tolist(), strict=True
        ):
            yield f"{number:0{self.base}x}" if self.base else str(number), local_id
        yield from self._text_items()

    def _text_items(self) -> Iterator[tuple[str, int]]:
        ends = np.cumsum(self.arrays["text_sizes"], dtype=np.int64).tolist()
        blob, first = self.arrays["text_keys"].tobytes(), 0
        for last, local_id in zip(ends, self.arrays["text_ids"].tolist(), strict=True):
            yield blob[first:last].decode("utf-8", "surrogatepass"), local_id
            first = last

    @cached_property
    def largest_id(self) -> int:
        return max(int(self.arrays[name].max(initial=0)) for name in ("number_ids", "text_ids"))

    def __reduce__(self) -> tuple[Any, ...]:
        return ValueIndex, (self.arrays, self.base)

    def check(self) -> None:
        """Raise ValueError unless every lookup stays inside the arrays; for files that may be damaged or hostile."""
        arrays = self.arrays
        if set(arrays) != set(ARRAYS) or any(array.ndim != 1 for array in arrays.values()):
            raise ValueError(f"it must have the arrays {', '.join(ARRAYS)}")
        for name, types in ARRAYS.items():
            if str(arrays[name].dtype) not in types:
                raise ValueError(f"{name} has type {arrays[name].dtype}, expected {' or '.join(types)}")
        keys, sizes, starts = arrays["number_keys"], arrays["text_sizes"], arrays["bucket_starts"].astype(np.int64)
        num_buckets, ends = len(starts) - 1, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        if len(keys) != len(arrays["number_ids"]) or len(sizes) != len(arrays["text_ids"]):
            raise ValueError("there must be one id per key")
        if not (keys[1:] > keys[:-1]).all():
            raise ValueError("the numbers do not ascend")
        if num_buckets < 1 or num_buckets & (num_buckets - 1) or len(arrays["bucket_bytes"]) != len(starts):
            raise ValueError("the number of buckets must be a power of two")
        if starts[0] != 0 or starts[-1] != len(sizes) or (np.diff(starts) < 0).any():
            raise ValueError("bucket_starts do not span the keys")
        if ends[-1] != len(arrays["text_keys"]) or not np.array_equal(ends[starts], arrays["bucket_bytes"]):
            raise ValueError("bucket_bytes do not span the keys")
        if not 0 <= self.base <= 16:
            raise ValueError(f"the base is {self.base}")


def _best_base(texts: Sequence[str]) -> int | None:
    """The base that covers most texts; None if text is as good."""
    widths = Counter(len(text) for text in texts if _HEX.fullmatch(text))
    counts = dict(widths)
    counts[DECIMAL] = sum(_DECIMAL.fullmatch(text) is not None for text in texts)
    base = max(counts, key=lambda each: (counts[each], each == DECIMAL))
    return base if counts[base] >= MIN_NUMBERS else None


def _number_arrays(numbers: Sequence[tuple[int, int]], id_type: str) -> dict[str, Array]:
    keys, ids = [key for key, _ in numbers], [local_id for _, local_id in numbers]
    lowest, highest = min(keys, default=0), max(keys, default=0)
    kinds = (kind for kind in NUMBER_TYPES if np.iinfo(kind).min <= lowest and highest <= np.iinfo(kind).max)
    return {"number_keys": np.array(keys, next(kinds)), "number_ids": np.array(ids, id_type)}


def _text_arrays(items: Sequence[tuple[bytes, int]], id_type: str) -> dict[str, Array]:
    bits = max((len(items) // KEYS_PER_BUCKET).bit_length(), 1)
    hashed = sorted((crc32(key), key, local_id) for key, local_id in items)
    sizes = np.array([len(key) for _, key, _ in hashed], np.int64)
    buckets = np.array([crc >> (32 - bits) for crc, _, _ in hashed], np.int64)
    starts = np.searchsorted(buckets, np.arange((1 << bits) + 1))
    return {
        "text_keys": np.frombuffer(b"".join(key for _, key, _ in hashed), np.uint8),
        "text_sizes": sizes.astype(np.uint8 if sizes.max(initial=0) < 256 else np.uint32),
        "text_ids": np.array([local_id for _, _, local_id in hashed], id_type),
        "bucket_starts": starts.astype(np.uint32),
        "bucket_bytes": np.concatenate([[0], np.cumsum(sizes)])[starts].astype(np.uint32),
    }
