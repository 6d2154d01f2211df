"""A training step of DeepFM and AutoInt that multiplies each distinct vector of a batch once, or at every position.

    python benchmarks/speed/distinct_vectors.py [--quick]

Batches of 1,024 rows in these shapes: the seven small fields of MovieLens-1M with D = 64 and 128; Criteo's 39 fields
with long-tailed ids, where most vectors occur once, so that models use every position anyway and both variants should
be equal; and 39 small fields with D = 32 and Criteo's large network, which just reach the limit and gain least.
Networks as recorded for the data sets; row updates."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MethodType

import torch
from measure import Variant, print_table, result_path, run_in_turns, touch_state, tune_malloc, warm_up, write_result
from search_step import field_sizes
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from thresher.data.table import Bag
from thresher.embeddings.method_registry import build_embedding
from thresher.embeddings.uniform import UniformConfig
from thresher.models.base import CtrModel
from thresher.models.model_registry import build_model, model_config
from thresher.training.optimizers import OptimizerConfig, build_optimizer

BATCH_SIZE = 1024
ONCE, EVERYWHERE = "once", "at every place"


@dataclass(frozen=True)
class Shape:
    """Field sizes, skew of the ids within a field, and the data set whose networks are used."""

    name: str
    dataset: str
    field_sizes: Sequence[int]
    skew: float
    embedding_dim: int

    def draw(self, generator: torch.Generator) -> torch.Tensor:
        sizes = torch.tensor(self.field_sizes)
        uniform = torch.rand(BATCH_SIZE, len(sizes), generator=generator)
        return ((uniform**self.skew * sizes).long() + sizes.cumsum(0) - sizes).int()


SHAPES = (
    Shape("movielens-1m", "movielens-1m", (279, 3, 8, 22, 3440, 82, 302), 2.0, 64),
    Shape("movielens-1m-wide", "movielens-1m", (279, 3, 8, 22, 3440, 82, 302), 2.0, 128),
    Shape("criteo", "criteo", field_sizes(), 6.0, 64),
    Shape("small-fields", "criteo", [250] * 39, 1.5, 32),
)


def every_position(model: CtrModel, ids: torch.Tensor, bags: Sequence[Bag], *blocks: nn.Module | None) -> torch.Tensor:
    return model.vectors(ids, bags)


class Training:
    """A model trained step by step."""

    def __init__(self, shape: Shape, model_name: str, mode: str) -> None:
        embedding = build_embedding(shape.field_sizes, UniformConfig(embedding_dim=shape.embedding_dim))
        self.model = build_model(embedding, model_config(model_name, shape.dataset)).train()
        if mode == EVERYWHERE:
            self.model.distinct_vectors = MethodType(every_position, self.model)  # type: ignore[method-assign]
        self.optimizer = build_optimizer(self.model, OptimizerConfig(updates="rows"))
        self.shape, self.generator = shape, torch.Generator().manual_seed(0)
        self.labels = torch.rand(BATCH_SIZE, generator=self.generator).round()
        self.ids = torch.empty(0)

    def draw(self) -> None:
        self.ids = self.shape.draw(self.generator)

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        binary_cross_entropy_with_logits(self.model(self.ids), self.labels).backward()
        self.optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    out = result_path("distinct_vectors", arguments.out, quick=arguments.quick)
    num_rounds = 4 if arguments.quick else 15
    figures, ratios = {}, {}
    for shape in SHAPES:
        distinct = len(shape.draw(torch.Generator().manual_seed(0)).unique())
        ratios[f"places_over_distinct_{shape.name}"] = round(BATCH_SIZE * len(shape.field_sizes) / distinct, 3)
        for model_name in ("deepfm", "autoint"):
            variants = {}
            for mode in (EVERYWHERE, ONCE):
                training = Training(shape, model_name, mode)
                variant = Variant(training.step, training.draw, runs_per_turn=3)
                warm_up(variant)
                touch_state(training.optimizer)
                variants[f"{shape.name}, {model_name}, {mode}"] = variant
            run_in_turns(variants, num_rounds)
            figures |= {name: {"milliseconds": variant.median_seconds * 1e3} for name, variant in variants.items()}
            everywhere, once = (variant.median_seconds for variant in variants.values())
            ratios[f"everywhere_over_once_{model_name}_{shape.name}"] = round(everywhere / once, 3)
    print_table(figures)
    settings = {
        "batch_size": BATCH_SIZE, "rounds": num_rounds, "threads": torch.get_num_threads(),
    }  # fmt: skip
    write_result("distinct_vectors", settings, figures, ratios, out)


if __name__ == "__main__":
    tune_malloc()
    main()
