"""A whole run at Criteo's size in one pass over the rows: `thresher.prune` with effort `fast` and one dense epoch.

    python benchmarks/criteo_size_prune.py runs/criteo-size-fast [--rows 5000000]

1.09 million features, D = 64, 39 fields. Rows are synthetic: 20 fields determine the label, 19 are noise. A run that is
interrupted is resumed. Reports the cost of each stage, AUC at each size, and peak memory.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch

from criteo_size_search import NUM_FEATURES, NUM_NOISE_FIELDS, NUM_SIGNAL_FIELDS
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.embeddings.pep import PepConfig
from thresher.experiment.config import RunConfig
from thresher.experiment.prune import prune
from thresher.training.fit import TrainingConfig

sys.path.insert(0, str(Path(__file__).parent / "speed"))
from measure import RESULTS, machine, peak_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--budgets", default="1%,200k,50k,10k")
    parser.add_argument("--out", type=Path, default=RESULTS / "criteo_size_prune.json")
    arguments = parser.parse_args()
    rows = SyntheticConfig(
        num_rows=arguments.rows,
        num_signal_fields=NUM_SIGNAL_FIELDS,
        num_noise_fields=NUM_NOISE_FIELDS,
        field_size=NUM_FEATURES // (NUM_SIGNAL_FIELDS + NUM_NOISE_FIELDS),
        zipf=1.05,
    )
    config = RunConfig(
        effort="fast",
        data=DataConfig(source="synthetic", synthetic=rows),
        embedding=PepConfig(embedding_dim=64),
        training=TrainingConfig(max_epochs=1),
        budgets=tuple(arguments.budgets.split(",")),
    )
    result = prune(config, out=arguments.folder, resume=arguments.folder.exists())
    found: dict[str, Any] = {**result.frontier.to_json(), "peak_bytes": peak_bytes()}
    settings = {"rows": arguments.rows, "budgets": arguments.budgets}
    stored = {"name": "criteo_size_prune", "settings": settings, "machine": machine(), **found}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(stored, indent=2) + "\n")
    print(result)
    print(json.dumps({"total_over_dense": found["cost"]["total_over_dense"], "peak_bytes": found["peak_bytes"]}))


if __name__ == "__main__":
    main()
