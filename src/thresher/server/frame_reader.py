"""Arrow and Parquet bodies are read in a process of their own: a body made to do harm may end it, not the server.

polars ends its process if a damaged file asks for more memory than there is. The reader sends the needed columns back
as an Arrow stream, which the server reads. It starts with the first such body and again after a body has ended it.

    request: a JSON line with kind, columns, max_rows, bytes; then the body
    reply: a JSON line with bytes, or with an error; then the stream
"""

import atexit
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any

from thresher._internal.forked import check_polars
from thresher.errors import DataError
from thresher.server.decoding import MAGIC, STREAM, decode_frame, encode_frame
from thresher.server.replies import RequestError

if TYPE_CHECKING:
    import polars as pl

PROGRAM = "import sys; sys.path[:] = {paths!r}; from thresher.server.frame_reader import main; main()"
MAX_MEMORY = 16 << 30
"""Address space of the reader; polars reserves more than it uses."""


class FrameReader:
    """The process that reads the bodies of one server process, one body at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, body: bytes, kind: str, columns: Sequence[str], max_rows: int) -> "pl.DataFrame":
        """The needed columns of a body; raises `RequestError` or `DataError` as `decode_frame` does."""
        check_polars(f"reading {kind}")
        if kind in MAGIC and not body.startswith(MAGIC[kind]):
            raise RequestError(400, f"the body is not {kind}")
        request = {"kind": kind, "columns": list(columns), "max_rows": max_rows, "bytes": len(body)}
        with self._lock:
            reply, content = self._ask(json.dumps(request).encode() + b"\n", body)
        if reply is None:
            raise RequestError(400, f"the body is not readable as {kind}: the process that read it has ended")
        if "status" in reply:
            raise RequestError(reply["status"], reply["error"])
        if "error" in reply:
            raise DataError(reply["error"], column=reply["column"], row=reply["row"])
        import polars as pl

        return pl.read_ipc_stream(BytesIO(content))

    def close(self) -> None:
        """End the process."""
        atexit.unregister(self.close)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(OSError):
                    assert pipe is not None
                    pipe.close()
            self._process = None

    def _ask(self, header: bytes, body: bytes) -> tuple[dict[str, Any] | None, bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            atexit.register(self.close)
            command = [sys.executable, "-c", PROGRAM.format(paths=sys.path)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        sent, received = self._process.stdin, self._process.stdout
        assert sent is not None
        assert received is not None
        try:
            sent.write(header + body)
            sent.flush()
            reply = json.loads(received.readline())
            content = received.read(reply.get("bytes", 0))
        except (OSError, ValueError):  # the process has ended
            self.close()
            return None, b""
        return reply, content


READER = FrameReader()
"""The reader of this process."""


def main() -> None:
    """The process that reads: answers requests until the server ends."""
    with suppress(ImportError, ValueError, OSError):  # no such limit on this system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends requests in progress first
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    while line := requests.readline():
        request = json.loads(line)
        _answer(replies, requests.read(request.pop("bytes")), request)


def _answer(replies: IO[bytes], body: bytes, request: dict[str, Any]) -> None:
    content = b""
    try:
        content = encode_frame(decode_frame(body, **request), STREAM)
        reply: dict[str, Any] = {"bytes": len(content)}
    except RequestError as error:
        reply = {"status": error.status, "error": str(error)}
    except DataError as error:
        reply = {"error": error.message, "column": error.column, "row": error.row}
    replies.write(json.dumps(reply).encode() + b"\n" + content)
    replies.flush()
