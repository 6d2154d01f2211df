"""Freed memory stays with the process, unless the user has set the allocator."""

import os
import subprocess
import sys

import pytest

# frees 16 arrays of 3 MB several times; prints the page faults of the last rounds
PROGRAM = """
import resource
import numpy as np
from thresher._internal.allocator import keep_freed_memory

kept = {call}
def round_trip():
    arrays = [np.ones(3 << 17) for _ in range(16)]
round_trip(), round_trip()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
round_trip(), round_trip()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(call: str, **variables: str) -> tuple[str, int]:
    program = PROGRAM.format(call=call)
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    kept, faults = done.stdout.split()
    return kept, int(faults)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
@pytest.mark.skipif("GLIBC_TUNABLES" in os.environ, reason="the allocator is set by GLIBC_TUNABLES")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    _, faults_before = run("None")
    kept, faults = run("keep_freed_memory()")
    assert kept == "True"
    assert faults < faults_before / 10


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_settings_of_the_user_stay() -> None:
    assert run("keep_freed_memory()", MALLOC_TOP_PAD_="65536")[0] == "False"
