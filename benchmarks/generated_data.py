"""Generates raw files like Criteo's and Avazu's, of any size and with a learnable label, for tests and benchmarks.

Numbers of values, Zipf exponents and missing shares are fitted to the published counts of the full logs and to the
growth of distinct values in small samples. No row is copied from the real logs. Each row depends only on (seed, row
number), so a longer file starts with the rows of a shorter one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thresher.kernels.compiling import kernel

KINDS = ("hex", "code", "count", "hour")
_HEX, _CODE, _COUNT, _HOUR = range(4)
_MISSING = -(1 << 62)
_RANK = 4
_FIELD_KEY = np.uint64(0xD1342543DE82EF95)
_VALUE_KEY = np.uint64(0x2545F4914F6CDD1D)
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_CHUNK_ROWS = 50_000


@dataclass(frozen=True)
class GeneratedColumn:
    """One column: `size` values of Zipf exponent `zipf`; a number with a given median and ninth decile; or the hour."""

    name: str
    kind: Literal["hex", "code", "count", "hour"]
    size: float = 0
    zipf: float = 0.0
    missing: float = 0.0
    head: float = 0.0
    """Share of rows that hold the first value, before Zipf's law is asked."""
    signal: float = 0.0
    """How much the value moves the label."""
    median: float = 0.0
    decile: float = 0.0


def _criteo() -> tuple[GeneratedColumn, ...]:
    counts = [  # missing, median, ninth decile
        (0.45, 1, 9), (0, 3, 183), (0.21, 6, 44), (0.21, 4, 18), (0.03, 2796, 33560), (0.22, 32, 278), (0.04, 3, 34),
        (0, 7, 34), (0.04, 39, 265), (0.45, 1, 1.5), (0.04, 1, 6), (0.77, 0, 2), (0.21, 4, 20),
    ]  # fmt: skip
    categories = [  # size, zipf, missing
        (1460, 1.8, 0), (583, 1.1, 0), (1.794e9, 1.05, 0.0345), (5.71e6, 1.125, 0.0345), (305, 2.2, 0), (24, 1.6, 0.12),
        (12517, 0.8, 0), (633, 2.0, 0), (3, 3.0, 0), (93145, 1.2, 0), (5683, 0.9, 0), (2.954e8, 1.05, 0.0345),
        (3194, 0.9, 0), (27, 1.3, 0), (14992, 0.9, 0), (5.99e7, 1.075, 0.0345), (10, 1.6, 0), (5652, 1.0, 0),
        (2173, 2.0, 0.44), (4, 1.0, 0.44), (3.485e8, 1.075, 0.0345), (18, 1.8, 0.76), (15, 1.5, 0),
        (298290, 1.225, 0.0345), (105, 1.2, 0.44), (142960, 1.175, 0.44),
    ]  # fmt: skip
    signal = {"C1": 0.3, "C2": 0.3, "C7": 0.25, "C10": 0.25, "C14": 0.3, "C17": 0.4, "C20": 0.3, "I6": 0.3, "I11": 0.3}
    fields = [
        GeneratedColumn(f"I{at}", "count", missing=m, median=half, decile=most, signal=signal.get(f"I{at}", 0))
        for at, (m, half, most) in enumerate(counts, 1)
    ]
    fields += [
        GeneratedColumn(f"C{at}", "hex", size=size, zipf=zipf, missing=m, signal=signal.get(f"C{at}", 0))
        for at, (size, zipf, m) in enumerate(categories, 1)
    ]
    return tuple(fields)


def _avazu() -> tuple[GeneratedColumn, ...]:
    def code(name: str, size: float, zipf: float, signal: float = 0.0) -> GeneratedColumn:
        return GeneratedColumn(name, "code", size=size, zipf=zipf, signal=signal)

    def text(name: str, size: float, zipf: float, head: float = 0.0, signal: float = 0.0) -> GeneratedColumn:
        return GeneratedColumn(name, "hex", size=size, zipf=zipf, head=head, signal=signal)

    return (
        GeneratedColumn("hour", "hour"),
        code("C1", 7, 3.0),
        code("banner_pos", 7, 2.0, 0.3),
        text("site_id", 4737, 1.4, 0, 0.4),
        text("site_domain", 7745, 1.5),
        text("site_category", 26, 1.8, 0, 0.3),
        text("app_id", 8552, 1.5, 0.4, 0.4),
        text("app_domain", 559, 2.3),
        text("app_category", 36, 2.2),
        text("device_id", 7e6, 0.8, 0.826),
        text("device_ip", 8.0e6, 0.8),
        text("device_model", 8251, 1.1, 0, 0.3),
        code("device_type", 5, 4.0),
        code("device_conn_type", 4, 3.0, 0.3),
        code("C14", 2626, 1.0, 0.3),
        code("C15", 8, 4.0),
        code("C16", 9, 4.0),
        code("C17", 435, 1.1, 0.3),
        code("C18", 4, 0.5),
        code("C19", 68, 1.3),
        code("C20", 172, 1.5),
        code("C21", 60, 1.3),
    )


CRITEO_FIELDS, AVAZU_FIELDS = _criteo(), _avazu()


def write_criteo_like(
    path: str | Path, num_rows: int, *, seed: int = 0, progress: Callable[[int, int | None, str], None] | None = None
) -> Path:
    """Label, 13 integers, 26 hashed categories; tabs, no header, empty is missing. About 240 bytes a row."""
    return _write(Path(path), CRITEO_FIELDS, num_rows, seed, "\t", b"", -1.63, progress)


def write_avazu_like(
    path: str | Path, num_rows: int, *, seed: int = 0, progress: Callable[[int, int | None, str], None] | None = None
) -> Path:
    """A CSV with header: id, click, hour and 21 more columns. About 150 bytes a row."""
    header = ",".join(["id", "click", *(field.name for field in AVAZU_FIELDS)]) + "\n"
    return _write(Path(path), AVAZU_FIELDS, num_rows, seed, ",", header.encode(), -1.52, progress)


def _write(
    path: Path,
    fields: tuple[GeneratedColumn, ...],
    num_rows: int,
    seed: int,
    delimiter: str,
    header: bytes,
    bias: float,
    progress: Callable[[int, int | None, str], None] | None,
) -> Path:
    beside = path.with_name(path.name + ".partial")
    done = 0
    with beside.open("wb") as file:
        file.write(header)
        for block, rows in _blocks(fields, num_rows, seed, delimiter, bool(header), bias):
            file.write(block.data)
            done += rows
            if progress is not None:
                progress(done, num_rows, "generating")
    beside.replace(path)
    return path


def _blocks(
    fields: tuple[GeneratedColumn, ...], num_rows: int, seed: int, delimiter: str, with_id: bool, bias: float
) -> Iterator[tuple[NDArray[np.uint8], int]]:
    kinds = np.array([KINDS.index(field.kind) for field in fields], np.int64)
    numbers = np.array([[f.size, f.zipf, f.missing, f.head, f.signal, f.median, f.decile] for f in fields], np.float64)
    buffer = np.empty(_CHUNK_ROWS * (32 + 14 * len(fields)), np.uint8)
    for first in range(0, num_rows, _CHUNK_ROWS):
        rows = min(_CHUNK_ROWS, num_rows - first)
        used = fill_rows(buffer, kinds, numbers, first, rows, num_rows, np.uint64(seed), ord(delimiter), with_id, bias)
        yield buffer[:used], rows


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
