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


def loaded_after(code: str) -> dict[str, float | list[str]]:
    probe = f"""
import json, sys, time
import numpy, torch
before = set(sys.modules)
start = time.perf_counter()
{code}
seconds = time.perf_counter() - start
print(json.dumps({{"seconds": seconds, "loaded": sorted({{m.split(".")[0] for m in set(sys.modules) - before}})}}))
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_import_is_light():
    result = loaded_after("import thresher")
    assert not set(HEAVY) & set(result["loaded"])
    assert result["seconds"] < 1.0


def test_configs_load_nothing_that_reads_draws_or_serves():
    """Who only attaches PEP to a model of their own needs neither files, nor figures, nor a command line."""
    result = loaded_after("import thresher; thresher.PepConfig(); thresher.UniformConfig()")
    assert not (set(HEAVY) - {"numba"}) & set(result["loaded"])


def test_the_server_loads_neither_torch_nor_what_reads_frames():
    pytest.importorskip("starlette")
    code = "import sys, thresher.server.app; print([n for n in ('torch', 'polars', 'numba') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
