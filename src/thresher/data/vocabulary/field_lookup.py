"""FieldLookup: the texts of many fields → ids in one pass, by the numba kernel, or by numpy without numba."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from thresher.data.vocabulary.value_index import ValueIndex

Array = npt.NDArray[Any]
DIGITS = np.full(256, 255, np.uint8)  # the value of each hexadecimal digit
DIGITS[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
MAX_DIGITS = 18  # of a decimal number, so that it fits int64
PADDING = 24  # bytes after the last text, so that a number can be read at its place
FEW_TEXTS = 200  # without numba, fewer are found faster one by one


@dataclass(frozen=True, eq=False)
class TextBlob:
    """Texts `[n]`: text i is `data[starts[i] : starts[i + 1] - 1]`, and one byte separates it from the next."""

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]  # [n + 1]

    @classmethod
    def of(cls, texts: Sequence[str]) -> "TextBlob":
        """From texts. Raises TypeError if one of them is not a text."""
        blob = "\0".join(texts).encode("utf-8", "surrogatepass")
        data, starts = np.frombuffer(blob, np.uint8), np.zeros(len(texts) + 1, np.int64)
        ends = np.flatnonzero(data == 0)
        if len(ends) == len(texts) - 1:
            starts[1:-1], starts[-1] = ends + 1, len(data) + 1
        else:  # a text contains the separator, or there is no text
            sizes = [len(text.encode("utf-8", "surrogatepass")) + 1 for text in texts]
            np.cumsum(sizes, out=starts[1:])
        return cls(data, starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Number of bytes of each text."""
        return np.diff(self.starts) - 1

    def chunks(self) -> list[bytes]:
        """The bytes of each text."""
        blob = self.data.tobytes()
        found = blob.split(b"\0")
        if len(found) == len(self):
            return found
        return [blob[first : last - 1] for first, last in pairwise(self.starts.tolist())]


