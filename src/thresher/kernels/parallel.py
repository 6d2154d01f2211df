"""How CPU kernels are compiled and entered: cached on disk, one parallel kernel at a time, on as many threads as torch.

Not here: any kernel. Each lives beside its plain-torch twin in the module of its idea.
"""

import functools
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeVar

import numba
import torch
from torch import Tensor

from thresher.kernels.compiling import compile_kernel

P = ParamSpec("P")
R = TypeVar("R")

settings: Any = numba.config  # its names are made at run time
logger = logging.getLogger(__name__)

PARALLEL_SIZE = 1 << 17
ON_ONE_THREAD = "_on_one_thread"
# sums may be reordered and products fused, but NaN and infinity are never assumed away
FLOAT_RULES = {"contract", "reassoc", "nsz", "arcp"}

# numba's workqueue layer aborts the process when two Python threads enter it at once
_entrance = threading.RLock()


def serial_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel that runs on the calling thread and lets others run meanwhile."""
    compiled: Callable[P, R] = compile_kernel(function, error_model="numpy", fastmath=FLOAT_RULES)
    return compiled


def exact_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a helper whose sums must keep their order; only products may be fused."""
    compiled: Callable[P, R] = compile_kernel(function, error_model="numpy", fastmath={"contract"})
    return compiled


class ParallelKernel(Generic[P, R]):
    """A kernel with `prange`, to be called as the function it is made of.

    Entering it waits its turn and obeys `torch.set_num_threads`. With one thread, or by `serially`, it runs on the
    calling thread, without a wait: waking others costs more than a few ten thousand numbers take.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self._name = function.__name__
        self._parallel = compile_kernel(function, parallel=True, error_model="numpy", fastmath=FLOAT_RULES)
        self._serial = compile_kernel(_renamed(function), error_model="numpy", fastmath=FLOAT_RULES)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        num_threads = min(torch.get_num_threads(), settings.NUMBA_NUM_THREADS)
        if num_threads == 1:
            return self.serially(*args, **kwargs)
        with _entrance:
            if not self._parallel.signatures:
                if settings.THREADING_LAYER == "default":
                    settings.THREADING_LAYER = "workqueue"  # the only layer that survives forked workers
                _announce(self._parallel, self._name)
                _hint_at_busy_waiting()
            numba.set_num_threads(num_threads)
            result: R = self._parallel(*args, **kwargs)
            return result

    def serially(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run on the calling thread alone, whatever the number of threads."""
        if not self._serial.signatures:
            _announce(self._serial, f"{self._name}{ON_ONE_THREAD}")
        result: R = self._serial(*args, **kwargs)
        return result

    def for_work(self, size: int) -> Callable[P, R]:
        """The kernel itself, or its serial form where `size` numbers are not worth waking other threads."""
        return self if size >= PARALLEL_SIZE else self.serially


def parallel_kernel(function: Callable[P, R]) -> ParallelKernel[P, R]:
    """Compile a kernel with `prange`; see `ParallelKernel`."""
    return ParallelKernel(function)


def runs_on_kernels(*tensors: Tensor) -> bool:
    """Whether the CPU kernels serve these tensors; otherwise their twins do, on any device and of any kind."""
    # inside torch.func (vmap, grad, …) tensors are wrappers without memory of their own
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return all(
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.dtype in (torch.float32, torch.int32, torch.int64)
        and tensor.is_contiguous()
        for tensor in tensors
    )


@functools.cache
def _hint_at_busy_waiting() -> None:
    if "OMP_WAIT_POLICY" not in os.environ and "GOMP_SPINCOUNT" not in os.environ:
        logger.debug(
            "torch's threads wait busily and hold kernels up; OMP_WAIT_POLICY=passive in the environment helps"
        )


def _renamed(function: Callable[P, R]) -> Callable[P, R]:
    """The same function under another name: numba finds compiled code on disk by name, whatever its options were."""
    assert isinstance(function, FunctionType)
    parts = (function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy = FunctionType(*parts)
    copy.__qualname__, copy.__module__ = f"{function.__qualname__}{ON_ONE_THREAD}", function.__module__
    return copy


def _announce(compiled: "numba.core.dispatcher.Dispatcher", name: str) -> None:
    cache = Path(compiled.stats.cache_path or ".")
    if not any(cache.glob(f"*{name}-*.nbi")):
        told = name.removesuffix(ON_ONE_THREAD).strip("_")
        logger.info("compiling the kernel %s (a few seconds, once; then it is read from %s)", told, cache)
