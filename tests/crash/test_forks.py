"""A predictor and a server loaded before `fork` answer in the children; a small version of `python -m crash.forks`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_of_a_used_predictor_answer():
    # a process of its own, whose threads are those of one user of the library
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run(
        [sys.executable, "-m", "crash.forks", "4"],
        capture_output=True, text=True, timeout=300, check=False, env=environment, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.split() == ["4", "answered"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_of_a_process_that_only_imported_polars_can_use_it():
    program = (
        "import os, polars, thresher._internal.forked as forked\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    forked.check_polars('this')\n"
        "    os._exit(polars.LazyFrame({'a': [3, 4]}).filter(polars.col('a') > 3).collect().height)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert found.stdout.strip() == "1", found.stderr
