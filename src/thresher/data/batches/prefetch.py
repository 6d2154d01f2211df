"""Make items ahead in a thread, so that reading and computing overlap."""

import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


def prefetched(items: Iterator[T], depth: int) -> Iterator[T]:
    """The same items in the same order, up to `depth` made ahead; an error of the maker is raised where it falls."""
    waiting: queue.Queue[tuple[T | None, BaseException | None, bool]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(entry: tuple[T | None, BaseException | None, bool]) -> bool:
        while not stopped.is_set():
            try:
                waiting.put(entry, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put((item, None, False)):
                    return
            put((None, None, True))
        except BaseException as error:
            put((None, error, True))

    worker = threading.Thread(target=work, name="thresher-prefetch", daemon=True)
    worker.start()
    try:
        while True:
            item, error, last = waiting.get()
            if error is not None:
                raise error
            if last:
                return
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        worker.join()
