"""A text file → blocks of whole lines as bytes, with line numbers; plain, gzip or zstd, never the whole file at once.

Knows lines and quotes, not columns.
"""

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
"""A first line longer than this is looked at for other line ends than LF."""
IF_LATIN_1 = 'if the file is Latin-1, set data.encoding = "latin-1"'
WITHOUT_QUOTES = 'set data.quote = ""'
Packing = Literal["", "gzip", "zstd"]
_BOM = b"\xef\xbb\xbf"
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff")
_FOREIGN = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"\xfd7zXZ": "packed with xz; unpack it, or pack it with gzip or zstd",
    b"PAR1\x15": "a Parquet file; give it a name that ends with .parquet",
}


@dataclass(frozen=True)
class Block:
    """Whole lines of one file. A line break inside quotes does not end a line."""

    data: bytes
    first_line: int  # 1 is the first line of the file
    end_offset: int = 0  # where the next block begins, in unpacked bytes
    end_line: int = 1


def read_blocks(
    path: Path, *, quote: str = '"', block_bytes: int = BLOCK_BYTES, offset: int = 0, line: int = 1
) -> Iterator[Block]:
    """The file's lines in order, in blocks of about `block_bytes`; from `offset`, which is where `line` begins."""
    carry, at_start, in_first_line = b"", offset == 0, offset == 0
    for piece in _pieces(path, block_bytes, offset):
        if at_start and piece.startswith(_WIDE_BOMS):
            raise DataError("the file is UTF-16; save it as UTF-8", file=path, line=1)
        if at_start and piece.startswith(_BOM):
            offset += len(_BOM)
            piece = piece[len(_BOM) :]
        at_start = False
        data = carry + piece if carry else piece
        cut = _last_line_end(data, quote)
        if in_first_line and (cut or len(data) > LONG_LINE_BYTES):
            _refuse_lone_returns(data, quote, path)
            in_first_line = False
        if cut == 0 and len(data) > MAX_LINE_BYTES:
            raise FileFormatError(
                f"no end of line within {len(data):,} bytes; if a quote is left open here, {WITHOUT_QUOTES}",
                file=path,
                line=line,
            )
        carry = data[cut:]
        if cut:
            first, offset, line = line, offset + cut, line + count_sign(data, "\n", cut)
            yield Block(data[:cut], first, offset, line)
    if carry:
        if in_first_line:
            _refuse_lone_returns(carry, quote, path)
        yield Block(carry, line, offset + len(carry), line + 1)


def packing_of(path: Path) -> Packing:
    """How a file is packed, by its first bytes, and only where these do not tell by its name."""
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
    for sign, what in _FOREIGN.items():
        if head.startswith(sign):
            raise DataError(f"this is {what}", file=path)
    name = path.name.lower()
    return "zstd" if name.endswith((".zst", ".zstd")) else "gzip" if name.endswith((".gz", ".gzip")) else ""


def _refuse_lone_returns(data: bytes, quote: str, path: Path) -> None:
    """Lines that end with CR alone would all be taken for one."""
    line = data.rstrip(b"\r\n")
    if b"\r" not in line or b"\n" in line:
        return
    if quote:
        sign = re.escape(quote.encode())
        line = re.sub(sign + b"[^" + sign + b"]*" + sign, b"", line)
    if b"\r" in line:
        raise DataError(
            f"the lines end with CR alone; make it LF, for example: tr '\\r' '\\n' < {path.name} > new_{path.name}",
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


def count_sign(data: bytes, sign: str, end: int | None = None) -> int:
    """How often an ASCII character occurs before `end`."""
    codes = np.frombuffer(data, np.uint8, len(data) if end is None else end)
    return int(_count(codes, ord(sign)))


@kernel
def _count(codes, sign):  # type: ignore[no-untyped-def]
    total = 0
    for code in codes:
        total += code == sign
    return total


def _pieces(path: Path, block_bytes: int, offset: int) -> Iterator[bytes]:
    """The file's bytes from `offset` on, unpacked on the way."""
    packing = packing_of(path)
    if packing == "zstd":
        yield from _zstd_pieces(path, block_bytes, offset)
        return
    try:
        with gzip.open(path) if packing == "gzip" else path.open("rb") as stream:
            stream.seek(offset)
            while piece := stream.read(block_bytes):
                yield piece
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"the gzip file is cut off or damaged ({error}); fetch it again, `gzip -t` checks it", file=path
        ) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=path) from error


def _zstd_pieces(path: Path, block_bytes: int, offset: int) -> Iterator[bytes]:
    # The standard library of Python 3.11 has no zstd; polars unpacks it line by line in its streaming engine.
    try:
        lines = pl.scan_lines(path)
        held = b""
        for frame in lines.collect_batches(chunk_size=_zstd_batch_lines(lines, block_bytes), maintain_order=True):
            if not len(frame):
                continue
            piece = (frame.to_series().str.join("\n")[0] + "\n").encode()
            passed = min(offset, len(piece))
            offset -= passed
            held += piece[passed:]
            whole = len(held) - len(held) % block_bytes
            yield from (held[at : at + block_bytes] for at in range(0, whole, block_bytes))
            held = held[whole:]
        if held:
            yield held
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"the zstd file cannot be read: {error}", file=path) from error


def _zstd_batch_lines(lines: pl.LazyFrame, block_bytes: int) -> int:
    """Lines to unpack at a time: some batches make a block, so that longer lines later on do no harm."""
    first = lines.head(100).collect(engine="streaming").to_series().str.len_bytes()
    line_bytes = 1 + (first.sum() or 0) / max(len(first), 1)
    return max(1, min(50_000, int(block_bytes / (8 * line_bytes))))
