"""Whole rows against entries at equal bytes: FM on MovieLens-1M, both kinds of budgets from one search.

    THRESHER_DATA_DIR=… python benchmarks/row_budgets.py [--embedding-dim 16] [--seeds 0]

A table of few whole rows needs no positions, so a row budget stores more values in the same bytes. `auc_at_equal_bytes`
is the test AUC of the entries, interpolated between their two sizes nearest to the bytes of each row budget. Writes
benchmarks/results/row_budgets.json.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from environment import run_environment
from thresher import DataConfig, OptimizerConfig, RunConfig, TrainingConfig, prune
from thresher._internal.storage.files import read_json, write_json
from thresher.embeddings.pep import PepConfig

RESULT = Path(__file__).parent / "results" / "row_budgets.json"
ENTRIES = ("50%", "30%", "20%", "10%", "5%", "2%")
ROWS = ("50%rows", "20%rows", "10%rows", "5%rows")


def table_of(run: dict[str, Any]) -> str:
    """The table of docs/tickets_and_budgets.md, of one seed."""
    lines = ["| rows kept | bytes | test AUC | entries at equal bytes |", "| --- | ---: | ---: | ---: |"]
    for row in run["rows"]:
        auc, equal = row["test_auc"], row["auc_at_equal_bytes"]
        lines.append(f"| {row['budget'].removesuffix('rows')} | {row['storage_bytes']:,} | {auc:.4f} | {equal:.4f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedding-dim", type=int, default=16)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    optimizer = OptimizerConfig(learning_rate=3e-3)
    training = TrainingConfig(batch_size=8192, max_epochs=15, optimizer=optimizer)
    settings = {"model": "fm", "embedding_dim": arguments.embedding_dim, "batch_size": 8192, "learning_rate": 3e-3}
    runs = []
    for seed in map(int, arguments.seeds.split(",")):
        config = RunConfig(
            data=DataConfig(source="movielens-1m", data_dir=str(Path(os.environ["THRESHER_DATA_DIR"]) / "ml-1m")),
            embedding=PepConfig(embedding_dim=arguments.embedding_dim),
            training=training,
            budgets=(*ENTRIES, *ROWS),
            effort="fast",
            teacher_share=0.0,
            seed=seed,
        )
        with tempfile.TemporaryDirectory() as folder:
            prune(config, out=Path(folder) / "run")
            results = read_json(Path(folder) / "run" / "results.json")
        points = {point["budget"]: point for point in results["points"]}
        entries = sorted((points[budget]["storage_bytes"], points[budget]["test_auc"]) for budget in ENTRIES)
        rows = []
        for budget in ROWS:
            point = points[budget]
            size = point["storage_bytes"]
            equal = float(np.interp(np.log(size), np.log([size for size, _ in entries]), [auc for _, auc in entries]))
            rows.append(
                {key: point[key] for key in ("budget", "num_parameters", "storage_bytes", "test_auc")}
                | {"auc_at_equal_bytes": equal, "difference": point["test_auc"] - equal}
            )
        runs.append(
            {
                "seed": seed,
                "dense": {key: results["dense"][key] for key in ("num_parameters", "storage_bytes", "test_auc")},
                "entries": [
                    {key: points[b][key] for key in ("budget", "num_parameters", "storage_bytes", "test_auc")}
                    for b in ENTRIES
                ],
                "rows": rows,
            }
        )
        write_json(arguments.out, {"settings": settings, "environment": run_environment(), "runs": runs})
    print(json.dumps({row["budget"]: round(row["difference"], 4) for row in runs[-1]["rows"]}))


if __name__ == "__main__":
    main()
