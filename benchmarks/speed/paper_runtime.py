"""The paper's running times at Criteo's shape: training, DartsEmb and PEP under FM, DeepFM and AutoInt.

    python benchmarks/speed/paper_runtime.py [--quick] [--threads 2] [--out …]

Five variants for each model, built from those of `search_step.py`:

- `base_dense`: a dense table and fused Adam over the whole table
- `darts_dense`: DartsEmb with the same dimension: a step of the weights, then a step of the choices on other rows
- `pep_published`: the authors' step, which thresholds, clips, updates and counts the whole table
- `base_rows`, `pep_rows`: Thresher with row updates: a dense table, and a whole search with its clock

Ratios are to the base of the same kind. An epoch is 80 % of Criteo's rows at this batch size.
"""

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from measure import (
    peak_bytes,
    print_table,
    result_path,
    run_in_subprocess,
    run_in_turns,
    tune_malloc,
    write_result,
)

if __name__ == "__main__":
    os.environ["OMP_WAIT_POLICY"] = "passive"
    tune_malloc()

import torch
from search_step import (
    BATCH_SIZE,
    EMBEDDING_DIM,
    NUM_FEATURES,
    NUM_FIELDS,
    Stream,
    Training,
    field_sizes,
    mean_by_part,
    published,
    search,
    unpruned,
)

from thresher.baselines.bilevel import BilevelSearch
from thresher.baselines.candidate_sizes import DartsEmbConfig
from thresher.data.batches.batches import Batch
from thresher.data.batches.split_batches import SplitBatches
from thresher.embeddings.method_registry import build_embedding
from thresher.models.model_registry import build_model, model_config
from thresher.search.find_tickets import SearchTask
from thresher.search.schedule import SearchConfig
from thresher.training.optimizers import OptimizerConfig

MODELS = ("fm", "deepfm", "autoint")
STEPS_PER_EPOCH = -(-int(0.8 * 45_840_617) // BATCH_SIZE)
CANDIDATE_SIZES = (4, 16, EMBEDDING_DIM)  # the largest is the dimension of the dense table


class RepeatedBatches:
    """Repeats a few batches of a stream, which are drawn before timing."""

    num_rows = BATCH_SIZE << 20

    def __init__(self, num_batches: int = 20) -> None:
        stream, self.batches = Stream(seed=1), []
        for _ in range(num_batches):
            stream.draw()
            self.batches.append(Batch((stream.ids,), stream.labels))

    def __len__(self) -> int:
        return self.num_rows // BATCH_SIZE

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        while True:
            yield from self.batches


def darts(model_name: str) -> Training:
    """The step of the bilevel search."""
    config = DartsEmbConfig(embedding_dim=EMBEDDING_DIM, candidate_sizes=CANDIDATE_SIZES)
    embedding = build_embedding(field_sizes(), config, feature_counts=expected_counts())
    model = build_model(embedding, model_config(model_name))
    rows = RepeatedBatches()
    data = SplitBatches(train=rows, validation=rows)
    settings = SearchConfig(optimizer=OptimizerConfig(updates="dense"))
    search = BilevelSearch(SearchTask(model=model, data=data, budgets=(), config=settings, seed=0))

    def rest_of_step() -> None:
        search.weights_optimizer.step()
        search.after_step()

    return Training(model, search.weights_optimizer, rest_of_step)


def expected_counts() -> list[int]:
    """Return the expected count of each feature in a million rows of the stream."""
    counts: list[int] = []
    for size in field_sizes():
        edges = torch.arange(size + 1, dtype=torch.float64).div_(size).pow_(1 / 6)
        counts += (1e6 * edges.diff()).long().add_(1).tolist()
    return counts


def measure(model_name: str, kind: str, quick: bool) -> dict[str, float]:
    """Return seconds per step of every variant of one kind under one model."""
    num_rounds, steps_per_turn = (2, 30) if quick else (8, 75)
    if kind == "dense":
        variants = {
            "pep_published": published(model_name).variant(1),
            "darts_dense": darts(model_name).variant(1 if quick else 2),
            "base_dense": unpruned(OptimizerConfig(updates="dense"), model_name).variant(1 if quick else 3),
        }
    else:
        variants = {
            "base_rows": unpruned(OptimizerConfig(updates="rows"), model_name).variant(5 if quick else 10),
            "pep_rows": search(num_rounds * steps_per_turn, model_name).variant(steps_per_turn),
        }
    run_in_turns(variants, num_rounds)
    seconds = {name: variant.median_seconds for name, variant in variants.items()}
    return seconds if kind == "dense" else seconds | {"pep_rows": fmean(mean_by_part(variants["pep_rows"].seconds))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "KIND"), help="measure only these variants and print them")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    out = result_path("paper_runtime", arguments.out, quick=arguments.quick)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    if arguments.one is not None:
        print(json.dumps(measure(*arguments.one, arguments.quick) | {"peak_bytes": peak_bytes()}))
        return
    table: dict[str, dict[str, float]] = {}
    ratios: dict[str, float] = {}
    for model_name in MODELS:
        step: dict[str, float] = {}
        for kind in ("dense", "rows"):  # separate processes, because malloc keeps its pages
            options = ["--one", model_name, kind, "--threads", str(arguments.threads)]
            found = run_in_subprocess(__file__, *options, *(["--quick"] if arguments.quick else []))
            print(f"{model_name}, {kind}: peak of {found.pop('peak_bytes') / 1e9:.1f} GB", flush=True)
            step |= found
        table |= {
            f"{model_name}, {variant}": {"milliseconds": 1e3 * seconds, "epoch_seconds": STEPS_PER_EPOCH * seconds}
            for variant, seconds in step.items()
        }
        for variant, base in (
            ("darts_dense", "base_dense"),
            ("pep_published", "base_dense"),
            ("pep_rows", "base_rows"),
        ):
            ratios[f"{variant}_over_{base}_{model_name}"] = round(step[variant] / step[base], 3)
        ratios[f"pep_published_over_pep_rows_{model_name}"] = round(step["pep_published"] / step["pep_rows"], 3)
    settings = {
        "num_features": NUM_FEATURES, "embedding_dim": EMBEDDING_DIM, "batch_size": BATCH_SIZE,
        "num_fields": NUM_FIELDS, "steps_per_epoch": STEPS_PER_EPOCH, "candidate_sizes": list(CANDIDATE_SIZES),
        "threads": arguments.threads, "quick": arguments.quick,
    }  # fmt: skip
    print_table(table)
    write_result("paper_runtime", settings, table, ratios, out)


if __name__ == "__main__":
    main()
