"""How every kernel is compiled: without the GIL, and kept on disk where there is a place to keep it.

Works without torch. Not here: kernels on several threads (`parallel`), nor any kernel.
"""

from typing import Any

import numba


def compile_kernel(function: Any, **options: Any) -> Any:
    """Compile with numba, with these options of `njit` besides."""
    try:
        return numba.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor the user's can be written
        return numba.njit(nogil=True, **options)(function)


def kernel(function: Any) -> Any:
    """Decorator: a serial kernel by numba's own rules."""
    return compile_kernel(function)
