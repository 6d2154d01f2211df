"""Row updates against dense Adam on MovieLens-1M: the unpruned FM, and tickets of one search at equal budgets.

    python benchmarks/row_updates_movielens.py data/ml-1m [--seeds 3] [--only rows]

Variants differ only in the optimizer of the search and of the unpruned training. Retraining uses dense Adam over the
kept values for all. Differences of test AUC below 0.001 are noise unless the seeds agree.
"""

import argparse
import json
import tempfile
from pathlib import Path
from statistics import fmean, stdev
from time import perf_counter
from typing import Any

import torch

from thresher.data.batches.split_batches import SplitBatches
from thresher.data.config import DataConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.embeddings.base import EmbeddingConfig
from thresher.embeddings.method_registry import build_embedding
from thresher.embeddings.pep import PepConfig
from thresher.embeddings.uniform import UniformConfig
from thresher.experiment.retrain import retrain_ticket, train_model
from thresher.models.fm import Fm, FmConfig
from thresher.search.find_tickets import find_tickets
from thresher.search.schedule import SearchConfig
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig

VARIANTS = {
    "dense": OptimizerConfig(updates="dense"),
    "rows": OptimizerConfig(updates="rows"),
    "rows, second moments per row": OptimizerConfig(updates="rows", second_moment="row"),
}


def run(name: str, folder: Path, data_dir: Path, arguments: argparse.Namespace, seed: int) -> dict[str, float]:
    table = encode(build_source(DataConfig(source="movielens-1m", data_dir=data_dir)), folder / "encoded")
    data = SplitBatches.of(table, 1024, seed=seed)

    def model(config: EmbeddingConfig) -> Fm:
        torch.manual_seed(seed)
        return Fm(build_embedding(table.schema.field_sizes, config), FmConfig())

    found: dict[str, float] = {}
    optimizer, dim = VARIANTS[name], arguments.dim
    if not arguments.only_search:
        trained = train_model(model(UniformConfig(embedding_dim=dim)), data, training(optimizer), seed=seed)
        found["unpruned"] = _auc(trained)
    started = perf_counter()
    search = SearchConfig(warmup_epochs=arguments.warmup, plan_epochs=arguments.plan, optimizer=optimizer)
    tickets = find_tickets(model(PepConfig(embedding_dim=dim)), data, arguments.budgets, search, seed=seed)
    found["search_seconds"] = perf_counter() - started
    for ticket in tickets:
        retrained = retrain_ticket(ticket, model(PepConfig(embedding_dim=dim)), data, training(), seed=seed)
        found[str(ticket.budget)] = _auc(retrained)
    return found


def training(optimizer: OptimizerConfig | None = None) -> TrainingConfig:
    """Return settings without a weight average, which would hide differences between optimizers."""
    return TrainingConfig(average_decay=0.0, optimizer=optimizer or OptimizerConfig(updates="dense"))


def _auc(trained: Any) -> float:
    return float(trained.test.auc)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--warmup", type=float, default=10)
    parser.add_argument("--plan", type=float, default=20)
    parser.add_argument("--budgets", default="50k,25k,6.5k")
    parser.add_argument("--only", help="one variant")
    parser.add_argument("--only-search", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "row_updates_movielens.json")
    arguments = parser.parse_args()
    results: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in VARIANTS:
            if arguments.only in (None, name):
                runs = [run(name, Path(folder), arguments.data_dir, arguments, seed) for seed in range(arguments.seeds)]
                results[name] = {key: [found[key] for found in runs] for key in runs[0]}
                spread = {key: stdev(values) if len(values) > 1 else 0.0 for key, values in results[name].items()}
                cells = (f"{key} {fmean(values):.4f} ± {spread[key]:.4f}" for key, values in results[name].items())
                print(f"{name:35}", *cells, flush=True)
    settings = {key: value for key, value in vars(arguments).items() if not isinstance(value, Path)}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"settings": settings, "test_auc": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
