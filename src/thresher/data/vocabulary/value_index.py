"""ValueIndex: the texts of one field → local ids, in a few arrays that can be memory-mapped. No dictionary is built.

Integers in their only spelling (`42`, or hexadecimal hashes of one length such as `05db9164`) are sorted numbers; all
other texts are one blob of UTF-8, grouped by CRC-32. Works without polars and torch.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
MAX_DIGITS = 18  # of a decimal number, so that it fits int64
DECIMAL = 0  # the base of decimal numbers; any other base is the width of hexadecimal numbers
FEW_TEXTS = 32  # fewer are found faster one by one
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


class TextBlob:
    """Texts `[n]`; those of a slice share the bytes of all, and the numbers that were parsed from them."""

    def __init__(self, data: Array, starts: npt.NDArray[np.int64], parsed: dict[int, tuple[Array, Array]]) -> None:
        self.data, self.starts = data, starts  # uint8, and int64 [n + 1]
        self._parsed = parsed

    @classmethod
    def of(cls, texts: Sequence[str]) -> "TextBlob":
        """From texts. Raises TypeError if one of them is not a text."""
        joined = "".join(texts)
        if joined.isascii():
            return cls.of_bytes(joined.encode(), np.fromiter(map(len, texts), np.int64, len(texts)))
        keys = [text.encode("utf-8", "surrogatepass") for text in texts]
        return cls.of_bytes(b"".join(keys), np.fromiter(map(len, keys), np.int64, len(keys)))

    @classmethod
    def of_bytes(cls, blob: bytes, sizes: Array) -> "TextBlob":
        """From all texts in UTF-8 and the number of bytes of each."""
        starts = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=starts[1:])
        return cls(np.frombuffer(blob, np.uint8), starts, {})

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[str]:
        blob, bounds = self.data.tobytes(), self.starts.tolist()
        for first, last in pairwise(bounds):
            yield blob[first:last].decode("utf-8", "surrogatepass")

    def numbers(self, base: int) -> tuple[Array, Array]:
        """Each text as an integer of this base, int64, and whether it is one; see `parse_numbers`."""
        if base not in self._parsed:
            from thresher.kernels.value_lookup import parse_numbers

            self._parsed[base] = parse_numbers(self.data, self.starts, base, MAX_DIGITS)
        return self._parsed[base]

    def part(self, first: int, last: int, bases: Sequence[int]) -> "TextBlob":
        """The texts from `first` to `last`, with their numbers of these bases."""
        parsed = {}
        for base in bases:
            numbers, valid = self.numbers(base)
            parsed[base] = numbers[first:last], valid[first:last]
        return TextBlob(self.data, self.starts[first : last + 1], parsed)


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
        self._shift = 32 - (len(arrays["bucket_starts"]) - 2).bit_length()
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
        sizes = views["text_sizes"]
        key = text.encode("utf-8", "surrogatepass")
        bucket = crc32(key) >> self._shift
        first, starts, length = views["bucket_bytes"][bucket], views["bucket_starts"], len(key)
        for place in range(starts[bucket], starts[bucket + 1]):
            size = sizes[place]
            if size == length and views["text_keys"][first : first + size] == key:
                return views["text_ids"][place]
            first += size
        return 0

    def find_all(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """The local ids of some texts `[n]`."""
        if len(texts) <= FEW_TEXTS:
            return np.array([self.find(text) for text in texts], np.int32)
        return self.find_blob(TextBlob.of(texts))

    def find_blob(self, texts: TextBlob) -> npt.NDArray[np.int32]:
        """The local ids of many texts `[n]`."""
        if (kernel := _text_kernel()) is None:
            return np.array([self.find(text) for text in texts], np.int32)
        find_texts, crc_table = kernel
        found = np.zeros(len(texts), np.int32)
        arrays, all_numbers = self.arrays, False
        if len(keys := arrays["number_keys"]):
            parsed, valid = texts.numbers(self.base)
            wanted = _as_type_of(keys, parsed)
            places = keys.searchsorted(wanted)
            np.minimum(places, len(keys) - 1, out=places)
            hits = (keys[places] == wanted) & valid
            if wanted.itemsize < parsed.itemsize:  # a number that does not fit the type of the keys is none of them
                hits &= wanted == parsed
            np.copyto(found, arrays["number_ids"][places], where=hits, casting="unsafe")
            all_numbers = np.count_nonzero(valid) == len(valid)
        if len(sizes := arrays["text_sizes"]) and not all_numbers:  # numbers are not among the texts
            tables = arrays["bucket_starts"], arrays["bucket_bytes"], sizes, arrays["text_keys"]
            places = find_texts(texts.data, texts.starts, crc_table, self._shift, *tables)
            hits = places >= 0
            found[hits] = arrays["text_ids"][places[hits]]
        return found

    def find_part(self, texts: TextBlob, first: int, last: int) -> npt.NDArray[np.int32]:
        """The local ids of the texts from `first` to `last`."""
        bases = [self.base] if len(self.arrays["number_keys"]) and _text_kernel() is not None else []
        return self.find_blob(texts.part(first, last, bases))

    def items(self) -> Iterator[tuple[str, int]]:
        """All stored texts with their local ids."""
        for number, local_id in zip(
            self.arrays["number_keys"].tolist(), self.arrays["number_ids"].tolist(), strict=True
        ):
            yield f"{number:0{self.base}x}" if self.base else str(number), local_id
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


@cache  # a failed import is slow
def _text_kernel() -> tuple[Any, Array] | None:
    """`find_texts` and its table; None if numba is not installed."""
    try:
        from thresher.kernels.value_lookup import CRC_TABLE, find_texts
    except ImportError:
        return None
    return find_texts, CRC_TABLE


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


def _as_type_of(keys: Array, numbers: npt.NDArray[np.int64]) -> Array:
    """Parsed numbers in the type of the keys; 64 hexadecimal bits were parsed into int64."""
    return numbers.view(np.uint64) if keys.dtype == np.uint64 else numbers.astype(keys.dtype)
