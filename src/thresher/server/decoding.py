"""Bodies of requests → rows: JSON as dicts, Arrow and Parquet as frames of the needed columns. Replies in bulk."""

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import msgspec

from thresher._internal.forked import check_polars
from thresher.errors import DataError, ForkedProcessError
from thresher.server.replies import JSON, RequestError

if TYPE_CHECKING:
    import polars as pl

STREAM, FILE = "application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.file"
PARQUET = "application/vnd.apache.parquet"
BULK = {STREAM: STREAM, FILE: FILE, PARQUET: PARQUET, "application/x-parquet": PARQUET}
MAGIC = {FILE: b"ARROW1", PARQUET: b"PAR1"}
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_decode = msgspec.json.Decoder().decode


def content_kind(header: str) -> str:
    """The kind of a body by its Content-Type: JSON unless it is one of the bulk formats."""
    kind = header.partition(";")[0].strip().lower()
    if kind in BULK:
        return BULK[kind]
    if kind in ("", JSON, "text/json", "text/plain", "application/x-www-form-urlencoded"):  # curl's default is the last
        return JSON
    raise RequestError(415, f"Content-Type {kind!r} is not supported. Use {', '.join([JSON, *MAGIC, STREAM])}.")


def decode_json(body: bytes) -> Any:
    try:
        return _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(400, f"the body is not JSON: {error}") from None


class RowDecoder:
    """Decodes rows that have exactly the given columns, without a dict for each."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._decode: Callable[[bytes], Any] | None = None
        with contextlib.suppress(ValueError):  # a name with a quote or a backslash
            fields = [(f"c{at}", Any, msgspec.field(name=column)) for at, column in enumerate(columns)]
            # skipped values would not be checked as dicts are, so other columns are left to dicts
            row: Any = msgspec.defstruct("Row", fields, gc=False, forbid_unknown_fields=True)
            self._decode = msgspec.json.Decoder(row | list[row]).decode

    def cells(self, body: bytes) -> tuple[list[tuple[Any, ...]], bool] | None:
        """The cells of each row in the order of the columns, and whether the body is a single row.

        None for any other body: `decode_json` and `json_rows` read it, or say what is wrong with it.
        """
        if self._decode is None:
            return None
        try:
            content = self._decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        single = not isinstance(content, list)
        return list(map(msgspec.structs.astuple, [content] if single else content)), single


def decode_frame(body: bytes, kind: str, columns: Sequence[str], max_rows: int) -> "pl.DataFrame":
    """The needed columns of an Arrow or Parquet body. Rows are counted before they are read, where the format can."""
    if kind in MAGIC and not body.startswith(MAGIC[kind]):
        raise RequestError(400, f"the body is not {kind}")
    try:
        frame = _read(body, kind, columns, max_rows)
    except (RequestError, DataError, ForkedProcessError):
        raise
    except (OSError, ValueError) as error:
        raise _unreadable(kind, error) from None
    except polars_errors() as error:
        raise _unreadable(kind, error) from None
    check_rows(len(frame), max_rows)
    return frame


def _unreadable(kind: str, error: BaseException) -> RequestError:
    first = str(error).partition("\n")[0][:200]
    return RequestError(400, f"the body is not readable as {kind}: {first}")


def _read(body: bytes, kind: str, columns: Sequence[str], max_rows: int) -> "pl.DataFrame":
    check_polars(f"reading {kind}")
    import polars as pl

    from thresher.data.read.column_values import check_columns

    if kind == STREAM:
        if not body.endswith(END_OF_STREAM):  # polars would return the rows of a part of a stream
            raise RequestError(400, "the Arrow stream is not complete: it has no end-of-stream marker")
        frame = pl.read_ipc_stream(BytesIO(body))
        check_columns(frame.columns, columns)
        return frame.select(columns)
    scan: Callable[[BytesIO], pl.LazyFrame] = pl.scan_parquet if kind == PARQUET else pl.scan_ipc
    lazy = scan(BytesIO(body))
    check_columns(lazy.collect_schema().names(), columns)
    check_rows(lazy.select(pl.len()).collect().item(), max_rows)
    return lazy.select(columns).collect()


def check_rows(num_rows: int, max_rows: int) -> None:
    if num_rows > max_rows:
        raise RequestError(413, f"the request has {num_rows:,} rows; at most {max_rows:,} are allowed. Send several.")


def json_rows(content: Any, max_rows: int) -> list[Any]:
    """One row or a list of rows, as a list."""
    rows = [content] if isinstance(content, Mapping) else content
    if not isinstance(rows, list):
        raise RequestError(422, f"the body is a {type(content).__name__}; expected a row (an object) or a list of rows")
    check_rows(len(rows), max_rows)
    return rows


def polars_errors() -> tuple[type[BaseException], ...]:
    """What polars raises; nothing while it is not loaded. A panic in it is not an `Exception`."""
    if "polars" not in sys.modules:
        return ()
    from polars.exceptions import PanicException, PolarsError

    return PolarsError, PanicException


def encode_probabilities(probabilities: Any, kind: str) -> bytes:
    """The column `probability` in one of the bulk formats."""
    check_polars(f"writing {kind}")
    import polars as pl

    return encode_frame(pl.DataFrame({"probability": probabilities}), kind)


def encode_frame(frame: "pl.DataFrame", kind: str) -> bytes:
    """A frame in one of the bulk formats."""
    out = BytesIO()
    if kind == STREAM:
        frame.write_ipc_stream(out)
    elif kind == FILE:
        frame.write_ipc(out)
    else:
        frame.write_parquet(out)
    return out.getvalue()


def reply_kind(accept: str, request_kind: str) -> str:
    """The format of a reply: what the client accepts, else the format of its request."""
    for part in accept.split(","):
        kind = part.partition(";")[0].strip().lower()
        if kind in BULK:
            return BULK[kind]
        if kind == JSON:
            return JSON
    return request_kind
