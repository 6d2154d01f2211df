"""Entering kernels: one thread or several, from one Python thread or many, and what is kept on disk."""

import subprocess
import sys
import threading

import numpy as np
import torch
from numba import prange

from thresher.kernels.parallel import parallel_kernel, runs_on_kernels


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


def test_python_threads_may_enter_at_the_same_time():
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


def test_serial_and_parallel_code_are_kept_apart_on_disk(tmp_path):
    module = tmp_path / "a_kernel.py"
    module.write_text(
        "import numpy as np, torch, sys\n"
        "from numba import prange\n"
        "from thresher.kernels.parallel import parallel_kernel\n"
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


def test_kernels_serve_plain_cpu_tensors_alone():
    assert runs_on_kernels(torch.zeros(3), torch.zeros(2, 2, dtype=torch.int32))
    assert not runs_on_kernels(torch.zeros(3, dtype=torch.float64))
    assert not runs_on_kernels(torch.zeros(3, 4).T)
    assert not runs_on_kernels(torch.zeros(3, device="meta"))


@parallel_kernel
def _triple(values, out):
    for i in prange(values.shape[0]):
        out[i] = 3 * values[i]


def test_a_kernel_that_is_on_disk_is_not_announced_again(caplog):
    values = np.arange(8.0)
    _triple.serially(values, np.empty_like(values))
    caplog.clear()  # of the first time, which is told where an earlier test has the command's log on
    with caplog.at_level("INFO", logger="thresher.kernels.parallel"):
        parallel_kernel(_triple.__wrapped__).serially(values, np.empty_like(values))
    assert "compiling" not in caplog.text
