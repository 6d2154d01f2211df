"""One JSON line for each request, on stdout."""

import sys
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.requests import Request

_encode = msgspec.json.Encoder().encode
MAX_TEXT = 200  # of what a client chose: its path, its request id


class AccessLog:
    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled

    def write(self, request: Request, status: int, seconds: float, details: dict[str, Any]) -> None:
        if not self.enabled:
            return
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "method": request.method,
            "path": request.url.path[:MAX_TEXT],
            "status": status,
            "milliseconds": round(seconds * 1000, 3),
            "client": request.client.host if request.client else None,
            **details,
        }
        if request_id := request.headers.get("x-request-id"):
            line["request_id"] = request_id[:MAX_TEXT]
        sys.stdout.buffer.write(_encode(line) + b"\n")  # one write: lines of several workers do not mix
        sys.stdout.buffer.flush()
