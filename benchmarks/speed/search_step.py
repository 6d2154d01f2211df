"""One step of a PEP search at Criteo's table size, compared with the published step and with unpruned training.

    python benchmarks/speed/search_step.py [--quick] [--threads 2]

Seven variants of the same FM on long-tailed batches; a step is forward, backward and optimizer:

- `published`: the authors' step: Eq. 8 on the whole table, and once more for their L2 penalty, which is computed
  although its weight is 0; gradient clipping; `torch.optim.Adam` with defaults; a count that lists all non-zeros
- `published_lean`: the same with Eq. 8 once, fused Adam, and a count without a list
- `dense`: PEP with dense updates: look up, then threshold; fused Adam; a count every 100 steps
- `unpruned_dense`: `nn.Embedding` and fused Adam
- `sparse_adam`: `nn.Embedding(sparse=True)` and torch's SparseAdam
- `unpruned`: Thresher's unpruned table with row updates
- `ours`: a whole search of Thresher, a quarter of it warm-up, clock included. Steps are slowest when pruning starts and
  get faster as rows are pruned. Ratios use the mean over the search, `…_dearest` the slowest twelfth

and `ours` over `unpruned` for DeepFM and AutoInt.
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from measure import Variant, print_table, result_path, run_in_turns, touch_state, tune_malloc, warm_up, write_result

if __name__ == "__main__":
    os.environ["OMP_WAIT_POLICY"] = "passive"  # for all variants: threads must not wait busily
    tune_malloc()

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import binary_cross_entropy_with_logits

from thresher.embeddings.base import FieldEmbedding
from thresher.embeddings.method_registry import build_embedding
from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.embeddings.uniform import UniformConfig, UniformEmbedding
from thresher.models.base import CtrModel
from thresher.models.fm import Fm, FmConfig
from thresher.models.model_registry import build_model, model_config
from thresher.search.searcher import Searcher
from thresher.training.optimizers import OptimizerConfig, build_optimizer

NUM_FEATURES, EMBEDDING_DIM, BATCH_SIZE, NUM_FIELDS = 1_086_810, 64, 1024, 39
SMALLEST_BUDGET = 10_000
STEPS_BETWEEN_COUNTS = 100
# An epoch of Criteo has 36,000 steps: between two updates of the clock the count falls by less than 1 % even if the
# plan takes only a third of an epoch.
CLOCK_STEPS = 100
MAX_GRAD_NORM = 100.0  # the authors' setting
NUM_PARTS = 12  # parts of a search that are reported separately


def field_sizes(num_features: int = NUM_FEATURES) -> list[int]:
    each = num_features // NUM_FIELDS
    return [each] * (NUM_FIELDS - 1) + [num_features - each * (NUM_FIELDS - 1)]


class Stream:
    """Endless batches: long-tailed ids, about 26,000 distinct ids per batch, and labels that depend on some of them."""

    def __init__(self, num_features: int = NUM_FEATURES, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.sizes = torch.tensor(field_sizes(num_features))
        self.offsets = self.sizes.cumsum(0) - self.sizes
        self.effects = torch.randn(num_features, generator=self.generator)
        self.ids, self.labels = torch.empty(0), torch.empty(0)

    def draw(self) -> None:
        uniform = torch.rand(BATCH_SIZE, NUM_FIELDS, generator=self.generator)
        self.ids = ((uniform**6 * self.sizes).long() + self.offsets).int()
        logits = self.effects[self.ids[:, : NUM_FIELDS // 3].long()].sum(1) / 4 - 1
        self.labels = (torch.rand(BATCH_SIZE, generator=self.generator) < torch.sigmoid(logits)).float()


@dataclass
class Training:
    """A model trained step by step; `rest_of_step` follows the backward pass."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    rest_of_step: Callable[[], object] | None = None
    num_features: int = NUM_FEATURES

    def __post_init__(self) -> None:
        self.stream = Stream(self.num_features)

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        binary_cross_entropy_with_logits(self.model(self.stream.ids), self.stream.labels).backward()
        if self.rest_of_step is None:
            self.optimizer.step()
        else:
            self.rest_of_step()

    def variant(self, runs_per_turn: int) -> Variant:
        variant = Variant(self.step, self.stream.draw, runs_per_turn)
        warm_up(variant)
        touch_state(self.optimizer)
        return variant


