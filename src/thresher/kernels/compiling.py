"""How kernels are compiled (numba, without the GIL, cached on disk) and run on threads. Works without torch."""

import functools
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

import numba

if TYPE_CHECKING:
    from torch import Tensor

R = TypeVar("R")

numba_settings: Any = numba.config  # its attributes are created at run time
logger = logging.getLogger(__name__)

PARALLEL_SIZE = 1 << 17  # numbers; smaller work runs on the calling thread
PARALLEL_CELLS = 1 << 20  # the same for Python threads, which cost more to start
SERIAL_SUFFIX = "_serial"
# sums may be reordered and products fused, but NaN and infinity are never assumed away
FAST_FLOATS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz", "arcp"}}

# numba's workqueue layer aborts the process when two Python threads enter it at once
_parallel_lock = threading.RLock()
_pool: ThreadPoolExecutor | None = None


def kernel(function: Any, **options: Any) -> Any:
    """Compile a serial kernel, by default with numba's rules for floats and errors; `options` are those of `njit`."""
    try:
        return numba.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache folder is writable
        return numba.njit(nogil=True, **options)(function)


def serial_kernel(function: Any) -> Any:
    """Compile a serial kernel whose float sums may be reordered."""
    return kernel(function, **FAST_FLOATS)


def exact_kernel(function: Any) -> Any:
    """Compile a helper whose sums keep their order; only products may be fused."""
    return kernel(function, error_model="numpy", fastmath={"contract"})


class ParallelKernel:
    """Compile a kernel with `prange`; it is called like the function.

    It uses as many threads as torch, and one Python thread at a time may run it in parallel. With one thread, or
    through `serially`, it runs on the calling thread without waiting for a lock.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._name = function.__name__
        self._parallel = kernel(function, parallel=True, **FAST_FLOATS)
        self._serial = kernel(_renamed(function), **FAST_FLOATS)

    def __call__(self, *args: Any) -> Any:
        threads = min(num_threads(), numba_settings.NUMBA_NUM_THREADS)
        if threads == 1:
            return self.serially(*args)
        with _parallel_lock:
            if not self._parallel.signatures:
                if numba_settings.THREADING_LAYER == "default":
                    numba_settings.THREADING_LAYER = "workqueue"  # the only layer that survives forked workers
                _log_compilation(self._parallel, self._name)
            numba.set_num_threads(threads)
            return self._parallel(*args)

    def serially(self, *args: Any) -> Any:
        """Run on the calling thread, whatever the number of threads."""
        if not self._serial.signatures:
            _log_compilation(self._serial, f"{self._name}{SERIAL_SUFFIX}")
        return self._serial(*args)

    def for_work(self, size: int) -> Callable[..., Any]:
        """The kernel itself, or its serial form if `size` numbers are too few to wake other threads."""
        return self if size >= PARALLEL_SIZE else self.serially


parallel_kernel = ParallelKernel


def runs_on_kernels(*tensors: "Tensor") -> bool:
    """Whether the CPU kernels accept these tensors; otherwise the plain-torch twins run."""
    import torch

    from thresher._internal.mapped_tensors import is_traced

    if is_traced():
        return False
    return all(
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.dtype in (torch.float32, torch.int32, torch.int64)
        and tensor.is_contiguous()
        for tensor in tensors
    )


def num_threads() -> int:
    """`torch.get_num_threads()`; without torch `OMP_NUM_THREADS`, or the number of cores."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdigit() and int(wanted) > 0 else os.cpu_count() or 1


def num_parts(num_cells: int) -> int:
    """Into how many parts to split work over `num_cells` numbers for `run_parts`."""
    return 1 if num_cells < PARALLEL_CELLS else num_threads()


def run_parts(kernel: Callable[[int], R], parts: int) -> list[R]:
    """`[kernel(0), …, kernel(parts − 1)]` of a serial kernel on Python threads; thread-safe, and survives a fork."""
    global _pool
    if parts == 1:
        return [kernel(0)]
    if _pool is None:
        _pool = ThreadPoolExecutor(thread_name_prefix="thresher-lookup")
    others = [_pool.submit(kernel, part) for part in range(1, parts)]
    return [kernel(0), *(other.result() for other in others)]


def _forget_threads() -> None:
    global _pool, _parallel_lock
    _pool = None  # a forked child has the object but not its threads
    _parallel_lock = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_forget_threads)


def _renamed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function under another name: numba's disk cache finds code by name and ignores the options."""
    assert isinstance(function, FunctionType)
    parts = (function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy = FunctionType(*parts)
    copy.__qualname__, copy.__module__ = f"{function.__qualname__}{SERIAL_SUFFIX}", function.__module__
    return copy


def _log_compilation(compiled: "numba.core.dispatcher.Dispatcher", name: str) -> None:
    cache = Path(compiled.stats.cache_path or ".")
    if not any(cache.glob(f"*{name}-*.nbi")):
        readable = name.removesuffix(SERIAL_SUFFIX).strip("_")
        logger.info("compiling kernel %s (a few seconds, once per machine)", readable)
