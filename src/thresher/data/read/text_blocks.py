"""A text file → blocks of complete lines as bytes, with line numbers. Plain, gzip or zstd; never the whole file."""

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from thresher.errors import DataError, FileFormatError
from thresher.kernels.compiling import kernel

BLOCK_BYTES = 1 << 24
MAX_LINE_BYTES = 1 << 28
LONG_LINE_BYTES = 1 << 20
"""A first line longer than this is checked for line ends other than LF."""
LATIN_1_HINT = 'if the file is Latin-1, set data.encoding = "latin-1"'
QUOTE_HINT = 'set data.quote = ""'
Compression = Literal["", "gzip", "zstd"]
_BOM = b"\xef\xbb\xbf"
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff")
_UNSUPPORTED = {
    b"PK\x03\x04": "is a zip archive; unpack it first",
    b"\xfd7zXZ": "is compressed with xz; decompress it, or use gzip or zstd",
    b"PAR1\x15": "is a Parquet file; its name must end with .parquet",
}


@dataclass(frozen=True)
class Block:
    """Complete lines of one file. A line break inside quotes does not end a line."""

    data: bytes
    first_line: int  # 1 is the first line of the file
    end_offset: int  # where the next block starts, in decompressed bytes


def read_blocks(path: Path, *, quote: str = '"', block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The file's lines in order, in blocks of about `block_bytes`."""
    carry, offset, line, at_start, in_first_line = b"", 0, 1, True, True
    for piece in _pieces(path, block_bytes):
        if at_start and piece.startswith(_WIDE_BOMS):
            raise DataError("the file is UTF-16; save it as UTF-8", file=path, line=1)
        if at_start and piece.startswith(_BOM):
            offset += len(_BOM)
            piece = piece[len(_BOM) :]
        at_start = False
        data = carry + piece if carry else piece
        cut = _last_line_end(data, quote)
        if in_first_line and (cut or len(data) > LONG_LINE_BYTES):
            _check_line_ends(data, quote, path)
            in_first_line = False
        if cut == 0 and len(data) > MAX_LINE_BYTES:
            raise FileFormatError(
                f"no end of line within {len(data):,} bytes; if a quote is left open here, {QUOTE_HINT}",
                file=path,
                line=line,
            )
        carry = data[cut:]
        if cut:
            offset += cut
            yield Block(data[:cut], line, offset)
            line += count_char(data, "\n", cut)
    if carry:
        if in_first_line:
            _check_line_ends(carry, quote, path)
        yield Block(carry, line, offset + len(carry))


def compression_of(path: Path) -> Compression:
    """The compression of a file, by its first bytes, else by its name."""
    try:
        with path.open("rb") as stream:
            head = stream.read(8)
    except FileNotFoundError as error:
        raise DataError("no such file", file=path) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=path) from error
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return "zstd"
    for start, problem in _UNSUPPORTED.items():
        if head.startswith(start):
            raise DataError(problem, file=path)
    name = path.name.lower()
    return "zstd" if name.endswith((".zst", ".zstd")) else "gzip" if name.endswith((".gz", ".gzip")) else ""


def _check_line_ends(data: bytes, quote: str, path: Path) -> None:
    """Raise if lines end with CR alone: the whole file would be read as one line."""
    line = data.rstrip(b"\r\n")
    if b"\r" not in line or b"\n" in line:
        return
    if quote:
        mark = re.escape(quote.encode())
        line = re.sub(mark + b"[^" + mark + b"]*" + mark, b"", line)
    if b"\r" in line:
        raise DataError(
            f"lines end with CR alone; convert them to LF, for example: tr '\\r' '\\n' < {path.name} > new_{path.name}",
            file=path,
            line=1,
        )


def _last_line_end(data: bytes, quote: str) -> int:
    """Index just after the last line break that is not inside quotes; 0 if there is none."""
    if not quote or quote.encode() not in data:
        return data.rfind(b"\n") + 1
    codes = np.frombuffer(data, dtype=np.uint8)
    inside = np.bitwise_xor.accumulate((codes == ord(quote)).view(np.uint8))
    ends = np.flatnonzero((codes == ord("\n")) & (inside == 0))
    return int(ends[-1]) + 1 if len(ends) else 0


def count_char(data: bytes, char: str, end: int | None = None) -> int:
    """Occurrences of an ASCII character before `end`."""
    codes = np.frombuffer(data, np.uint8, len(data) if end is None else end)
    return int(_count(codes, ord(char)))


@kernel
def _count(codes, wanted):  # type: ignore[no-untyped-def]
    total = 0
    for code in codes:
        total += code == wanted
    return total


def _pieces(path: Path, block_bytes: int) -> Iterator[bytes]:
    """The file's decompressed bytes."""
    compression = compression_of(path)
    if compression == "zstd":
        yield from _zstd_pieces(path, block_bytes)
        return
    try:
        with gzip.open(path) if compression == "gzip" else path.open("rb") as stream:
            while piece := stream.read(block_bytes):
                yield piece
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"the gzip file is truncated or damaged ({error}); download it again and check it with `gzip -t`", file=path
        ) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=path) from error


def _zstd_pieces(path: Path, block_bytes: int) -> Iterator[bytes]:
    # The standard library of Python 3.11 has no zstd; polars decompresses it line by line in its streaming engine.
    try:
        lines = pl.scan_lines(path)
        held = b""
        for frame in lines.collect_batches(chunk_size=_zstd_batch_lines(lines, block_bytes), maintain_order=True):
            if not len(frame):
                continue
            held += (frame.to_series().str.join("\n")[0] + "\n").encode()
            whole = len(held) - len(held) % block_bytes
            yield from (held[at : at + block_bytes] for at in range(0, whole, block_bytes))
            held = held[whole:]
        if held:
            yield held
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"the zstd file cannot be read: {error}", file=path) from error


def _zstd_batch_lines(lines: pl.LazyFrame, block_bytes: int) -> int:
    """Lines to decompress at a time: an eighth of a block, so that longer lines later in the file still fit."""
    first = lines.head(100).collect(engine="streaming").to_series().str.len_bytes()
    line_bytes = 1 + (first.sum() or 0) / max(len(first), 1)
    return max(1, min(50_000, int(block_bytes / (8 * line_bytes))))
