"""AUC at equal bytes of the whole bundle, for the first-order weights of a run's bundles: all, rounded, or few.

python benchmarks/memory/first_order.py RUN [--own 0,1000,10000]

Every choice is measured on the validation split. Rows are printed as a table and as JSON.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from thresher.compact.method_table import StoredEmbedding
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.table import EncodedTable
from thresher.experiment.run.run_folder import Run
from thresher.serving.bundle import open_bundle, save_bundle
from thresher.serving.first_order import FIRST_ORDER, share_first_order_
from thresher.serving.predictor import load_bundle
from thresher.training.metrics import auc


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--own", default="0,1000,3000,10000,30000", help="numbers of first-order weights kept")
    options = parser.parse_args()
    run = Run.open(Path(options.run))
    table = EncodedTable.open(run.encoded)
    encoder, validation = RowEncoder.load(table.folder), table.split("validation")
    choices = ["all fp32", "all int8", "all int4", *(f"{number} int8" for number in options.own.split(","))]
    rows = []
    for source in sorted(path for path in (run.folder / "bundles").iterdir() if path.is_dir()):
        for choice in choices:
            number, value_type = choice.split()
            bundle = open_bundle(source)
            tables = dict(bundle.tables)
            if number != "all":
                counts = table.feature_counts
                tables = share_first_order_(bundle.model, tables, bundle.encoder.schema, counts, int(number))
            rounded = tables[FIRST_ORDER].to_value_type(value_type)
            bundle.model.set_submodule(FIRST_ORDER, StoredEmbedding(bundle.encoder.schema.field_sizes, rounded))
            with tempfile.TemporaryDirectory() as scratch:
                parts = bundle.model, bundle.model_config, encoder
                folder = save_bundle(Path(scratch) / "bundle", *parts, searched=bundle.searched)
                size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
                probabilities = load_bundle(folder).predict_ids(np.array(validation.ids))
            measured = auc(np.array(validation.labels), probabilities)
            rows.append(
                {"budget": source.name, "first_order": choice, "bundle_bytes": size, "validation_auc": measured}
            )
            print(f"{source.name:>8} {choice:>12} {size:>12,} {measured:.4f}", flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
