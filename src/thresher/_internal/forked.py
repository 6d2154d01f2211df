"""Child processes made by `fork`: what does not work in them, and how an error or one thread takes the place of a hang.

A child has none of its parent's threads, but waits for them: polars once the parent has started its threads, which
cannot be started anew, and torch's OpenMP unless it is limited to the calling thread.
"""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from thresher.errors import ForkedProcessError

_THREADS_OF_POLARS = re.compile(r"polars-\d|tokio-rt|async-executor")  # its import starts others, which it can lack


class _State:
    forked = False  # since torch was last limited to one thread
    polars_had_threads = False  # before the fork in progress
    polars_is_lost = False


def polars_is_lost() -> bool:
    """Whether this process was forked from one that had started the threads of polars."""
    return _State.polars_is_lost


def check_polars(what: str) -> None:
    """Raise if `what` would wait for threads of polars that this process does not have."""
    if _State.polars_is_lost:
        raise ForkedProcessError(
            f"{what} needs polars, which cannot run in this process: it was forked from one that had used polars. "
            "Start processes by 'spawn' or 'forkserver' instead of 'fork', fork before anything uses polars, or give "
            "rows as dicts of texts and numbers."
        )


def prepare_torch() -> None:
    """Limit torch to the calling thread if this process was forked; call it before torch computes."""
    if _State.forked:
        import torch

        torch.set_num_threads(1)
        _State.forked = False


def _before_fork() -> None:
    _State.polars_had_threads = "polars" in sys.modules and _polars_has_threads()


def _after_fork() -> None:
    _State.forked = True
    _State.polars_is_lost |= _State.polars_had_threads


def _polars_has_threads() -> bool:
    tasks = Path("/proc/self/task")
    if not tasks.exists():
        return True  # only Linux lists threads by name
    for task in tasks.iterdir():
        with suppress(OSError):  # the thread has ended
            if _THREADS_OF_POLARS.match((task / "comm").read_text()):
                return True
    return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
