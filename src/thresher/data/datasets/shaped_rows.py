"""The kernel of `shaped_files`: one raw row after another as bytes, each a function of (seed, row number) alone."""

import numpy as np

from thresher.kernels.compiling import kernel

KINDS = ("hex", "code", "count", "hour")
_HEX, _CODE, _COUNT, _HOUR = range(4)
_MISSING = -(1 << 62)
_RANK = 4
_FIELD_KEY = np.uint64(0xD1342543DE82EF95)
_VALUE_KEY = np.uint64(0x2545F4914F6CDD1D)
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


@kernel
def fill_rows(buffer, kinds, numbers, first, rows, total, seed, delimiter, with_id, bias):  # type: ignore[no-untyped-def]
    """Write rows `first … first + rows` into the buffer; how many bytes they took.

    `numbers` [fields, 7]: size, zipf, missing, head, signal, median, ninth decile.
    """
    values = np.empty(len(kinds), np.int64)
    at = 0
    for row in range(first, first + rows):
        row_key = _mix(_mix(seed + np.uint64(1)) + np.uint64(row))
        for field in range(len(kinds)):
            key = row_key + np.uint64(field + 1) * _FIELD_KEY
            values[field] = row * 240 // total if kinds[field] == _HOUR else _draw(key, kinds[field], numbers[field])
        chance = 1.0 / (1.0 + np.exp(-bias - _planted_logit(values, kinds, numbers)))
        if with_id:
            at = _write_number(buffer, at, np.int64(row_key >> np.uint64(2)))
            buffer[at] = delimiter
            at += 1
        buffer[at] = 49 if _uniform(row_key) < chance else 48
        at += 1
        for field in range(len(kinds)):
            buffer[at] = delimiter
            at += 1
            if values[field] != _MISSING:
                at = _write_value(buffer, at, kinds[field], field, values[field])
        buffer[at] = 10
        at += 1
    return at


@kernel
def _draw(key, kind, numbers):  # type: ignore[no-untyped-def]
    size, zipf, missing, head, _, median, decile = numbers
    uniform = _uniform(key)
    if uniform < missing:
        return _MISSING
    uniform = (uniform - missing) / (1.0 - missing)
    if kind == _COUNT:  # log-normal
        angle = 2.0 * np.pi * _uniform(key + np.uint64(1))
        normal = np.sqrt(-2.0 * np.log(1.0 - uniform)) * np.cos(angle)
        middle = np.log(median + 1.0)
        spread = (np.log(decile + 1.0) - middle) / 1.2816
        return np.int64(np.exp(middle + spread * normal)) - (1 if median < 5 else 0)
    if head > 0 and _uniform(key + np.uint64(2)) < head:
        return 0
    # the inverse of the continuous Zipf distribution
    power = 1.0 - zipf
    if abs(power) < 1e-9:
        rank = (size + 1.0) ** uniform
    else:
        rank = (((size + 1.0) ** power - 1.0) * uniform + 1.0) ** (1.0 / power)
    return np.int64(min(rank - 1.0, size - 1.0))


@kernel
def _planted_logit(values, kinds, numbers):  # type: ignore[no-untyped-def]
    """First-order weights and products of hidden vectors of the signal fields, all made from hashes of the values."""
    logit = 0.0
    sums, squares = np.zeros(_RANK), np.zeros(_RANK)
    for field in range(len(values)):
        signal = numbers[field, 4]
        if signal == 0:
            continue
        value = values[field]
        if kinds[field] == _COUNT and value > 0:  # the size of a number tells, not its last digit
            value = np.int64(np.log(value) ** 2)
        key = _mix(np.uint64(field + 1) * _VALUE_KEY + np.uint64(value))
        logit += signal * 3.46 * (_uniform(key) - 0.5)
        for dim in range(_RANK):
            entry = signal * 1.7 * (_uniform(key + np.uint64(dim + 1)) - 0.5)
            sums[dim] += entry
            squares[dim] += entry * entry
    for dim in range(_RANK):
        logit += (sums[dim] * sums[dim] - squares[dim]) / 2.0
    return logit


@kernel
def _write_value(buffer, at, kind, field, value):  # type: ignore[no-untyped-def]
    if kind == _HOUR:
        return _write_number(buffer, at, 14102100 + value // 24 * 100 + value % 24)
    if kind != _HEX:
        return _write_number(buffer, at, value)
    # an odd factor and a shift-xor are bijections of 32 bits: distinct values stay distinct
    word = (np.uint64(value) * np.uint64(2654435761) + np.uint64(field) * np.uint64(0x61C88647)) & np.uint64(0xFFFFFFFF)
    word = word ^ (word >> np.uint64(16))
    for digit in range(8):
        buffer[at + digit] = _DIGITS[(word >> np.uint64(28 - 4 * digit)) & np.uint64(15)]
    return at + 8


@kernel
def _write_number(buffer, at, number):  # type: ignore[no-untyped-def]
    if number < 0:
        buffer[at] = 45
        at += 1
        number = -number
    digits, rest = 1, number
    while rest >= 10:
        rest //= 10
        digits += 1
    for place in range(digits - 1, -1, -1):
        buffer[at + place] = 48 + number % 10
        number //= 10
    return at + digits


@kernel
def _mix(key):  # type: ignore[no-untyped-def]
    """splitmix64: any number to a well-mixed one."""
    key = key + np.uint64(0x9E3779B97F4A7C15)
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


@kernel
def _uniform(key):  # type: ignore[no-untyped-def]
    return float(_mix(key) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
