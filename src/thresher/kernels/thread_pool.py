"""Parts of one serial kernel on several Python threads: for kernels that release the GIL. Works without torch.

Unlike numba's own threading layer it takes any number of callers at once and survives a fork.
"""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

R = TypeVar("R")

PARALLEL_CELLS = 1 << 20  # below so many numbers a second thread costs more than it saves
_pool: ThreadPoolExecutor | None = None


def num_parts(num_cells: int) -> int:
    """How many threads so many numbers are worth: as many as torch would use, or one."""
    return 1 if num_cells < PARALLEL_CELLS else num_threads()


def num_threads() -> int:
    """`torch.get_num_threads()`; without torch what `OMP_NUM_THREADS` says, or all cores."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdigit() and int(told) > 0 else os.cpu_count() or 1


def run_parts(kernel: Callable[[int], R], parts: int) -> list[R]:
    """`[kernel(0), …, kernel(parts − 1)]`, at the same time; the first on the calling thread."""
    global _pool
    if parts == 1:
        return [kernel(0)]
    if _pool is None:
        _pool = ThreadPoolExecutor(thread_name_prefix="thresher-lookup")
    others = [_pool.submit(kernel, part) for part in range(1, parts)]
    return [kernel(0), *(other.result() for other in others)]


def _forget_pool() -> None:
    global _pool
    _pool = None  # a forked child has the object but not its threads


os.register_at_fork(after_in_child=_forget_pool)
