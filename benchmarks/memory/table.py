"""Bytes of a pruned table on disk and in memory: compact tables in each value type against other formats.

    python benchmarks/memory/table.py [--quick] [--densities 0.5 0.2 0.05 0.01 0.001] [--repeats 3]

Resident memory is the proportional set size of a new process that loads the table and looks up every row once, minus
that of the same process without a table. Shared libraries are excluded; memory-mapped pages count once they are read.
The lower bound is the bytes of the values plus the entropy of an independent mask of that density. `1,067 kept` is the
paper's smallest ticket.
"""

import argparse
import ctypes
import gc
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "speed"))
from measure import print_table, result_path, write_result
from table_formats import FORMATS, Entries, disk_bytes, random_entries

NUM_FEATURES, EMBEDDING_DIM, BATCH = 1_086_810, 64, 1024 * 39
SMALLEST = 1067


def resident_bytes() -> int:
    """Return the proportional set size without shared libraries, which depend on other processes."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # freed memory must not count
    total, counted = 0, True
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if re.match(r"[0-9a-f]+-[0-9a-f]+$", words[0]):
            counted = not (len(words) > 5 and re.search(r"\.so[.0-9]*$|/bin/", words[5]))
        elif words[0] == "Pss:" and counted:
            total += int(words[1]) * 1024
    return total


def child(variant: str, folder: Path, num_features: int) -> dict[str, float]:
    """Load the table and look up every row, or do the same without a table (`none`) as a baseline."""
    import torch

    from thresher.compact.table import CompactTable

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tiny:  # load kernel and reader
        CompactTable.from_mask(np.ones((2, 2), bool), np.ones((2, 2))).save(f"{tiny}/table.safetensors")
        CompactTable.load(f"{tiny}/table.safetensors").lookup(np.arange(2))
    started = perf_counter()
    table = None if variant == "none" else FORMATS[variant](folder)
    load_seconds = perf_counter() - started
    vectors = torch.zeros(BATCH, EMBEDDING_DIM)
    lookups = 0
    started = perf_counter()
    for first in range(0, num_features, BATCH):
        ids = torch.arange(first, min(first + BATCH, num_features))
        if table is not None:
            vectors = table.look_up(ids)
        lookups += len(ids)
    seconds = perf_counter() - started
    del vectors, ids
    return {"resident": resident_bytes(), "load_seconds": load_seconds, "lookups_per_second": lookups / seconds}


def run_child(variant: str, folder: Path, num_features: int, repeats: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", variant, "--folder", str(folder), "--rows", str(num_features)]
    runs = []
    for _ in range(repeats):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: median(run[key] for run in runs) for key in runs[0]}


def bound_bytes(entries: Entries, value_bytes: int) -> float:
    """Return the bytes of the values plus the entropy of an independent mask."""
    shape, positions, _ = entries
    cells = shape[0] * shape[1]
    share = len(positions) / cells
    bits = -(share * np.log2(share) + (1 - share) * np.log2(1 - share))
    return float(value_bytes * len(positions) + cells * bits / 8)


def measure(names: Sequence[str], entries: Entries, repeats: int, where: Path | None) -> dict[str, dict[str, float]]:
    (num_features, _), _, _ = entries
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=where) as folder:
        without = run_child("none", Path(folder), num_features, repeats)["resident"]
        for name in names:
            target = Path(folder) / name.replace(" ", "-")
            target.mkdir()
            FORMATS[name].save(entries, target)
            measured = run_child(name, target, num_features, repeats)
            figures[name] = {
                "disk_bytes": disk_bytes(target),
                "resident_bytes": measured["resident"] - without,
                "load_seconds": measured["load_seconds"],
                "lookups_per_second": measured["lookups_per_second"],
            }
            print(f"  {name}: {figures[name]}", file=sys.stderr, flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 %% density, dense and compact only, under two minutes")
    parser.add_argument("--densities", type=float, nargs="+", default=[0.5, 0.2, 0.05, 0.01, 0.001])
    parser.add_argument("--rows", type=int, default=NUM_FEATURES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="folder for the tables; default: a temporary folder")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    out = result_path("memory", arguments.out, quick=arguments.quick)
    if arguments.child:
        print(json.dumps(child(arguments.child, arguments.folder, arguments.rows)))
        return
    densities = [0.01] if arguments.quick else sorted({*arguments.densities, 0.01}, reverse=True)
    names = [name for name in FORMATS if not arguments.quick or name in ("dense fp32", "compact fp32", "compact fp16")]
    dense_bytes = 4 * arguments.rows * EMBEDDING_DIM
    figures: dict[str, dict[str, float]] = {}
    ratios: dict[str, float] = {}
    for density in densities:
        entries = random_entries(arguments.rows, EMBEDDING_DIM, density)
        measured = measure(names, entries, arguments.repeats, arguments.folder)
        figures |= {f"{density:.1%} kept, {name}": variant for name, variant in measured.items()}
        compact = measured["compact fp32"]
        ratios[f"times_bound_at_{density:g}"] = compact["disk_bytes"] / bound_bytes(entries, 4)
        if density == 0.01:
            for kind in ("fp32", "fp16"):
                variant = measured[f"compact {kind}"]
                ratios[f"share_of_dense_on_disk_{kind}"] = variant["disk_bytes"] / dense_bytes
                ratios[f"share_of_dense_resident_{kind}"] = variant["resident_bytes"] / dense_bytes
            ratios["compact_load_seconds"] = compact["load_seconds"]
    generator = np.random.default_rng(0)
    positions = np.sort(generator.choice(arguments.rows * EMBEDDING_DIM, SMALLEST, replace=False))
    values = generator.standard_normal(SMALLEST).astype(np.float32)
    entries = (arguments.rows, EMBEDDING_DIM), positions, values
    smallest = measure(["compact fp32"], entries, arguments.repeats, arguments.folder)["compact fp32"]
    figures[f"{SMALLEST:,} kept, compact fp32"] = smallest
    ratios["smallest_ticket_megabytes"] = smallest["disk_bytes"] / 1e6
    print_table(figures)
    settings: dict[str, Any] = {
        "num_features": arguments.rows,
        "embedding_dim": EMBEDDING_DIM,
        "repeats": arguments.repeats,
        "quick": arguments.quick,
    }
    write_result("memory", settings, figures, {name: round(ratio, 4) for name, ratio in ratios.items()}, out)


if __name__ == "__main__":
    main()
