"""`import thresher` is light: a fresh process loads none of the heavy packages and needs a moment beyond torch."""

import json
import subprocess
import sys

import pytest

HEAVY = [
    "polars",
    "matplotlib",
    "numba",
    "sklearn",
    "scipy",
    "pandas",
    "onnx",
    "onnxruntime",
    "rich",
    "typer",
    "lightning",
]


def test_import_is_light():
    """Who only attaches PEP to a model of their own needs neither files, nor figures, nor a command line."""
    probe = """
import json, sys, time
import numpy, torch
before = set(sys.modules)
def loaded(): return sorted({m.split(".")[0] for m in set(sys.modules) - before})
start = time.perf_counter()
import thresher
seconds, imported = time.perf_counter() - start, loaded()
thresher.PepConfig(); thresher.UniformConfig()
print(json.dumps({"seconds": seconds, "imported": imported, "configured": loaded()}))
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert not set(HEAVY) & set(result["imported"])
    assert result["seconds"] < 1.0
    assert not (set(HEAVY) - {"numba"}) & set(result["configured"])


def test_the_server_loads_neither_torch_nor_what_reads_frames():
    pytest.importorskip("starlette")
    code = "import sys, thresher.server.app; print([n for n in ('torch', 'polars', 'numba') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
