"""The memory of a server process: what loading a bundle needed only for a while goes back to the system."""

import ctypes
import gc
import sys

ARENA_MAX = -8  # of mallopt: threads share one arena, so that what one of them frees is used again


def share_arena() -> None:
    """Let all threads of this process share one arena of malloc. Without effect where there is no glibc."""
    _call("mallopt", ARENA_MAX, 1)


def give_back() -> None:
    """Give free memory back to the system, and look for cycles among later objects only."""
    gc.unfreeze()  # a bundle that was replaced may contain cycles
    gc.collect()
    gc.freeze()
    _call("malloc_trim", 0)


def _call(name: str, *numbers: int) -> None:
    """Call a function of the C library, if it has one of this name."""
    if sys.platform == "linux" and (function := getattr(ctypes.CDLL(None), name, None)):
        function(*numbers)
