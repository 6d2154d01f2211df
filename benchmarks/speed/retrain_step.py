"""One step of retraining a ticket at Criteo's table size: compact values against the masked dense table.

    python benchmarks/speed/retrain_step.py [--quick] [--threads 2] [--density 0.01]

Both variants train the same FM with the same mask and values, with fused Adam over the table's values. The compact
variant updates first-order weights by rows, its default. Kept entries are concentrated in frequent features, as after a
search. Bytes are parameters, gradients, optimizer state and index or mask, for the whole model (with first-order
weights) and for the table only.
"""

import argparse
import os
from pathlib import Path

from measure import print_table, result_path, run_in_turns, tune_malloc, write_result

if __name__ == "__main__":
    os.environ["OMP_WAIT_POLICY"] = "passive"  # for all variants: threads must not wait busily
    tune_malloc()

import torch
from search_step import BATCH_SIZE, EMBEDDING_DIM, NUM_FEATURES, NUM_FIELDS, Training, field_sizes
from torch import Tensor, nn
from torch.nn import functional

from thresher.compact.embedding import CompactEmbedding
from thresher.embeddings.base import FieldEmbedding
from thresher.models.fm import Fm, FmConfig
from thresher.training.optimizers import OptimizerConfig, build_optimizer


class MaskedTable(FieldEmbedding):
    """Masked dense table: look up, then mask."""

    def __init__(self, mask: Tensor, weight: Tensor) -> None:
        super().__init__(field_sizes(), mask.shape[1])
        self.weight = nn.Parameter(weight * mask)
        self.register_buffer("mask", mask)
        self.mask: Tensor

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.weight) * self.mask[ids.long()]

    def num_parameters(self) -> int:
        return int(self.mask.sum())

    def storage_bytes(self) -> int:
        return 4 * self.weight.numel()


def concentrated_mask(density: float) -> Tensor:
    """Return a bool mask `[N, D]`; the kept share of a feature falls with the square root of its rank in the field."""
    generator = torch.Generator().manual_seed(0)
    shares = torch.cat([torch.arange(1, size + 1).rsqrt() for size in field_sizes()])
    low, high = 0.0, 1e4
    for _ in range(60):  # shares are clipped at 1, so the factor is found by bisection
        middle = (low + high) / 2
        low, high = (middle, high) if float((shares * middle).clamp(max=1).mean()) < density else (low, middle)
    shares = (shares * low).clamp(max=1).unsqueeze(1)
    mask = torch.zeros(NUM_FEATURES, EMBEDDING_DIM, dtype=torch.bool)
    for start in range(0, NUM_FEATURES, 1 << 16):
        rows = slice(start, min(start + (1 << 16), NUM_FEATURES))
        mask[rows] = torch.rand(mask[rows].shape, generator=generator) < shares[rows]
    return mask


def training_bytes(training: Training, embedding: FieldEmbedding | None = None) -> int:
    """Return the bytes held between two steps, for the whole model or only its embedding."""
    module = training.model if embedding is None else embedding
    state = [value for p in module.parameters() for value in training.optimizer.state[p].values()]
    tensors = [*module.parameters(), *(p.grad for p in module.parameters()), *module.buffers(), *state]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if isinstance(tensor, Tensor))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under two minutes")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--density", type=float, default=0.01)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    out = result_path("retrain_step", arguments.out, quick=arguments.quick)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    mask, weight = concentrated_mask(arguments.density), torch.randn(NUM_FEATURES, EMBEDDING_DIM).mul_(0.01)
    trainings = {}
    for name, embedding, config in (
        ("masked_dense", MaskedTable(mask, weight), OptimizerConfig(updates="dense")),
        ("compact", CompactEmbedding.from_mask(field_sizes(), mask, weight), OptimizerConfig()),
    ):
        model = Fm(embedding, FmConfig())
        trainings[name] = Training(model, build_optimizer(model, config))
    num_kept = int(mask.sum())
    del mask, weight, embedding, model
    variants = {"masked_dense": trainings["masked_dense"].variant(2), "compact": trainings["compact"].variant(20)}
    run_in_turns(variants, 5 if arguments.quick else 15)

    table = {
        name: {
            "milliseconds": 1e3 * variant.median_seconds,
            "megabytes": training_bytes(trainings[name]) / 1e6,
            "table_megabytes": training_bytes(trainings[name], trainings[name].model.embedding) / 1e6,  # type: ignore[arg-type]
        }
        for name, variant in variants.items()
    }
    dense, compact = table["masked_dense"], table["compact"]
    ratios = {
        "masked_dense_over_compact_time": dense["milliseconds"] / compact["milliseconds"],
        "masked_dense_over_compact_bytes": dense["megabytes"] / compact["megabytes"],
        "masked_dense_over_compact_table_bytes": dense["table_megabytes"] / compact["table_megabytes"],
    }
    settings = {
        "num_features": NUM_FEATURES, "embedding_dim": EMBEDDING_DIM, "batch_size": BATCH_SIZE,
        "num_fields": NUM_FIELDS, "density": arguments.density, "num_kept": num_kept, "threads": arguments.threads,
        "quick": arguments.quick,
    }  # fmt: skip
    print_table(table)
    write_result("retrain_step", settings, table, {name: round(ratio, 3) for name, ratio in ratios.items()}, out)


if __name__ == "__main__":
    main()