class WholeTable(FieldEmbedding):
    """The published method: Eq. 8 on the whole table in every step."""

    def __init__(self, table: PepEmbedding) -> None:
        super().__init__(table.field_sizes, table.embedding_dim)
        self.table = table
        self.pruned: Tensor | None = None

    def forward(self, ids: Tensor) -> Tensor:
        self.pruned = self.table.pruned_weight()
        return functional.embedding(ids, self.pruned)

    def num_parameters(self) -> int:
        return self.table.num_parameters()

    def storage_bytes(self) -> int:
        return self.table.storage_bytes()


class SparseTable(UniformEmbedding):
    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.weight, sparse=True)


class WithPenalty(nn.Module):
    """A model with the authors' L2 penalty of weight 0, which needs a second pass."""

    def __init__(self, model: CtrModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.model(ids)
        return logits + 0.0 * self.model.vectors(ids).pow(2).sum() / len(ids)


def published(model_name: str = "fm", *, lean: bool = False) -> Training:
    config = PepConfig(embedding_dim=EMBEDDING_DIM, pressure="decay", raw_threshold_init=-7.0)
    embedding = WholeTable(PepEmbedding(field_sizes(), config))
    plain = build_model(embedding, model_config(model_name))
    model = plain if lean else WithPenalty(plain)
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=1e-5, fused=lean)

    def rest_of_step() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        assert embedding.pruned is not None
        found = embedding.pruned.detach()
        int(torch.count_nonzero(found)) if lean else torch.nonzero(found).size(0)

    return Training(model, optimizer, rest_of_step)


def dense() -> Training:
    embedding = PepEmbedding(field_sizes(), PepConfig(embedding_dim=EMBEDDING_DIM))
    embedding.clock.fill_(-7.0)
    model = Fm(embedding, FmConfig())
    return Training(model, build_optimizer(model, OptimizerConfig(updates="dense")))


def unpruned(config: OptimizerConfig, model_name: str = "fm") -> Training:
    embedding = build_embedding(field_sizes(), UniformConfig(embedding_dim=EMBEDDING_DIM))
    model = build_model(embedding, model_config(model_name))
    return Training(model, build_optimizer(model, config))


def sparse_adam() -> Training:
    table = SparseTable(field_sizes(), UniformConfig(embedding_dim=EMBEDDING_DIM))
    model = Fm(table, FmConfig())
    linear = model.linear_term
    linear.weights.sparse = True
    optimizer = torch.optim.SparseAdam([table.weight, *linear.weights.parameters()])
    for_bias = torch.optim.Adam([linear.bias], fused=True)

    def rest_of_step() -> None:
        optimizer.step()
        for_bias.step()
        for_bias.zero_grad()

    return Training(model, optimizer, rest_of_step)


