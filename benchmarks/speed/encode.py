"""Encoding of rows in Criteo's shape, 39 fields: Thresher, pure Python in two passes like the authors, and pandas.

    python benchmarks/speed/encode.py [--quick] [--rows 5000000] [--repeats 3]
    python benchmarks/speed/encode.py --growth 1000000,5000000,45840617     # Thresher only: time and memory over rows

All variants read the same file, keep values seen at least ten times, and must find the same number of features. Each
run is a separate process, so that peak memory is its own; seconds exclude the start of Python. The pure-Python variant
stores plain bytes row by row, which is cheaper than the authors' database."""

import argparse
import json
import math
import shutil
import sys
import tempfile
from array import array
from collections import Counter
from pathlib import Path

from measure import (
    peak_bytes,
    repeat_in_turns,
    result_path,
    run_in_subprocess,
    timed,
    tune_malloc,
    write_result,
)

MIN_COUNT = 10
NUM_INTEGERS, NUM_FIELDS = 13, 39


def thresher_encode(raw: Path, out: Path) -> int:
    from thresher.data.config import DataConfig
    from thresher.data.encode.encode import encode
    from thresher.data.encode.sources import build_source

    config = DataConfig(source="criteo", paths=(str(raw),), vocabulary_from="all", min_count=MIN_COUNT)
    return encode(build_source(config), out / "encoded").schema.num_features


def python(raw: Path, out: Path) -> int:
    """Two passes, row by row; numbers are transformed by the Kaggle winners' rule."""

    def values(line: str) -> list[str]:
        cells = line.rstrip("\n").split("\t")[1:]
        for at in range(NUM_INTEGERS):
            if cells[at]:
                number = int(cells[at])
                cells[at] = str(int(math.log(number) ** 2)) if number > 2 else str(number - 2)
        return cells

    counts: list[Counter[str]] = [Counter() for _ in range(NUM_FIELDS)]
    with raw.open() as lines:
        for line in lines:
            for at, value in enumerate(values(line)):
                counts[at][value] += 1
    ids = [
        {value: number for number, value in enumerate((v for v, c in count.items() if c >= MIN_COUNT), 1)}
        for count in counts
    ]
    with raw.open() as lines, (out / "rows.bin").open("wb") as file:
        for line in lines:
            row = array("I", [int(line[0])])
            row.extend(ids[at].get(value, 0) for at, value in enumerate(values(line)))
            file.write(row.tobytes())
    return sum(len(one) + 1 for one in ids)


def pandas(raw: Path, out: Path) -> int:
    """Two passes over chunks, column by column."""
    import numpy as np
    import pandas as pd

    def chunks():
        integers = dict.fromkeys(range(1, NUM_INTEGERS + 1), "float64")
        texts = dict.fromkeys(range(NUM_INTEGERS + 1, NUM_FIELDS + 1), "str")
        for chunk in pd.read_csv(
            raw, sep="\t", header=None, dtype={0: "int8"} | integers | texts, chunksize=250_000, quoting=3
        ):
            for at in integers:
                numbers = chunk[at]
                logs = np.floor(np.log(numbers.where(numbers > 2, 2.0)) ** 2)
                chunk[at] = logs.where(numbers > 2, numbers - 2)
            yield chunk

    counts: list[pd.Series | None] = [None] * NUM_FIELDS
    for chunk in chunks():
        for at in range(NUM_FIELDS):
            found = chunk[at + 1].value_counts(dropna=False)
            counts[at] = found if counts[at] is None else counts[at].add(found, fill_value=0)
    indexes = []
    for count in counts:
        kept = count[count >= MIN_COUNT].index
        indexes.append(pd.Index(kept))
    with (out / "rows.bin").open("wb") as file:
        for chunk in chunks():
            ids = np.empty((len(chunk), NUM_FIELDS + 1), np.int32)
            ids[:, 0] = chunk[0]
            for at, index in enumerate(indexes):
                ids[:, at + 1] = index.get_indexer(chunk[at + 1]) + 1
            file.write(ids.data)
    return sum(len(index) + 1 for index in indexes)


