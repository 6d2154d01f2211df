"""TextBlob: many texts as one array of UTF-8 and the start of each, as the kernels of `ValueIndex` read them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
MAX_DIGITS = 18  # of a decimal number, so that it fits int64


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
