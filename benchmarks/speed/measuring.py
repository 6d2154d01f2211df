"""What the speed benchmarks share: equal memory settings, sides that take turns, medians, one result file each.

Not a benchmark itself. `keep_pages()` must be the first thing a script does.
"""

import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"
# Fresh pages cost more than arithmetic: malloc keeps what it has, for all sides alike.
TUNABLES = f"glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold={1 << 40}:glibc.malloc.top_pad={1 << 28}"


def keep_pages() -> None:
    """Start this program anew with a malloc that gives no pages back to the system."""
    if os.environ.get("GLIBC_TUNABLES") != TUNABLES:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "GLIBC_TUNABLES": TUNABLES})


@dataclass
class Side:
    """One way of doing the same thing. `run` does it once; it is timed in turns with the others.

    Attributes:
        runs_per_turn: how often it runs before the next side has its turn.
        extra_seconds: what a run costs besides, where it is done less often than each time.
    """

    run: Callable[[], object]
    runs_per_turn: int = 5
    extra_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)

    def take_turn(self) -> None:
        for _ in range(self.runs_per_turn):
            start = perf_counter()
            self.run()
            self.seconds.append(perf_counter() - start)

    @property
    def median_seconds(self) -> float:
        return median(self.seconds) + self.extra_seconds


def take_turns(sides: Mapping[str, Side], num_rounds: int, *, warm_up: bool = True) -> None:
    """Let every side run in each round; the first round is not counted."""
    for at in range(num_rounds + warm_up):
        for name, side in sides.items():
            side.take_turn()
            if warm_up and at == 0:
                side.seconds.clear()
            print(f"\r\033[Kround {at + 1} of {num_rounds + warm_up}: {name}", end="", file=sys.stderr, flush=True)
    print("\r\033[K", end="", file=sys.stderr)


def report(
    name: str, settings: Mapping[str, Any], sides: Mapping[str, Mapping[str, float]], ratios: Mapping[str, float]
) -> None:
    """Print a table, write `benchmarks/results/<name>.json`, and print the ratios as the last line."""
    columns = list(dict.fromkeys(column for side in sides.values() for column in side))
    width = max(len(side) for side in sides)
    print(f"{'':{width}}" + "".join(f"{column:>22}" for column in columns))
    for side, figures in sides.items():
        print(
            f"{side:{width}}"
            + "".join(f"{figures[column]:22.4f}" if column in figures else " " * 22 for column in columns)
        )
    rounded = {key: round(value, 3) for key, value in ratios.items()}
    facts = {
        "settings": dict(settings),
        "machine": machine(),
        "versions": versions(),
        "sides": sides,
        "ratios": rounded,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(rounded))


def machine() -> dict[str, Any]:
    import torch

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_before": round(os.getloadavg()[0], 2),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", ""),
    }


def versions() -> dict[str, str]:
    names = ("thresher", "torch", "numpy", "numba")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}
