"""How CPU kernels are compiled and entered: cached on disk, one parallel kernel at a time, on as many threads as torch.

Not here: any kernel. Each lives beside its plain-torch twin in the module of its idea.
"""

import functools
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numba
import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")

settings: Any = numba.config  # its names are made at run time
logger = logging.getLogger(__name__)

# sums may be reordered and products fused, but NaN and infinity are never assumed away
FLOAT_RULES = {"contract", "reassoc", "nsz", "arcp"}

# numba's workqueue layer aborts the process when two Python threads enter it at once
_entrance = threading.RLock()


def serial_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel that runs on the calling thread and lets others run meanwhile."""
    compiled: Callable[P, R] = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=FLOAT_RULES)(function)
    return compiled


def exact_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a helper whose sums must keep their order; only products may be fused."""
    compiled: Callable[P, R] = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})(function)
    return compiled


def parallel_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel with `prange`; entering it waits its turn and obeys `torch.set_num_threads`."""
    compiled = numba.njit(parallel=True, nogil=True, cache=True, error_model="numpy", fastmath=FLOAT_RULES)(function)

    @functools.wraps(function)
    def enter(*args: P.args, **kwargs: P.kwargs) -> R:
        with _entrance:
            if not compiled.signatures:
                _prepare(compiled, function.__name__)
            numba.set_num_threads(min(torch.get_num_threads(), settings.NUMBA_NUM_THREADS))
            result: R = compiled(*args, **kwargs)
            return result

    return enter


def runs_on_kernels(*tensors: Tensor) -> bool:
    """Whether the CPU kernels serve these tensors; otherwise their twins do, on any device and of any kind."""
    return not torch.compiler.is_compiling() and all(
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.dtype in (torch.float32, torch.int32, torch.int64)
        and tensor.is_contiguous()
        for tensor in tensors
    )


def _prepare(compiled: "numba.core.dispatcher.Dispatcher", name: str) -> None:
    if settings.THREADING_LAYER == "default":
        settings.THREADING_LAYER = "workqueue"  # the only layer that survives forked workers
    cache = Path(compiled.stats.cache_path or ".")
    if not any(cache.glob(f"*{name}-*.nbi")):
        logger.info("compiling the kernel %s (a few seconds, once; then it is read from %s)", name.strip("_"), cache)
