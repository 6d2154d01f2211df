"""Kills and power failures at each file operation of `encode` end as without; a small version of `make crash`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_encoding_survives_kills_and_power_failures_at_each_operation(tmp_path):
    # a process of its own, which has started no thread of polars and so can be forked
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    counts = tmp_path / "counts.json"
    words = ["60", "--task", "encode", "--kills", "4", "--servers", "2", "--no-disk", "--out", str(counts)]
    found = subprocess.run(
        [sys.executable, "-m", "crash.campaign", *words],
        capture_output=True, text=True, timeout=600, check=False, env=environment, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    kinds = json.loads(counts.read_text())["kinds"]
    for kind in ("killed", "empty", "zeros"):
        assert kinds[f"encode: {kind}"]["equal"] > 5
    assert kinds["serve: reloads"] == {"equal": 2}
