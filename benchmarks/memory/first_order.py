"""AUC at equal bytes of the whole bundle, for the first-order weights of runs' bundles: all, rounded, or few.

python benchmarks/memory/first_order.py RUN... [--own 0,1000,10000] [--out benchmarks/results/first_order.json]

A run is made by `thresher prune DATA --model fm --effort fast --budgets 5%,2%,1%,0.5%,0.2%,0.1%`. Every choice is
measured on the validation split. Prints, for each run and limit, the highest AUC of each choice whose bundle is within
the limit.
"""

import argparse
import copy
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from environment import run_environment
from thresher._internal.storage.files import write_json
from thresher.compact.method_table import StoredEmbedding
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.table import EncodedTable
from thresher.experiment.run.run_folder import Run
from thresher.serving.bundle import open_bundle, save_bundle
from thresher.serving.first_order import FIRST_ORDER, share_first_order_
from thresher.serving.model_card import loaded_bytes
from thresher.serving.predictor import load_bundle
from thresher.training.metrics import auc

ALL = ("all fp32", "all int8", "all int4")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--own", default="0,300,1000,3000,10000", help="numbers of first-order weights kept")
    parser.add_argument("--out", type=Path, help="file of the results")
    options = parser.parse_args()
    choices = (*ALL, *(f"{number} int8" for number in options.own.split(",")))
    results = {folder.name: measure(Run.open(folder), choices) for folder in options.runs}
    if options.out is not None:
        write_json(options.out, {"runs": results, "made_with": run_environment()})
    for name, rows in results.items():
        print_best(name, rows)


def measure(run: Run, choices: tuple[str, ...]) -> list[dict[str, Any]]:
    table = EncodedTable.open(run.encoded)
    encoder, validation = RowEncoder.load(table.folder), table.split("validation")
    ids, labels, rows = np.array(validation.ids), np.array(validation.labels), []
    for source in sorted(path for path in (run.folder / "bundles").iterdir() if path.is_dir()):
        for choice in choices:
            number, value_type = choice.split()
            bundle = open_bundle(source)
            tables, model = dict(bundle.tables), copy.deepcopy(bundle.model)
            if number != "all":
                tables = share_first_order_(model, tables, table.schema, table.feature_counts, int(number))
            rounded = tables[FIRST_ORDER].to_value_type(value_type)
            model.set_submodule(FIRST_ORDER, StoredEmbedding(table.schema.field_sizes, rounded))
            with tempfile.TemporaryDirectory() as scratch:
                folder = save_bundle(
                    Path(scratch) / "bundle", model, bundle.model_config, encoder, searched=bundle.searched
                )
                size, measured = loaded_bytes(folder), auc(labels, load_bundle(folder).predict_ids(ids))
            rows.append(
                {"budget": source.name, "first_order": choice, "bundle_bytes": size, "validation_auc": measured}
            )
            print(f"{source.name:>8} {choice:>12} {size:>12,} {measured:.4f}", flush=True)
    return rows


def print_best(name: str, rows: list[dict[str, Any]]) -> None:
    """At limits between the smallest and the largest bundle: the best AUC of each way to store first-order weights."""
    sizes = [row["bundle_bytes"] for row in rows]
    print(f"\n| {name}: bundle within | {' | '.join(ALL)} | the largest in int8 |\n| --- |{' ---: |' * (len(ALL) + 1)}")
    for limit in np.geomspace(1.2 * min(sizes), 0.8 * max(sizes), 6):
        cells = []
        for choice in (*ALL, None):
            inside = [
                row for row in rows if row["bundle_bytes"] <= limit and (row["first_order"] == choice or choice is None)
            ]
            if choice is None:
                inside = [row for row in inside if row["first_order"] not in ALL]
            best = max(inside, key=lambda row: row["validation_auc"], default=None)
            own = f" ({best['budget']}, {best['first_order'].split()[0]})" if best else ""
            cells.append("–" if best is None else f"{best['validation_auc']:.4f}{own if choice is None else ''}")
        print(f"| {limit / 1e3:.0f} KB | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
