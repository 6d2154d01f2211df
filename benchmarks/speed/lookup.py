"""Lookup of 1,024 × 39 ids: compact tables in each value type against `nn.Embedding` and other table formats.

    python benchmarks/speed/lookup.py [--quick] [--densities 0.5 0.2 0.05 0.01 0.001] [--rounds 20]

Ids are random over the whole table and every lookup allocates a new output tensor. The named ratios are those at 1 %
density. Without --quick also: every density, batches of 1, 100 and 10⁵ ids, and tables of 10⁵, 10⁶ and 10⁷ rows, where
time should depend on the batch and not on the table.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path

import torch
from measure import Variant, print_table, result_path, run_in_turns, tune_malloc, warm_up, write_result
from table_formats import FORMATS, TableFormat, disk_bytes, random_entries
from torch import Tensor

NUM_FEATURES, EMBEDDING_DIM, BATCH_SIZE, NUM_FIELDS = 1_086_810, 64, 1024, 39


def measure(
    names: Sequence[str], num_features: int, density: float, batch: int, rounds: int, folder: Path
) -> dict[str, dict[str, float]]:
    """Return median milliseconds, lookups per second and bytes on disk of each format; check first that they agree."""
    entries = random_entries(num_features, EMBEDDING_DIM, density)
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randint(num_features, (batch,), generator=generator) for _ in range(8)]
    tables: dict[str, TableFormat] = {}
    sizes = {}
    for name in names:
        target = folder / name.replace(" ", "-")
        target.mkdir()
        FORMATS[name].save(entries, target)
        tables[name], sizes[name] = FORMATS[name](target), disk_bytes(target)
    _check(tables, batches[0])
    runs_per_turn = max(5, min(50, 40_000 // batch))
    variants = {name: Variant(_run(table, batches), runs_per_turn=runs_per_turn) for name, table in tables.items()}
    warm_up(*variants.values())
    run_in_turns(variants, rounds)
    return {
        name: {
            "milliseconds": variant.median_seconds * 1e3,
            "lookups_per_second": batch / variant.median_seconds,
            "disk_bytes": float(sizes[name]),
        }
        for name, variant in variants.items()
    }


def _run(table: TableFormat, batches: Sequence[Tensor]) -> Callable[[], Tensor]:
    endless = cycle(batches)
    return lambda: table.look_up(next(endless))


def _check(tables: Mapping[str, TableFormat], ids: Tensor) -> None:
    expected = tables["compact fp32"].look_up(ids)
    for name, table in tables.items():
        tolerance = 2.0 if "int4" in name else 0.1 if name != "compact fp32" else 0
        torch.testing.assert_close(table.look_up(ids), expected, rtol=0, atol=tolerance, msg=f"{name} differs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 %% density only, under two minutes")
    parser.add_argument("--densities", type=float, nargs="+", default=[0.5, 0.2, 0.05, 0.01, 0.001])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=NUM_FEATURES)
    parser.add_argument("--folder", type=Path, help="folder for the tables; default: a temporary folder")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    out = result_path("lookup", arguments.out, quick=arguments.quick)
    densities = [0.01] if arguments.quick else sorted({*arguments.densities, 0.01}, reverse=True)
    batch = BATCH_SIZE * NUM_FIELDS
    figures: dict[str, dict[str, float]] = {}

    def run(label: str, names: Sequence[str], rows: int, density: float, ids: int) -> dict[str, dict[str, float]]:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            measured = measure(names, rows, density, ids, arguments.rounds, Path(folder))
        figures.update({f"{label}, {name}": variant for name, variant in measured.items()})
        return measured

    at_one_percent: dict[str, dict[str, float]] = {}
    for density in densities:
        measured = run(f"{density:.1%} kept", list(FORMATS), arguments.rows, density, batch)
        at_one_percent = measured if density == 0.01 else at_one_percent
    if not arguments.quick:
        pair = ["dense fp32", "compact fp32"]
        for ids in (1, 100, 100_000):
            run(f"1.0% kept, {ids} ids", pair, arguments.rows, 0.01, ids)
        for rows in (10**5, 10**6, 10**7):
            run(f"1.0% kept, {rows:.0e} rows", ["compact fp32"], rows, 0.01, batch)

    dense, compact = at_one_percent["dense fp32"], at_one_percent["compact fp32"]
    ratios = {
        "dense_over_compact_time": dense["milliseconds"] / compact["milliseconds"],
        "compact_share_of_dense_bytes": compact["disk_bytes"] / dense["disk_bytes"],
    }
    for name in ("fp16", "int8", "int4"):
        variant = at_one_percent[f"compact {name}"]
        ratios[f"dense_over_compact_time_{name}"] = dense["milliseconds"] / variant["milliseconds"]
        ratios[f"compact_share_of_dense_bytes_{name}"] = variant["disk_bytes"] / dense["disk_bytes"]
    settings = {
        "num_features": arguments.rows,
        "embedding_dim": EMBEDDING_DIM,
        "ids": f"{BATCH_SIZE} × {NUM_FIELDS}, at random",
        "rounds": arguments.rounds,
        "quick": arguments.quick,
    }
    print_table(figures)
    ratios = {name: round(ratio, 4) for name, ratio in ratios.items()}
    write_result("lookup", settings, figures, ratios, out)


if __name__ == "__main__":
    tune_malloc()
    main()
