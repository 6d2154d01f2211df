"""Shuffled batches of 1,024 rows from an encoded table with 39 fields: Thresher against a `DataLoader` over samples.

    python benchmarks/speed/batches.py [--quick] [--rows 5000000] [--repeats 5]

The DataLoader variant does what the authors do: a data set that returns one sample at a time, collated in Python. It
runs over fewer rows; its rate does not depend on them. Every page of the memory map is read once before timing.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import repeat_in_turns, result_path, timed, tune_malloc, write_result
from torch.utils.data import DataLoader, Dataset, Subset

from thresher.data.batches.batches import Batches
from thresher.data.table import EncodedSplit

NUM_FIELDS, NUM_FEATURES, BATCH_SIZE = 39, 1_086_810, 1024


class Samples(Dataset[tuple[Any, Any]]):
    """A data set that returns one row at a time."""

    def __init__(self, split: EncodedSplit) -> None:
        self.ids, self.labels = split.ids, split.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        return np.array(self.ids[row], np.int64), np.float32(self.labels[row])


def make_split(folder: Path, rows: int) -> EncodedSplit:
    generator = np.random.default_rng(0)
    ids = np.lib.format.open_memmap(folder / "ids.npy", "w+", np.int32, (rows, NUM_FIELDS))
    for start in range(0, rows, 1 << 18):
        block = ids[start : start + (1 << 18)]
        block[:] = generator.integers(0, NUM_FEATURES, block.shape, np.int32)
    ids.flush()
    np.save(folder / "labels.npy", (generator.random(rows) < 0.25).astype(np.uint8))
    split = EncodedSplit(
        "train", np.load(folder / "ids.npy", mmap_mode="r"), np.load(folder / "labels.npy", mmap_mode="r")
    )
    int(split.ids.max())  # warm
    return split


def drain(batches: Iterator[Any]) -> int:
    rows = 0
    for batch in batches:
        labels = batch.labels if hasattr(batch, "labels") else batch[1]
        rows += len(labels)
    return rows


def measured(batches: Iterator[Any]) -> dict[str, float]:
    rows, seconds = timed(lambda: drain(batches))
    return {"rows": rows, "seconds": seconds, "rows_per_second": rows / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1,000,000 rows, under two minutes")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--samples", type=int, default=200_000, help="rows of the DataLoader variant")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    out = result_path("batches", arguments.out, quick=arguments.quick)
    rows = 1_000_000 if arguments.quick else arguments.rows
    samples = min(rows, 100_000 if arguments.quick else arguments.samples)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        split = make_split(Path(folder), rows)
        loader = DataLoader(Subset(Samples(split), range(samples)), BATCH_SIZE, shuffle=True)
        whole = Batches(split, BATCH_SIZE, seed=0, window=rows)
        window = Batches(split, BATCH_SIZE, seed=0, window=max(rows // 8, 4096))
        prefetched = Batches(split, BATCH_SIZE, seed=0, window=rows, prefetch=4)
        epochs = iter(range(1_000_000))
        variants = {
            "ours": lambda: measured(whole.epoch(next(epochs))),
            "ours_in_windows": lambda: measured(window.epoch(next(epochs))),
            "ours_prefetched": lambda: measured(prefetched.epoch(next(epochs))),
            "dataloader": lambda: measured(iter(loader)),
        }
        found = repeat_in_turns(variants, arguments.repeats)
    rate = {name: variant["rows_per_second"] for name, variant in found.items()}
    ratios = {
        "ours_over_dataloader": rate["ours"] / rate["dataloader"],
        "windows_over_dataloader": rate["ours_in_windows"] / rate["dataloader"],
        "million_rows_per_second": rate["ours"] / 1e6,
    }
    settings = {"rows": rows, "samples": samples, "fields": NUM_FIELDS, "batch_size": BATCH_SIZE}
    write_result("batches", settings | {"repeats": arguments.repeats}, found, ratios, out)


if __name__ == "__main__":
    tune_malloc()
    main()
