import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from numba import prange
from numba.core.caching import CacheImpl, FunctionCache

import thresher
from thresher.kernels.compiling import exact_kernel, kernel, parallel_kernel, runs_on_kernels, serial_kernel


@parallel_kernel
def _double(values, out):
    for i in prange(values.shape[0]):
        out[i] = 2 * values[i]


def test_kernels_run_on_one_thread_and_on_several():
    values, before = np.arange(1000.0), torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            out = np.empty_like(values)
            _double(values, out)
            assert (out == 2 * values).all()
    finally:
        torch.set_num_threads(before)


def test_several_python_threads_can_run_a_kernel_at_once():
    before, results = torch.get_num_threads(), []
    torch.set_num_threads(2)

    def enter():
        torch.set_num_threads(2)
        for _ in range(50):
            values = np.random.default_rng().random(2000)
            out = np.empty_like(values)
            _double(values, out)
            results.append((out == 2 * values).all())

    try:
        threads = [threading.Thread(target=enter) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        torch.set_num_threads(before)
    assert len(results) == 200
    assert all(results)


def test_serial_and_parallel_code_are_cached_separately(tmp_path):
    module = tmp_path / "a_kernel.py"
    module.write_text(
        "import numpy as np, torch, sys\n"
        "from numba import prange\n"
        "from thresher.kernels.compiling import parallel_kernel\n"
        "@parallel_kernel\n"
        "def twice(values):\n"
        "    for i in prange(values.shape[0]):\n"
        "        values[i] *= 2\n"
        "torch.set_num_threads(int(sys.argv[1]))\n"
        "twice(np.ones(10))\n"
        "kernel = twice._serial if sys.argv[1] == '1' else twice._parallel\n"
        "print(sum(kernel.stats.cache_hits.values()))\n"
    )

    def hits(threads):
        done = subprocess.run([sys.executable, module, threads], capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert [hits("1"), hits("2"), hits("1"), hits("2")] == [0, 0, 1, 1]


def test_kernels_accept_only_contiguous_cpu_tensors():
    assert runs_on_kernels(torch.zeros(3), torch.zeros(2, 2, dtype=torch.int32))
    assert not runs_on_kernels(torch.zeros(3, dtype=torch.float64))
    assert not runs_on_kernels(torch.zeros(3, 4).T)
    assert not runs_on_kernels(torch.zeros(3, device="meta"))


@parallel_kernel
def _triple(values, out):
    for i in prange(values.shape[0]):
        out[i] = 3 * values[i]


def test_a_cached_kernel_logs_no_compilation(caplog):
    values = np.arange(8.0)
    _triple.serially(values, np.empty_like(values))
    caplog.clear()  # the first compilation is logged if an earlier test configured logging
    with caplog.at_level("INFO", logger="thresher.kernels.compiling"):
        parallel_kernel(_triple.__wrapped__).serially(values, np.empty_like(values))
    assert "compiling" not in caplog.text


@pytest.mark.parametrize("compiled", [kernel, serial_kernel, exact_kernel, parallel_kernel])
def test_a_kernel_compiles_without_a_writable_cache(monkeypatch, compiled):
    def no_cache(*args, **kwargs):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(CacheImpl, "__init__", no_cache)
    monkeypatch.setattr(FunctionCache, "__init__", no_cache)
    assert compiled(lambda number: number + 1)(2) == 3


def test_only_this_module_compiles():
    """Direct uses of njit would fail without a writable cache."""
    root = Path(thresher.__file__).parent
    others = [path for path in root.rglob("*.py") if path.name != "compiling.py" and "njit" in path.read_text()]
    assert others == []
