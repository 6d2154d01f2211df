"""Ctrl-C deferred to the end of a training step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class SafeInterrupt(KeyboardInterrupt):
    """Ctrl-C, raised between two steps, when a checkpoint is consistent."""


class Interrupts:
    """Records Ctrl-C until `raise_if_pending()` is called. A second Ctrl-C raises `KeyboardInterrupt` at once."""

    def __init__(self) -> None:
        self.pending = False
        self._immediate = False

    def raise_if_pending(self) -> None:
        """Call this between steps."""
        if self.pending:
            self.pending = False
            raise SafeInterrupt

    @contextmanager
    def immediate(self) -> Iterator[None]:
        """Inside, Ctrl-C is raised at once: nothing changes that a checkpoint holds (e.g. an evaluation)."""
        self.raise_if_pending()
        self._immediate = True
        try:
            yield
        finally:
            self._immediate = False

    def handle(self, signum: int, frame: FrameType | None) -> None:
        if self.pending:
            raise KeyboardInterrupt
        self.pending = True
        if self._immediate:
            self.raise_if_pending()


@contextmanager
def deferred_interrupts() -> Iterator[Interrupts]:
    """Defer Ctrl-C until `raise_if_pending()` or the end of the block; only in the main thread."""
    interrupts = Interrupts()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield interrupts
        return
    signal.signal(signal.SIGINT, interrupts.handle)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts.pending:
        raise KeyboardInterrupt
