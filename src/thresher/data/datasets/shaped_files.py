"""Raw files shaped like Criteo's and Avazu's, of any size, with planted signal, for tests and benchmarks.

Numbers of values, Zipf exponents and missing shares are fitted to the published counts of the full logs and to the
growth of distinct values in small samples of them. No row of the real logs is in here. Each row is a function of
(seed, row number) alone, so a longer file begins like a shorter one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thresher.data.datasets.shaped_rows import KINDS, fill_rows

_CHUNK_ROWS = 50_000


@dataclass(frozen=True)
class ShapedField:
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


def _criteo() -> tuple[ShapedField, ...]:
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
        ShapedField(f"I{at}", "count", missing=m, median=half, decile=most, signal=signal.get(f"I{at}", 0))
        for at, (m, half, most) in enumerate(counts, 1)
    ]
    fields += [
        ShapedField(f"C{at}", "hex", size=size, zipf=zipf, missing=m, signal=signal.get(f"C{at}", 0))
        for at, (size, zipf, m) in enumerate(categories, 1)
    ]
    return tuple(fields)


def _avazu() -> tuple[ShapedField, ...]:
    def code(name: str, size: float, zipf: float, signal: float = 0.0) -> ShapedField:
        return ShapedField(name, "code", size=size, zipf=zipf, signal=signal)

    def text(name: str, size: float, zipf: float, head: float = 0.0, signal: float = 0.0) -> ShapedField:
        return ShapedField(name, "hex", size=size, zipf=zipf, head=head, signal=signal)

    return (
        ShapedField("hour", "hour"),
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


def write_criteo_shaped(
    path: str | Path, num_rows: int, *, seed: int = 0, progress: Callable[[int, int | None, str], None] | None = None
) -> Path:
    """Label, 13 integers, 26 hashed categories; tabs, no header, empty is missing. About 240 bytes a row."""
    return _write(Path(path), CRITEO_FIELDS, num_rows, seed, "\t", b"", -1.63, progress)


def write_avazu_shaped(
    path: str | Path, num_rows: int, *, seed: int = 0, progress: Callable[[int, int | None, str], None] | None = None
) -> Path:
    """A CSV with header: id, click, hour and 21 more columns. About 150 bytes a row."""
    header = ",".join(["id", "click", *(field.name for field in AVAZU_FIELDS)]) + "\n"
    return _write(Path(path), AVAZU_FIELDS, num_rows, seed, ",", header.encode(), -1.52, progress)


def _write(
    path: Path,
    fields: tuple[ShapedField, ...],
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
    fields: tuple[ShapedField, ...], num_rows: int, seed: int, delimiter: str, with_id: bool, bias: float
) -> Iterator[tuple[NDArray[np.uint8], int]]:
    kinds = np.array([KINDS.index(field.kind) for field in fields], np.int64)
    numbers = np.array([[f.size, f.zipf, f.missing, f.head, f.signal, f.median, f.decile] for f in fields], np.float64)
    buffer = np.empty(_CHUNK_ROWS * (32 + 14 * len(fields)), np.uint8)
    for first in range(0, num_rows, _CHUNK_ROWS):
        rows = min(_CHUNK_ROWS, num_rows - first)
        used = fill_rows(buffer, kinds, numbers, first, rows, num_rows, np.uint64(seed), ord(delimiter), with_id, bias)
        yield buffer[:used], rows
