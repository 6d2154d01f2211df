"""Rows a second of one predictor shared by 1 and by 8 threads of a process; with two cores 8 threads can give twice.

    python benchmarks/serving_threads.py [--quick] [--threads 8] [--rounds 5]

Both sides run in turn with torch on one thread. Encoded rows are ids `[n, 39]`; dicts are encoded in Python, which runs
on one thread at a time, so that only the network and the lookups can run beside one another. The CPU milliseconds of
1,000 rows say what threads cost where other programs use the cores. The shape is Criteo's, 1 % of the entries kept.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Barrier, Thread
from typing import Any

import numpy as np
import torch

from served_model import CRITEO_FEATURES, ServedModel, make_model
from speed.measure import QUICK_RESULTS, RESULTS, print_table, write_result
from thresher import load_bundle
from thresher.serving.few_rows import encode_few
from thresher.serving.numpy_predictor import NumpyPredictor

SIZES = {"ids, 1,024 rows": 1024, "ids, 64 rows": 64, "dicts, 64 rows": 64, "dicts, 1 row": 1}


def works(model: ServedModel) -> dict[str, tuple[Callable[[], Any], int]]:
    """Name → one call, and its number of rows."""
    found: dict[str, tuple[Callable[[], Any], int]] = {}
    light = NumpyPredictor.load(model.bundle)
    for name, predictor in (("Predictor", load_bundle(model.bundle)), ("NumpyPredictor", light)):
        for what, size in SIZES.items():
            rows = model.rows(size)
            encoded = encode_few(light._dict_rows, rows, None)
            assert encoded is not None
            if what.startswith("ids"):
                found[f"{name}, {what}"] = (
                    (lambda predictor=predictor, ids=encoded.ids: predictor.predict_ids(ids)),
                    size,
                )
            else:
                found[f"{name}, {what}"] = (lambda predictor=predictor, rows=rows: predictor.predict(rows)), size
    return found


def rows_per_second(work: Callable[[], Any], size: int, threads: int, seconds: float) -> tuple[float, float]:
    """Rows a second of the clock, and CPU milliseconds of 1,000 rows."""
    counts, ready, end = [0] * threads, Barrier(threads + 1), [0.0]

    def run(at: int) -> None:
        ready.wait()
        while time.perf_counter() < end[0]:
            work()
            counts[at] += 1

    workers = [Thread(target=run, args=(at,)) for at in range(threads)]
    for worker in workers:
        worker.start()
    used, started = time.process_time(), time.perf_counter()
    end[0] = started + seconds
    ready.wait()
    for worker in workers:
        worker.join()
    rows = sum(counts) * size
    return rows / (time.perf_counter() - started), 1e6 * (time.process_time() - used) / rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="40,000 features and short turns")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    features, seconds = (40_000, 0.3) if given.quick else (CRITEO_FEATURES, 2.0)
    measured: dict[str, dict[int, list[tuple[float, float]]]] = {}
    with TemporaryDirectory() as folder:
        each = works(make_model(Path(folder), num_features=features))
        for work, _ in each.values():
            work()
        for _ in range(given.rounds):
            for name, (work, size) in each.items():
                for threads in (1, given.threads):
                    found = rows_per_second(work, size, threads, seconds)
                    measured.setdefault(name, {}).setdefault(threads, []).append(found)
    figures, ratios = {}, {}
    for name, turns in measured.items():
        (alone, alone_cpu), (beside, beside_cpu) = (np.median(turns[threads], axis=0) for threads in (1, given.threads))
        figures[name] = {
            "rows_per_second_1_thread": round(alone), f"rows_per_second_{given.threads}_threads": round(beside),
            "cpu_milliseconds_1_thread": alone_cpu, f"cpu_milliseconds_{given.threads}_threads": beside_cpu,
        }  # fmt: skip
        ratios[f"{given.threads} threads over 1: {name}"] = round(
            median(more[0] / one[0] for one, more in zip(turns[1], turns[given.threads], strict=True)), 3
        )
    print_table({name: {key[:18]: value for key, value in row.items()} for name, row in figures.items()})
    settings = {"num_features": features, "threads": given.threads, "rounds": given.rounds, "seconds": seconds}
    write_result(
        "serving_threads",
        settings,
        figures,
        ratios,
        (QUICK_RESULTS if given.quick else RESULTS) / "serving_threads.json",
    )


if __name__ == "__main__":
    main()
