"""One search at Criteo's size on an ordinary machine: 1.09 million features, D = 64, 39 fields, several budgets.

    python benchmarks/criteo_size_search.py runs/criteo-size [--rows 5000000] [--threads 2] [--retrain]

Rows are synthetic: 20 fields determine the label, 19 are noise. The script encodes the rows (or reopens them), searches
once for all budgets, and reports the share of each ticket in noise fields, the time and the peak memory.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch

import torch

from thresher.data.batches.split_batches import SplitBatches
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.embeddings.method_registry import build_embedding
from thresher.embeddings.pep import PepConfig
from thresher.experiment.retrain import retrain_ticket
from thresher.models.fm import Fm, FmConfig
from thresher.search.find_tickets import find_tickets
from thresher.search.schedule import SearchConfig
from thresher.search.ticket import MaskTicket
from thresher.training.optimizers import OptimizerConfig

sys.path.insert(0, str(Path(__file__).parent / "speed"))
from measure import RESULTS, machine, peak_bytes

NUM_SIGNAL_FIELDS, NUM_NOISE_FIELDS, NUM_FEATURES = 20, 19, 1_086_810


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--features", type=int, default=NUM_FEATURES)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--budgets", default="1%,200k,50k,10k")
    parser.add_argument("--warmup", type=float, default=1.0, help="epochs")
    parser.add_argument("--plan", type=float, default=1.0, help="epochs")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--retrain", action="store_true", help="and retrain every ticket")
    parser.add_argument("--out", type=Path, default=RESULTS / "criteo_size_search.json")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    started = perf_counter()
    rows = SyntheticConfig(
        num_rows=arguments.rows,
        num_signal_fields=NUM_SIGNAL_FIELDS,
        num_noise_fields=NUM_NOISE_FIELDS,
        field_size=arguments.features // (NUM_SIGNAL_FIELDS + NUM_NOISE_FIELDS),
        zipf=1.05,
    )
    source = build_source(DataConfig(source="synthetic", synthetic=rows))
    table = encode(source, arguments.folder / "encoded")
    found: dict[str, Any] = {"encode_seconds": perf_counter() - started, "num_features": table.schema.num_features}
    print(f"encoded: {table.schema.num_features:,} features, {found['encode_seconds']:.0f} s", flush=True)

    data = SplitBatches.of(table, 1024, seed=0)

    def model() -> Fm:
        torch.manual_seed(0)
        return Fm(build_embedding(table.schema.field_sizes, PepConfig(embedding_dim=arguments.dim)), FmConfig())

    started = perf_counter()
    config = SearchConfig(
        warmup_epochs=arguments.warmup, plan_epochs=arguments.plan, optimizer=OptimizerConfig(updates="rows")
    )
    tickets = find_tickets(model(), data, arguments.budgets, config, folder=arguments.folder / "search")
    num_steps = round((arguments.warmup + arguments.plan) * len(data.train))
    found |= {"search_seconds": perf_counter() - started, "search_steps": num_steps, "peak_bytes": peak_bytes()}
    print(
        f"searched: {num_steps:,} steps in {found['search_seconds']:.0f} s, peak {peak_bytes() / 1e9:.1f} GB",
        flush=True,
    )

    def write() -> None:
        settings = {key: value for key, value in vars(arguments).items() if not isinstance(value, Path)}
        result = {"name": "criteo_size_search", "settings": settings, "machine": machine(), **found}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")

    signal = torch.tensor([name in source.signal_fields for name in table.schema.field_names])  # type: ignore[attr-defined]
    found["tickets"] = {}
    for ticket in tickets:
        assert isinstance(ticket, MaskTicket)
        sizes = next(iter(ticket.sizes().values()))
        kept = torch.stack([part.sum() for part in torch.split(sizes, list(table.schema.field_sizes))])
        found["tickets"][str(ticket.budget)] = {
            "num_parameters": ticket.num_parameters,
            "noise_share": float(kept[~signal].sum() / kept.sum()),
            "rows_kept": int((sizes > 0).sum()),
        }
        print(f"{ticket.budget}: {found['tickets'][str(ticket.budget)]}", flush=True)
    write()
    for ticket in reversed(tickets if arguments.retrain else []):  # the smallest first
        trained = retrain_ticket(ticket, model(), data)
        assert trained.test is not None
        aucs = {"validation_auc": trained.fit.validation.auc, "test_auc": trained.test.auc}
        found["tickets"][str(ticket.budget)] |= aucs
        print(f"{ticket.budget}: {aucs}", flush=True)
        write()


if __name__ == "__main__":
    main()
