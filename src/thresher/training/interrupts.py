"""Ctrl-C without torn state: the signal waits until a step is complete, so that a checkpoint can be exact."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class SafeInterrupt(KeyboardInterrupt):
    """Ctrl-C, raised at a moment when weights, optimizer and generators belong together."""


class Interrupts:
    """Remembers that Ctrl-C was pressed. A second press does not wait and raises a plain `KeyboardInterrupt`."""

    def __init__(self) -> None:
        self.pending = False
        self._immediate = False

    def raise_if_pending(self) -> None:
        """To be called between steps."""
        if self.pending:
            self.pending = False
            raise SafeInterrupt

    @contextmanager
    def immediate(self) -> Iterator[None]:
        """Inside nothing is changed that a checkpoint holds (an evaluation, say), so Ctrl-C need not wait."""
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
    """Hold Ctrl-C back inside; whoever runs steps asks `raise_if_pending()` between them.

    Outside the main thread, or where SIGINT is ignored, signals are left as they are. Ctrl-C pressed after the last
    question is raised on leaving, not lost.
    """
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