def search(num_steps: int, model_name: str = "fm", num_features: int = NUM_FEATURES) -> Training:
    """A search of `num_steps` steps, a quarter of them warm-up; the ticket would be cut after the last step."""
    embedding = build_embedding(field_sizes(num_features), PepConfig(embedding_dim=EMBEDDING_DIM))
    model = build_model(embedding, model_config(model_name))
    optimizer = build_optimizer(model, OptimizerConfig(updates="rows"))
    steps = num_steps + 3  # two steps are not timed
    searcher = Searcher(model, [SMALLEST_BUDGET], steps=steps, warmup_steps=num_steps // 4, every=CLOCK_STEPS)

    def rest_of_step() -> None:
        optimizer.step()
        searcher.step()

    compile_search_kernels()
    return Training(model, optimizer, rest_of_step, num_features)


def compile_search_kernels() -> None:
    """Compile the kernels of a search on a small table before timing."""
    embedding = PepEmbedding([20_000] * NUM_FIELDS, PepConfig(embedding_dim=EMBEDDING_DIM))
    small = Fm(embedding, FmConfig())
    optimizer = build_optimizer(small, OptimizerConfig(updates="rows"))
    training = Training(small, optimizer, num_features=embedding.num_features)
    for clock in (-torch.inf, -6.0, -5.0, 3.0, 3.0):
        embedding.clock.fill_(clock)
        training.stream.draw()
        training.step()
        embedding.score_histogram().counts()


def mean_by_part(seconds: list[float]) -> list[float]:
    """Return the mean step of each part of a search; not the median, because updates of the clock count."""
    size = len(seconds) // NUM_PARTS
    return [mean_without_outliers(seconds[at * size : (at + 1) * size]) for at in range(NUM_PARTS)]


def mean_without_outliers(seconds: list[float]) -> float:
    """Return the mean of all steps, where a step counts at most ten times the median; clock updates never exceed it."""
    limit = 10 * median(seconds)
    return fmean(min(second, limit) for second in seconds)


def compare_with_all(quick: bool) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    num_rounds, steps_per_turn = (6, 100) if quick else (12, 200)
    dense_training = dense()
    variants = {
        "published": published().variant(1),
        "published_lean": published(lean=True).variant(1),
        "dense": dense_training.variant(2),
        "unpruned_dense": unpruned(OptimizerConfig(updates="dense")).variant(3),
        "sparse_adam": sparse_adam().variant(5),
        "unpruned": unpruned(OptimizerConfig(updates="rows")).variant(20),
        "ours": search(num_rounds * steps_per_turn).variant(steps_per_turn),
    }
    counting = Variant(dense_training.model.num_parameters, runs_per_turn=3)
    counting.run_turn()
    variants["dense"].extra_seconds = counting.median_seconds / STEPS_BETWEEN_COUNTS
    run_in_turns(variants, num_rounds)

    step = {name: variant.median_seconds for name, variant in variants.items()}
    parts = mean_by_part(variants["ours"].seconds)
    step["ours"], dearest = fmean(parts), max(parts)
    table = {name: {"milliseconds": 1e3 * seconds} for name, seconds in step.items()}
    table |= {f"ours, part {at}": {"milliseconds": 1e3 * seconds} for at, seconds in enumerate(parts, 1)}
    others = ("published", "published_lean", "dense", "unpruned_dense", "sparse_adam")
    ratios = {f"{name}_over_ours": step[name] / step["ours"] for name in others}
    ratios["ours_over_unpruned"] = step["ours"] / step["unpruned"]
    ratios |= {f"{name}_over_ours_dearest": step[name] / dearest for name in others}
    ratios["ours_dearest_over_unpruned"] = dearest / step["unpruned"]
    return table, ratios


def compare_under(model_name: str, quick: bool) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    num_rounds, steps_per_turn = (3, 40) if quick else (8, 75)
    variants = {
        "unpruned": unpruned(OptimizerConfig(updates="rows"), model_name).variant(10),
        "ours": search(num_rounds * steps_per_turn, model_name).variant(steps_per_turn),
    }
    run_in_turns(variants, num_rounds)
    ours, plain = fmean(mean_by_part(variants["ours"].seconds)), variants["unpruned"].median_seconds
    table = {
        f"unpruned, {model_name}": {"milliseconds": 1e3 * plain},
        f"ours, {model_name}": {"milliseconds": 1e3 * ours},
    }
    return table, {f"ours_over_unpruned_{model_name}": ours / plain}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under two minutes")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    out = result_path("search_step", arguments.out, quick=arguments.quick)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    table, ratios = compare_with_all(arguments.quick)
    for model_name in ("deepfm", "autoint"):
        more, more_ratios = compare_under(model_name, arguments.quick)
        table, ratios = table | more, ratios | more_ratios
    settings = {
        "num_features": NUM_FEATURES, "embedding_dim": EMBEDDING_DIM, "batch_size": BATCH_SIZE,
        "num_fields": NUM_FIELDS, "granularity": "feature-dimension", "smallest_budget": SMALLEST_BUDGET,
        "clock_steps": CLOCK_STEPS, "threads": arguments.threads, "quick": arguments.quick,
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", ""),
    }  # fmt: skip
    print_table(table)
    write_result("search_step", settings, table, {name: round(ratio, 3) for name, ratio in ratios.items()}, out)


if __name__ == "__main__":
    main()
