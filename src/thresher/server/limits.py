"""Limits of one server process: bytes and seconds of a body, predictions in progress."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from thresher.server.replies import ClientGoneError, RequestError

T = TypeVar("T")
SMALL_BODY = 64 * 2**10  # bytes; a prediction of so few rows costs less than waiting for a thread is worth
RETRY_AFTER = {"Retry-After": "1"}


async def read_body(request: Request, max_bytes: int, seconds: float) -> bytes:
    """The body of a request. Raises 413 as soon as it is too large, and 408 if it takes too long."""
    too_large = RequestError(
        413, f"the body is larger than {max_bytes:,} bytes. Send fewer rows.", headers={"Connection": "close"}
    )
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > max_bytes:
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                if size > max_bytes:
                    raise too_large
                parts.append(part)
    except TimeoutError:
        message = f"the body did not arrive within {seconds:g} seconds"
        raise RequestError(408, message, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise ClientGoneError from None
    return b"".join(parts)


class Slots:
    """Counts the predictions that wait or run in this process, and refuses more than `limit`.

    Small ones run on the event loop: handing them to a thread costs more than they do. Large ones run in one thread,
    so that the process keeps answering.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.taken = limit, 0
        self._thread = asyncio.Semaphore(1)

    def take(self) -> None:
        if self.taken >= self.limit:
            raise RequestError(503, "the server is busy. Try again in a second.", headers=RETRY_AFTER)
        self.taken += 1

    def release(self) -> None:
        self.taken -= 1

    async def run(self, work: Callable[[], T], size: int) -> T:
        if size <= SMALL_BODY:
            await asyncio.sleep(0)  # requests that arrived together are counted before the first of them is computed
            return work()
        async with self._thread:
            return await run_in_threadpool(work)
