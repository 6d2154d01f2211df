"""Sides of a speed comparison: run in turn, medians taken, settings and machine written beside the ratios."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

BENCHMARKS = Path(__file__).parent.parent
RESULTS = BENCHMARKS / "results"
QUICK_RESULTS = BENCHMARKS / "temporary" / "quick"
"""Not under version control."""
MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000",
    "THP_MEM_ALLOC_ENABLE": "1",  # torch asks for huge pages, as it does under the `thresher` command
}


def keep_pages() -> None:
    """Start this program again with a malloc that keeps its pages: page faults would hide what is measured."""
    if any(os.environ.get(name) != value for name, value in MEMORY.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **MEMORY})


def interleave(
    sides: Mapping[str, Callable[[], dict[str, Any]]], repeats: int, fewer: Mapping[str, int] | None = None
) -> dict[str, dict[str, Any]]:
    """Run all sides in turn, `repeats` times; the median of every number a side returns, and all its runs.

    `fewer` names sides too slow to be run as often as the others.
    """
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for number in range(repeats):
        for name, side in sides.items():
            if number < (fewer or {}).get(name, repeats):
                runs[name].append(side())
                print(f"  {number + 1}/{repeats} {name}: {runs[name][-1]}", flush=True)
    return {
        name: {key: median(run[key] for run in found) for key in found[0]} | {"runs": found}
        for name, found in runs.items()
    }


def in_subprocess(script: str, *arguments: str) -> dict[str, Any]:
    """Run a side as a process of its own, which prints one JSON line; its peak memory is then its own."""
    done = subprocess.run([sys.executable, script, *arguments], check=True, capture_output=True, text=True)
    content: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return content


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = perf_counter()
    result = work()
    return result, perf_counter() - started


def peak_bytes() -> int:
    """Peak resident memory of this program (not of the one that started it, as `ru_maxrss` may say)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def result_path(name: str, out: Path | None, *, quick: bool) -> Path:
    """Return the file a benchmark writes; a quick run does not overwrite the results that are under version control.

    Args:
        out: the file the user asked for; it is always used if given.
    """
    return out or (QUICK_RESULTS if quick else RESULTS) / f"{name}.json"


def write_result(
    name: str, settings: dict[str, Any], sides: dict[str, Any], ratios: dict[str, float], out: Path
) -> None:
    """Write the result file, tell where it is, and print the ratios as the last line."""
    result = {"name": name, "settings": settings, "machine": machine(), "sides": sides, "ratios": ratios}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"wrote {out}")
    print(json.dumps(ratios))


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    packages = ("thresher", "torch", "numpy", "numba", "polars", "pandas")
    return {
        "cpu": models[0] if models else platform.processor(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
        **{name: os.environ.get(name, "") for name in MEMORY},
        "load": os.getloadavg()[0],
    }
