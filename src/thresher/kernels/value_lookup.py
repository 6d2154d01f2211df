"""The kernel that finds texts among the keys of many `ValueIndex`es in one call. Works without torch.

The arrays of the indexes have various types and are memory-mapped, so the kernel gets their addresses. Its plain-Python
equivalent is `ValueIndex.find`, the numpy one `find_by_numpy` in `data.vocabulary.field_lookup`.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

from thresher.kernels.compiling import kernel

# columns of the table of addresses; a kind is the place of a type in KINDS
BASE, NUM_NUMBERS, NUMBER_KEYS, KEY_KIND, NUMBER_IDS, NUMBER_ID_KIND, NUM_TEXTS, SHIFT = range(8)
BUCKET_STARTS, BUCKET_BYTES, TEXT_SIZES, SIZE_KIND, TEXT_KEYS, TEXT_IDS, TEXT_ID_KIND, OFFSET = range(8, 16)
KINDS = ("uint8", "uint16", "uint32", "int64", "uint64")


def _crc_table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


CRC_TABLE = _crc_table()

DIGITS = np.full(256, 16, np.uint8)  # the value of each hexadecimal digit, 16 of other bytes
DIGITS[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


def _read(kind: Any) -> Any:
    """An intrinsic that reads one number of this type at an address."""

    def typed(typing_context, address):  # type: ignore[no-untyped-def]
        def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return builder.load(builder.inttoptr(args[0], context.get_value_type(kind).as_pointer()))

        return kind(types.int64), code

    return intrinsic(typed)


_read8, _read16, _read32, _read64 = (_read(kind) for kind in (types.uint8, types.uint16, types.uint32, types.int64))


@kernel
def _number_at(address: Any, kind: Any, place: Any) -> Any:
    """An entry of an array as int64; 64 unsigned bits keep their order, not their value."""
    if kind == 0:
        return np.int64(_read8(address + place))
    if kind == 1:
        return np.int64(_read16(address + 2 * place))
    if kind == 2:
        return np.int64(_read32(address + 4 * place))
    number = _read64(address + 8 * place)
    return number ^ np.int64(-(2**63)) if kind == 4 else number


@kernel
def _find_numbers(table: Any, numbers: Any, valid: Any, places: Any) -> Any:
    """The place of each number among the sorted ones of an index, −1 if it is none of them or not `valid`.

    All numbers are searched together, step by step and without a branch on the keys, since none could be predicted.
    """
    keys, kind, length = table[NUMBER_KEYS], table[KEY_KIND], table[NUM_NUMBERS]
    flipped = np.int64(-(2**63)) if kind == 4 else np.int64(0)
    for i in range(len(numbers)):
        numbers[i] ^= flipped
        places[i] = 0
    while length > 0:
        half = (length + 1) >> 1
        for i in range(len(numbers)):
            places[i] += half * np.int64(_number_at(keys, kind, places[i] + half - 1) < numbers[i])
        length -= half
    for i in range(len(numbers)):
        place = min(places[i], table[NUM_NUMBERS] - 1)
        places[i] = place if valid[i] and _number_at(keys, kind, place) == numbers[i] else np.int64(-1)


@kernel
def _find_text(table: Any, data: Any, first: Any, length: Any, crc_table: Any) -> Any:
    """The place of a text among those of an index, −1 if it is none of them."""
    crc = np.uint32(0xFFFFFFFF)
    for offset in range(length):
        crc = crc_table[(crc ^ data[first + offset]) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    bucket = np.int64(np.uint64(crc ^ np.uint32(0xFFFFFFFF)) >> np.uint64(table[SHIFT]))
    key = table[TEXT_KEYS] + np.int64(_read32(table[BUCKET_BYTES] + 4 * bucket))
    starts = table[BUCKET_STARTS] + 4 * bucket
    for place in range(np.int64(_read32(starts)), np.int64(_read32(starts + 4))):
        size = _number_at(table[TEXT_SIZES], table[SIZE_KIND], place)
        if size == length:
            same = True
            for offset in range(length):
                if data[first + offset] != _read8(key + offset):
                    same = False
                    break
            if same:
                return np.int64(place)
        key += size
    return np.int64(-1)


@kernel
def _parse_number(data: Any, first: Any, last: Any, base: Any, max_digits: Any) -> Any:
    """A text as an integer in its only spelling, and whether it is one.

    With `base` 0, a decimal number of at most `max_digits`; otherwise `base` lower-case hexadecimal digits, whose bits
    are the result.
    """
    number = np.int64(0)
    if base == 0:
        negative = last > first and data[first] == 45
        start = first + 1 if negative else first
        digits = last - start
        if not 1 <= digits <= max_digits or (data[start] == 48 and (digits > 1 or negative)):
            return number, False
        for place in range(start, last):
            if not 48 <= data[place] <= 57:
                return number, False
            number = number * 10 + np.int64(data[place]) - 48
        return -number if negative else number, True
    bad = np.int64(last - first != base)
    for place in range(first, first if bad else last):  # no branch on the digits, since it could not be predicted
        digit = np.int64(DIGITS[data[place]])
        bad |= digit & 16
        number = (number << 4) | digit
    return number, bad == 0


@kernel
def find_values(data: Any, starts: Any, tables: Any, crc_table: Any, max_digits: Any, out: Any) -> Any:
    """Write the ids of texts into `out [n, F]`: text `n · F + f` of `TextBlob` arrays is looked up in index f."""
    num_rows, num_fields = out.shape
    numbers, places = np.empty(num_rows, np.int64), np.empty(num_rows, np.int64)
    valid = np.zeros(num_rows, np.bool_)
    for field in range(num_fields):
        table = tables[field]
        if table[NUM_NUMBERS] > 0:
            for row in range(num_rows):
                at = row * num_fields + field
                numbers[row], valid[row] = _parse_number(data, starts[at], starts[at + 1] - 1, table[BASE], max_digits)
            _find_numbers(table, numbers, valid, places)
        else:
            valid[:] = False
        for row in range(num_rows):
            ids, kind, place = table[NUMBER_IDS], table[NUMBER_ID_KIND], places[row]
            if not valid[row]:  # numbers are not among the texts
                ids, kind, place = table[TEXT_IDS], table[TEXT_ID_KIND], np.int64(-1)
                if table[NUM_TEXTS] > 0:
                    at = row * num_fields + field
                    place = _find_text(table, data, starts[at], starts[at + 1] - 1 - starts[at], crc_table)
            out[row, field] = table[OFFSET] + (_number_at(ids, kind, place) if place >= 0 else np.int64(0))
