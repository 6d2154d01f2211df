"""Accuracy of row updates: RowAdam against dense Adam on long-tailed data, for several caps and kinds of moments.

    python benchmarks/row_updates.py [--steps 3000] [--seeds 3] [--out benchmarks/results/row_updates_long_tail.json]

Ids follow Zipf's law over `N` features; most features occur once in thousands of steps. Labels follow a planted
factorization machine. Each variant trains an FM for one pass and is evaluated on new rows: all of them, and those with
a feature seen at most ten times. Differences within two standard errors are noise."""

import argparse
import json
import math
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from time import perf_counter

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from thresher.embeddings.base import RowGradients
from thresher.embeddings.uniform import UniformConfig, UniformEmbedding
from thresher.models.fm import Fm, FmConfig
from thresher.training.metrics import auc
from thresher.training.row_adam import RowAdam

RESULTS = Path(__file__).parent / "results"
BATCH_SIZE, NUM_FIELDS = 1024, 8
RARE_COUNT = 10


class LazyMoments(torch.optim.Optimizer):
    """An alternative to `RowAdam`: the moments of absent rows do not change, as in torch's SparseAdam.

    Bias is corrected by the optimizer's steps, or by how often a row was updated (`by_touches`).
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float,
        weight_decay: float,
        max_decay_steps: int,
        *,
        by_touches: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "max_decay_steps": max_decay_steps})
        self.steps, self.by_touches = 0, by_touches

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.steps += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad.coalesce() if parameter.grad.is_sparse else parameter.grad.to_sparse(1)
                rows, values = gradient.indices()[0], gradient.values().view(gradient._nnz(), -1)
                state = self.state[parameter]
                if not state:
                    state |= {name: torch.zeros_like(parameter).view(len(parameter), -1) for name in ("m", "q")}
                    state |= {name: torch.zeros(len(parameter), 1) for name in ("touches", "at")}
                table, gap = parameter.view(len(parameter), -1), self.steps - state["at"][rows]
                values = values + group["weight_decay"] * gap.clamp(max=group["max_decay_steps"]) * table[rows]
                touches = state["touches"][rows] + 1
                m, q = 0.9 * state["m"][rows] + 0.1 * values, 0.999 * state["q"][rows] + 0.001 * values.square()
                times = touches if self.by_touches else self.steps
                root = (q / (1 - 0.999**times)).sqrt() + 1e-8
                table[rows] -= group["lr"] * m / (1 - 0.9**times) / root
                state["m"][rows], state["q"][rows], state["touches"][rows], state["at"][rows] = (
                    m,
                    q,
                    touches,
                    self.steps,
                )


class LongTail:
    """Zipf-distributed ids over `NUM_FIELDS` fields and labels from a planted FM of width 4."""

    def __init__(self, field_size: int, exponent: float, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.field_size, self.num_features = field_size, field_size * NUM_FIELDS
        weights = torch.arange(1, field_size + 1, dtype=torch.float64).pow(-exponent)
        self.cumulative = (weights.cumsum(0) / weights.sum()).float()
        self.linear = torch.randn(self.num_features, generator=self.generator) * 0.5
        self.factors = torch.randn(self.num_features, 4, generator=self.generator) * 0.35

    def draw(self, num_rows: int) -> tuple[Tensor, Tensor]:
        uniform = torch.rand(num_rows, NUM_FIELDS, generator=self.generator)
        local = torch.searchsorted(self.cumulative, uniform).clamp_(max=self.field_size - 1)
        ids = local + torch.arange(NUM_FIELDS) * self.field_size
        vectors = self.factors[ids]  # [B, F, 4]
        pairs = 0.5 * (vectors.sum(1).square() - vectors.square().sum(1)).sum(1)
        logits = self.linear[ids].sum(1) + pairs - 0.5
        return ids.int(), (torch.rand(num_rows, generator=self.generator) < torch.sigmoid(logits)).float()


def train(variant: dict[str, object], arguments: argparse.Namespace, seed: int) -> dict[str, float]:
    data = LongTail(arguments.field_size, arguments.exponent, seed)
    torch.manual_seed(seed)
    model = Fm(UniformEmbedding([data.field_size] * NUM_FIELDS, UniformConfig(embedding_dim=arguments.dim)), FmConfig())
    rows = variant["updates"] == "rows"
    for module in model.modules():
        if isinstance(module, RowGradients):
            module.row_gradients = rows
    settings = {"lr": arguments.lr, "weight_decay": arguments.decay}
    if rows:
        options = {key: value for key, value in variant.items() if key not in ("updates", "name", "optimizer")}
        kind = variant.get("optimizer", RowAdam)
        optimizer: torch.optim.Optimizer = kind(model.parameters(), **settings, **options)  # type: ignore[operator]
    else:
        optimizer = torch.optim.Adam(model.parameters(), fused=True, **settings)
    counts = torch.zeros(data.num_features, dtype=torch.int64)
    started = perf_counter()
    for _ in range(arguments.steps):
        ids, labels = data.draw(BATCH_SIZE)
        counts += torch.bincount(ids.flatten(), minlength=data.num_features)
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(model(ids), labels).backward()
        optimizer.step()
    seconds = perf_counter() - started
    if isinstance(optimizer, RowAdam):
        optimizer.catch_up()
    return evaluate(model, data, counts) | {"seconds": seconds}


@torch.no_grad()
def evaluate(model: Fm, data: LongTail, counts: Tensor) -> dict[str, float]:
    labels, logits, rarest = [], [], []
    for _ in range(100):
        ids, truth = data.draw(4096)
        labels.append(truth)
        logits.append(model(ids))
        rarest.append(counts[ids.long()].amin(1))
    truth_all, predicted, rare = torch.cat(labels), torch.cat(logits), torch.cat(rarest) <= RARE_COUNT
    return {
        "auc": auc(truth_all.numpy(), predicted.numpy()),
        "rare_auc": auc(truth_all[rare].numpy(), predicted[rare].numpy()),
        "logloss": float(binary_cross_entropy_with_logits(predicted, truth_all)),
        "rare_share": float(rare.float().mean()),
    }


def variants() -> list[dict[str, object]]:
    every = 10**9
    found: list[dict[str, object]] = [{"name": "dense Adam", "updates": "dense"}]
    for cap in (1, 10, 100, 1000, every):
        shown = "no cap" if cap == every else f"cap {cap}"
        found.append({"name": f"rows, {shown}", "updates": "rows", "max_decay_steps": cap})
    rows = {"updates": "rows", "max_decay_steps": 100}
    return [
        *found,
        {"name": "rows, cap 100, second moment per row", **rows, "second_moment": "row"},
        {"name": "rows, cap 100, lazy moments", **rows, "optimizer": LazyMoments},
        {
            "name": "rows, cap 100, lazy moments corrected by touches",
            **rows,
            "optimizer": partial(LazyMoments, by_touches=True),
        },
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--field-size", type=int, default=50_000)
    parser.add_argument("--exponent", type=float, default=1.05)
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--decay", type=float, default=1e-5)
    parser.add_argument("--only", help="substring of the variants to run")
    parser.add_argument("--out", type=Path, default=RESULTS / "row_updates_long_tail.json")
    arguments = parser.parse_args()
    results = {}
    for variant in variants():
        name = str(variant["name"])
        if arguments.only and arguments.only not in name:
            continue
        runs = [train(variant, arguments, seed) for seed in range(arguments.seeds)]
        results[name] = {key: [run[key] for run in runs] for key in runs[0]}
        spread = {key: stdev(values) if len(values) > 1 else math.nan for key, values in results[name].items()}
        shown = " ".join(f"{key} {fmean(values):.4f} ± {spread[key]:.4f}" for key, values in results[name].items())
        print(f"{name:55} {shown}", flush=True)
    settings = {key: value for key, value in vars(arguments).items() if not isinstance(value, Path)}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"settings": settings, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    main()