class FieldLookup:
    """Looks up the texts of rows in the indexes of their fields; adds the offset of each field."""

    def __init__(self, indexes: Sequence["ValueIndex"], offsets: Sequence[int] | npt.NDArray[np.int32]) -> None:
        self.indexes = tuple(indexes)  # the kernel has the addresses of their arrays
        self._offsets = np.array(offsets, np.int32)

    def __reduce__(self) -> tuple[Any, ...]:
        return FieldLookup, (self.indexes, self._offsets)  # addresses are those of this process and these arrays

    def find(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """Ids `[n, F]` of texts, row by row. Raises TypeError if one of them is not a text."""
        if not self.indexes or not len(texts):
            return np.zeros((0, len(self.indexes)), np.int32)
        return self._find(texts)

    @cached_property
    def _find(self) -> Callable[[Sequence[str]], npt.NDArray[np.int32]]:
        kernel = _kernel()
        if kernel is None:
            return self._find_without_numba
        find_values, crc_table, describe = kernel
        tables = np.array([describe(index) for index in self.indexes], np.int64)
        tables[:, -1] = self._offsets
        return partial(_find_by_kernel, find_values, tables, crc_table)

    def _find_without_numba(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        if len(texts) > FEW_TEXTS:
            return find_by_numpy(self.indexes, TextBlob.of(texts)) + self._offsets
        "".join(texts)  # raises TypeError
        finds = [index.find for index in self.indexes] * (len(texts) // len(self.indexes))
        found = [find(text) for find, text in zip(finds, texts, strict=True)]
        return np.array(found, np.int32).reshape(-1, len(self.indexes)) + self._offsets


def _find_by_kernel(find_values: Any, tables: Any, crc_table: Any, texts: Sequence[str]) -> npt.NDArray[np.int32]:
    blob = TextBlob.of(texts)
    found = np.empty((len(texts) // len(tables), len(tables)), np.int32)
    find_values(blob.data, blob.starts, tables, crc_table, MAX_DIGITS, found)
    return found


@cache  # a failed import is slow
def _kernel() -> tuple[Any, Any, Callable[["ValueIndex"], list[int]]] | None:
    """The kernel, its table of CRC-32, and what it needs of an index; None if numba is not installed."""
    try:
        from thresher.kernels.value_lookup import CRC_TABLE, KINDS, find_values
    except ImportError:
        return None

    def describe(index: "ValueIndex") -> list[int]:
        arrays = index.arrays
        address = {name: array.__array_interface__["data"][0] for name, array in arrays.items()}
        kind = {name: KINDS.index(str(array.dtype)) for name, array in arrays.items()}
        numbers = [*(address["number_keys"], kind["number_keys"]), *(address["number_ids"], kind["number_ids"])]
        buckets = [len(arrays["text_sizes"]), index.shift, address["bucket_starts"], address["bucket_bytes"]]
        texts = [address["text_sizes"], kind["text_sizes"], address["text_keys"], address["text_ids"], kind["text_ids"]]
        return [index.base, len(arrays["number_keys"]), *numbers, *buckets, *texts, 0]

    return find_values, CRC_TABLE, describe


def find_by_numpy(indexes: Sequence["ValueIndex"], texts: TextBlob) -> npt.NDArray[np.int32]:
    """Local ids `[n, F]`: text `n · F + f` is looked up in index f."""
    num_fields = len(indexes)
    found = np.zeros((num_fields, len(texts) // num_fields), np.int32)
    missing = np.ones(found.shape, np.bool_)  # texts that are not numbers in an index with texts
    grids = [array.reshape(-1, num_fields).T for array in (texts.starts[:-1], texts.sizes)]
    data = np.concatenate([texts.data, np.zeros(PADDING, np.uint8)])
    for base in {index.base for index in indexes if len(index.arrays["number_keys"])}:
        of_base = [index.base == base and len(index.arrays["number_keys"]) > 0 for index in indexes]
        starts, sizes = (np.ascontiguousarray(grid[of_base]) for grid in grids)
        numbers, valid = parse_numbers(data, starts.reshape(-1), sizes.reshape(-1), base)
        numbers, valid = numbers.reshape(starts.shape), valid.reshape(starts.shape)
        missing[of_base] = ~valid
        places = np.flatnonzero(of_base).tolist()
        for kind in {indexes[at].arrays["number_keys"].dtype for at in places}:
            same = [indexes[at].arrays["number_keys"].dtype == kind for at in places]
            chosen = [at for at, each in zip(places, same, strict=True) if each]
            found[chosen] = _find_numbers([indexes[at] for at in chosen], numbers[same], valid[same])
    chunks = texts.chunks() if any(len(index.arrays["text_sizes"]) for index in indexes) else []
    for at, index in enumerate(indexes):
        if len(index.arrays["text_sizes"]) and len(rows := np.flatnonzero(missing[at])):
            own = chunks[at::num_fields]
            found[at, rows] = index.find_keys(own if len(rows) == len(own) else [own[row] for row in rows.tolist()])
    return found.T


def _find_numbers(indexes: Sequence["ValueIndex"], numbers: Array, valid: Array) -> Array:
    """The ids of numbers `[f, n]` in indexes whose keys have one type."""
    kind = indexes[0].arrays["number_keys"].dtype
    # 64 hexadecimal bits were parsed into int64
    wanted = numbers.view(np.uint64) if kind == np.uint64 else numbers.astype(kind)
    if wanted.itemsize < numbers.itemsize:  # a number that does not fit the type of the keys is none of them
        valid = valid & (wanted == numbers)
    keys, ids = np.empty_like(wanted), np.empty(wanted.shape, np.uint32)
    for at, index in enumerate(indexes):
        known = index.arrays["number_keys"]
        places = known.searchsorted(wanted[at])
        known.take(places, out=keys[at], mode="clip")
        ids[at] = index.arrays["number_ids"].take(places, mode="clip")
    return np.where(valid & (keys == wanted), ids, 0)


def parse_numbers(data: Array, starts: Array, sizes: Array, base: int) -> tuple[Array, Array]:
    """Texts `[k]` as integers, int64, and whether each is one in its only spelling; `data` has `PADDING`.

    With `base` 0, decimal numbers; otherwise `base` lower-case hexadecimal digits, whose bits are the result.
    """
    words = np.ndarray((len(data) - 7,), np.uint64, data, strides=(1,))  # 8 bytes at every place
    if base:
        valid = sizes == base
        digits = np.zeros((len(starts), 16), np.uint8)
        raw = np.stack([words[starts], words[starts + 8]], 1) if base > 8 else words[starts][:, None]
        digits[:, 16 - base :] = DIGITS[raw.view(np.uint8)[:, :base]]
        valid &= (digits < 16).all(1)
        packed = np.ascontiguousarray((digits[:, ::2] << 4) | digits[:, 1::2])
        return packed.view(">u8")[:, 0].astype(np.uint64).view(np.int64), valid
    negative = (data[starts] == ord("-")) & (sizes > 0)
    first, digits = starts + negative, sizes - negative
    valid = (digits >= 1) & (digits <= MAX_DIGITS) & ((data[first] != ord("0")) | ((digits == 1) & ~negative))
    numbers = np.zeros(len(starts), np.int64)
    for place in range(min(int(digits.max(initial=0)), MAX_DIGITS)):
        inside = digits > place
        digit = data.take(first + place, mode="clip") - np.uint8(ord("0"))
        valid &= ~inside | (digit < 10)
        numbers = np.where(inside, numbers * 10 + digit, numbers)
    return np.where(negative, -numbers, numbers), valid
