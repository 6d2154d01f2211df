"""Shared code of the speed and memory benchmarks: interleaved timing, result files, machine information.

Variants of the same work run in turn, so that a change of the machine's load affects all of them.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

BENCHMARKS = Path(__file__).parent.parent
RESULTS = BENCHMARKS / "results"
QUICK_RESULTS = BENCHMARKS / "temporary" / "quick"
"""Not under version control."""
MALLOC_SETTINGS = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000",
    "THP_MEM_ALLOC_ENABLE": "1",  # torch requests huge pages, as under the `thresher` command
}


def tune_malloc() -> None:
    """Restart this program with a malloc that keeps its pages, so that page faults do not disturb the timings."""
    if any(os.environ.get(name) != value for name, value in MALLOC_SETTINGS.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **MALLOC_SETTINGS})


@dataclass
class Variant:
    """One implementation of the same work; `run` does the work once.

    Attributes:
        prepare: called before each run, not timed.
        runs_per_turn: number of runs before the next variant's turn; slow variants run less often.
        extra_seconds: cost per run of work that is not done in every run.
    """

    run: Callable[[], object]
    prepare: Callable[[], object] = lambda: None
    runs_per_turn: int = 5
    extra_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)

    def run_turn(self) -> None:
        for _ in range(self.runs_per_turn):
            self.prepare()
            start = perf_counter()
            self.run()
            self.seconds.append(perf_counter() - start)

    @property
    def median_seconds(self) -> float:
        return median(self.seconds) + self.extra_seconds


def run_in_turns(variants: Mapping[str, Variant], num_rounds: int) -> None:
    """Run every variant in each round. Warm the variants up before."""
    shown = sys.stderr.isatty()
    for at in range(num_rounds):
        for name, variant in variants.items():
            if shown:
                print(f"\r\033[Kround {at + 1} of {num_rounds}: {name}", end="", file=sys.stderr, flush=True)
            variant.run_turn()
    if shown:
        print("\r\033[K", end="", file=sys.stderr)


def warm_up(*variants: Variant, runs: int = 2) -> None:
    """Compile kernels and allocate memory before timing."""
    for variant in variants:
        for _ in range(runs):
            variant.prepare()
            variant.run()


def touch_state(optimizer: Any) -> None:
    """Write to every page of a torch optimizer's state; row updates would meet unused pages for a long time."""
    for state in optimizer.state.values():
        for value in state.values():
            if hasattr(value, "mul_"):
                value.mul_(1)


def repeat_in_turns(
    variants: Mapping[str, Callable[[], dict[str, Any]]], repeats: int, fewer: Mapping[str, int] | None = None
) -> dict[str, dict[str, Any]]:
    """Run functions that return measurements in turn; return the median of every number, and all runs.

    Args:
        fewer: variant → smaller number of repeats, for slow variants.
    """
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
    for number in range(repeats):
        for name, variant in variants.items():
            if number < (fewer or {}).get(name, repeats):
                runs[name].append(variant())
                print(f"  {number + 1}/{repeats} {name}: {runs[name][-1]}", flush=True)
    return {
        name: {key: median(run[key] for run in found) for key in found[0]} | {"runs": found}
        for name, found in runs.items()
    }


def run_in_subprocess(script: str, *arguments: str) -> dict[str, Any]:
    """Run a script that prints one JSON line, in a new process with its own peak memory."""
    done = subprocess.run([sys.executable, script, *arguments], check=True, capture_output=True, text=True)
    content: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return content


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = perf_counter()
    result = work()
    return result, perf_counter() - started


def peak_bytes() -> int:
    """Return the peak resident memory of this process; unlike `ru_maxrss`, without that of its parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def print_table(rows: Mapping[str, Mapping[str, float]]) -> None:
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    width = max(len(name) for name in rows)
    print(" " * width + "".join(f"{column:>18}" for column in columns))
    for name, row in rows.items():
        cells = (f"{row[column]:18.3f}" if column in row else " " * 18 for column in columns)
        print(f"{name:{width}}" + "".join(cells))


def result_path(name: str, out: Path | None, *, quick: bool) -> Path:
    """Return the file a benchmark writes; a quick run does not overwrite the results that are under version control.

    Args:
        out: the file the user asked for; it is always used if given.
    """
    return out or (QUICK_RESULTS if quick else RESULTS) / f"{name}.json"


def write_result(
    name: str, settings: dict[str, Any], variants: dict[str, Any], ratios: dict[str, float], out: Path
) -> None:
    """Write the result file, print its path, and print the ratios as the last line."""
    result = {"name": name, "settings": settings, "machine": machine(), "sides": variants, "ratios": ratios}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"wrote {out}")
    print(json.dumps(ratios))


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    packages = ("thresher-embeddings", "torch", "numpy", "numba", "polars", "pandas")
    return {
        "cpu": models[0] if models else platform.processor(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
        **{name: os.environ.get(name, "") for name in MALLOC_SETTINGS},
        "load": os.getloadavg()[0],
    }
