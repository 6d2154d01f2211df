from pathlib import Path

import pytest
from numba.core.caching import CacheImpl, FunctionCache

import thresher
from thresher.kernels.compiling import kernel
from thresher.kernels.parallel import exact_kernel, parallel_kernel, serial_kernel


@pytest.mark.parametrize("compiled", [kernel, serial_kernel, exact_kernel, parallel_kernel])
def test_a_kernel_compiles_where_nothing_can_be_kept(monkeypatch, compiled):
    def nowhere(*args, **kwargs):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(CacheImpl, "__init__", nowhere)
    monkeypatch.setattr(FunctionCache, "__init__", nowhere)
    assert compiled(lambda number: number + 1)(2) == 3


def test_every_kernel_is_compiled_in_one_place():
    """A second way to compile would again fail where no cache can be written."""
    root = Path(thresher.__file__).parent
    others = [path for path in root.rglob("*.py") if path.name != "compiling.py" and "njit" in path.read_text()]
    assert others == []
