"""The paper's running times at Criteo's shape: base, DartsEmb and PEP under FM, DeepFM and AutoInt, in one run.

    python benchmarks/speed/paper_runtime.py [--quick] [--threads 2] [--out …]

Five sides for each model, made from those of `search_step.py`:

- `base_dense`: a plain table and fused Adam over all of it
- `darts_dense`: DartsEmb with the same width: a step of the weights, then one of the choices on other rows
- `pep_published`: the authors' step, which thresholds, clips, updates and counts the whole table
- `base_rows`, `pep_rows`: ours: a plain table and a whole search, clock included, with row updates

Ratios are to the base of the same kind. An epoch is what 80 % of Criteo's rows take at this batch size.
"""

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from sides import in_subprocess, keep_pages, peak_bytes, result_path, write_result

if __name__ == "__main__":
    os.environ["OMP_WAIT_POLICY"] = "passive"
    keep_pages()

import torch
from search_step import (
    BATCH_SIZE,
    EMBEDDING_DIM,
    NUM_FEATURES,
    NUM_FIELDS,
    Stream,
    Training,
    by_part,
    field_sizes,
    published,
    search,
    unpruned,
)
from turns import print_table, take_turns

from thresher.baselines.bilevel import BilevelController
from thresher.baselines.candidate_sizes import DartsEmbConfig
from thresher.data.batches.batches import Batch
from thresher.data.batches.split_batches import SplitBatches
from thresher.embeddings.method_registry import build_embedding
from thresher.models.model_registry import build_model, model_config
from thresher.search.find_tickets import SearchTask
from thresher.search.schedule import SearchConfig
from thresher.training.optimizers import OptimizerConfig, build_optimizer

MODELS = ("fm", "deepfm", "autoint")
STEPS_PER_EPOCH = -(-int(0.8 * 45_840_617) // BATCH_SIZE)
CANDIDATE_SIZES = (4, 16, EMBEDDING_DIM)  # the widest is the base's table


class Drawn:
    """Some batches of a stream, again and again: what is drawn beforehand is off the clock."""

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
    """The bilevel search's own step."""
    config = DartsEmbConfig(embedding_dim=EMBEDDING_DIM, candidate_sizes=CANDIDATE_SIZES)
    embedding = build_embedding(field_sizes(), config, feature_counts=expected_counts())
    model = build_model(embedding, model_config(model_name))
    weights = build_optimizer(model, OptimizerConfig(updates="dense"))
    choosing = [
        parameter for group in weights.param_groups if group["name"] == "choices" for parameter in group["params"]
    ]
    weights.param_groups = [group for group in weights.param_groups if group["name"] != "choices"]
    rows = Drawn()
    data = SplitBatches(train=rows, validation=rows)
    task = SearchTask(model=model, data=data, budgets=(), config=SearchConfig(), seed=0)
    controller = BilevelController(task, torch.optim.Adam(choosing, lr=1e-3))

    def rest_of_step() -> None:
        weights.step()
        controller.after_step()

    return Training(model, weights, rest_of_step)


def expected_counts() -> list[int]:
    """How often each feature comes in a million rows of the stream."""
    counts: list[int] = []
    for size in field_sizes():
        edges = torch.arange(size + 1, dtype=torch.float64).div_(size).pow_(1 / 6)
        counts += (1e6 * edges.diff()).long().add_(1).tolist()
    return counts


def measure(model_name: str, kind: str, quick: bool) -> dict[str, float]:
    """Seconds a step of every side of one kind under one model."""
    num_rounds, steps_per_turn = (2, 30) if quick else (8, 75)
    if kind == "dense":
        sides = {
            "pep_published": published(model_name).side(1),
            "darts_dense": darts(model_name).side(1 if quick else 2),
            "base_dense": unpruned(OptimizerConfig(updates="dense"), model_name).side(1 if quick else 3),
        }
    else:
        sides = {
            "base_rows": unpruned(OptimizerConfig(updates="rows"), model_name).side(5 if quick else 10),
            "pep_rows": search(num_rounds * steps_per_turn, model_name).side(steps_per_turn),
        }
    take_turns(sides, num_rounds)
    seconds = {name: side.median_seconds for name, side in sides.items()}
    return seconds if kind == "dense" else seconds | {"pep_rows": fmean(by_part(sides["pep_rows"].seconds))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "KIND"), help="measure these sides alone and print them")
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
        for kind in ("dense", "rows"):  # malloc keeps its pages, so what one process took would be lost to the next
            words = ["--one", model_name, kind, "--threads", str(arguments.threads)]
            found = in_subprocess(__file__, *words, *(["--quick"] if arguments.quick else []))
            print(f"{model_name}, {kind}: peak of {found.pop('peak_bytes') / 1e9:.1f} GB", flush=True)
            step |= found
        table |= {
            f"{model_name}, {side}": {"milliseconds": 1e3 * seconds, "epoch_seconds": STEPS_PER_EPOCH * seconds}
            for side, seconds in step.items()
        }
        for side, base in (("darts_dense", "base_dense"), ("pep_published", "base_dense"), ("pep_rows", "base_rows")):
            ratios[f"{side}_over_{base}_{model_name}"] = round(step[side] / step[base], 3)
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
