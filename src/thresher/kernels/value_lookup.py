"""Kernels that find texts among the keys of a `ValueIndex`: CRC-32 hashes and numbers of many texts, and their places.

Texts are one blob of UTF-8 with the start of each. The plain-Python equivalent is `ValueIndex.find`. Works without
torch.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.compiling import kernel


def _crc_table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


CRC_TABLE = _crc_table()


@kernel
def find_texts(
    blob: Any, starts: Any, crc_table: Any, shift: Any, bucket_starts: Any, bucket_bytes: Any, sizes: Any, keys: Any
) -> Any:
    """The place of each text among the keys, −1 if it is none of them."""
    places = np.full(len(starts) - 1, -1, np.int64)
    for at in range(len(places)):
        first, length = starts[at], starts[at + 1] - starts[at]
        crc = np.uint32(0xFFFFFFFF)
        for offset in range(length):
            crc = crc_table[(crc ^ blob[first + offset]) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        bucket = np.int64(np.uint64(crc ^ np.uint32(0xFFFFFFFF)) >> np.uint64(shift))
        key = np.int64(bucket_bytes[bucket])
        for place in range(bucket_starts[bucket], bucket_starts[bucket + 1]):
            size = np.int64(sizes[place])
            if size == length:
                same = True
                for offset in range(length):
                    if blob[first + offset] != keys[key + offset]:
                        same = False
                        break
                if same:
                    places[at] = place
                    break
            key += size
    return places


@kernel
def parse_numbers(blob: Any, starts: Any, base: Any, max_digits: Any) -> Any:
    """Each text as an integer in its only spelling, and whether it is one.

    With `base` 0, decimal numbers of at most `max_digits`; otherwise `base` lower-case hexadecimal digits, whose bits
    are the result.
    """
    count = len(starts) - 1
    numbers, valid = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    for at in range(count):
        first, last = starts[at], starts[at + 1]
        negative = base == 0 and last > first and blob[first] == 45
        if negative:
            first += 1
        digits = last - first
        if base == 0:
            good = 1 <= digits <= max_digits and (blob[first] != 48 or (digits == 1 and not negative))
        else:
            good = digits == base
        number = np.int64(0)
        if good:
            for place in range(first, last):
                code = np.int64(blob[place])
                if 48 <= code <= 57:
                    digit = code - 48
                elif base != 0 and 97 <= code <= 102:
                    digit = code - 87
                else:
                    good = False
                    break
                number = number * 10 + digit if base == 0 else (number << 4) | digit
        numbers[at], valid[at] = (-number if negative else number), good
    return numbers, valid