VARIANTS = {"ours": thresher_encode, "python": python, "pandas": pandas}


def run_variant(name: str, raw: Path) -> None:
    """Run one variant once in this process."""
    if name == "ours":  # compile the kernels before timing
        warm = Path(tempfile.mkdtemp(dir=raw.parent))
        with raw.open() as lines:
            head = [next(lines) for _ in range(2_000)]
        (warm / "head.txt").write_text("".join(head))
        thresher_encode(warm / "head.txt", warm)
        shutil.rmtree(warm)
    out = Path(tempfile.mkdtemp(dir=raw.parent))
    try:
        features, seconds = timed(lambda: VARIANTS[name](raw, out))
    finally:
        shutil.rmtree(out)
    print(json.dumps({"seconds": seconds, "peak_bytes": peak_bytes(), "num_features": features}))


def compare(rows: int, repeats: int, python_repeats: int, out: Path, folder: Path) -> None:
    raw = make_raw(folder, rows)
    variants = {
        name: (lambda name=name: run_in_subprocess(__file__, "--variant", name, "--raw", str(raw))) for name in VARIANTS
    }
    found = repeat_in_turns(variants, repeats, {"python": python_repeats})
    features = {name: variant["num_features"] for name, variant in found.items()}
    assert len(set(features.values())) == 1, f"variants find different numbers of features: {features}"
    for variant in found.values():
        variant["rows_per_second"] = rows / variant["seconds"]
    ratios = {f"{name}_over_ours": found[name]["seconds"] / found["ours"]["seconds"] for name in ("python", "pandas")}
    settings = {"rows": rows, "fields": NUM_FIELDS, "raw_bytes": raw.stat().st_size, "repeats": repeats}
    write_result("encode", settings | {"python_repeats": python_repeats}, found, ratios, out)


def growth(sizes: list[int], out: Path, folder: Path) -> None:
    """Measure Thresher for several numbers of rows: time is linear, memory grows only with the vocabulary."""
    found = {}
    for rows in sizes:
        raw = make_raw(folder, rows)
        variant = run_in_subprocess(__file__, "--variant", "ours", "--raw", str(raw))
        found[str(rows)] = variant | {"rows_per_second": rows / variant["seconds"], "raw_bytes": raw.stat().st_size}
        print(rows, found[str(rows)], flush=True)
        raw.unlink()
    first, last = found[str(sizes[0])], found[str(sizes[-1])]
    ratios = {
        "seconds_per_row_last_over_first": first["rows_per_second"] / last["rows_per_second"],
        "peak_gigabytes_last": last["peak_bytes"] / 1e9,
        "minutes_last": last["seconds"] / 60,
    }
    write_result("encode_growth", {"rows": sizes, "fields": NUM_FIELDS}, found, ratios, out)


def make_raw(folder: Path, rows: int) -> Path:
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from generated_data import write_criteo_like

    _, seconds = timed(lambda: write_criteo_like(folder / f"criteo_{rows}.txt", rows))
    print(f"  {rows:,} rows written in {seconds:.0f} s", flush=True)
    return folder / f"criteo_{rows}.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="300,000 rows, under two minutes")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--python-repeats", type=int, default=1, help="the pure-Python variant takes minutes")
    parser.add_argument("--growth", help="comma-separated numbers of rows; measure Thresher only")
    parser.add_argument("--folder", type=Path, help="folder for the temporary raw file; needs disk space")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--variant", choices=tuple(VARIANTS), help=argparse.SUPPRESS)
    parser.add_argument("--raw", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.variant:
        run_variant(arguments.variant, arguments.raw)
        return
    out = result_path("encode_growth" if arguments.growth else "encode", arguments.out, quick=arguments.quick)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        if arguments.growth:
            sizes = [int(size) for size in arguments.growth.split(",")]
            growth(sizes, out, Path(folder))
        else:
            rows, python_repeats = (300_000, 1) if arguments.quick else (arguments.rows, arguments.python_repeats)
            compare(rows, arguments.repeats, python_repeats, out, Path(folder))


if __name__ == "__main__":
    tune_malloc()
    sys.exit(main())
