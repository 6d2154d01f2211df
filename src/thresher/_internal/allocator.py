"""Settings of glibc's allocator that make training steps faster.

By default glibc returns freed memory to the system as soon as a few megabytes are free. A training step frees and
allocates temporary tensors of about that size, and the system clears every page again: on MovieLens-1M this takes half
of a step's time.
"""

import ctypes
import os
import sys
from functools import cache

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # names of mallopt's parameters
_LARGEST_ON_HEAP = 32 << 20  # larger tensors are mapped and returned at once; glibc accepts no higher limit
_KEPT_BYTES = 256 << 20
_USER_SETTINGS = ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_")


@cache
def keep_freed_memory() -> bool:
    """Let this process keep up to 256 MB of freed memory. Returns whether it does; only with glibc, once a process.

    Settings of the user in environment variables stay as they are.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _USER_SETTINGS):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    settings = {_MMAP_THRESHOLD: _LARGEST_ON_HEAP, _TRIM_THRESHOLD: _KEPT_BYTES, _TOP_PAD: _KEPT_BYTES // 4}
    done = [mallopt(name, value) for name, value in settings.items()]
    return all(done)
