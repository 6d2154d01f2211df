"""One layer of AutoInt's attention, forward and backward: the kernel for few fields against torch's attention.

    python benchmarks/speed/attention.py [--rounds 20] [--dropout 0.4]

Batches of 1,024 rows, dimension 64, two heads. Numbers of fields: that of MovieLens-1M, a common one, and the maximum
of the kernel. Both variants get the same projections and gradient; the script first checks that they agree."""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from measure import RESULTS, Variant, print_table, run_in_turns, tune_malloc, warm_up, write_result
from torch import Tensor

from thresher.kernels.interactions import FEW_FIELDS, attend, attend_by_torch

BATCH_SIZE, WIDTH, NUM_HEADS = 1024, 64, 2
NUM_FIELDS = (7, 10, FEW_FIELDS)

Attention = Callable[..., Tensor]


def step(attention: Attention, inputs: list[Tensor], grad: Tensor, dropout: float) -> tuple[Tensor, ...]:
    return torch.autograd.grad(attention(*inputs, NUM_HEADS, dropout=dropout), inputs, grad)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--dropout", type=float, default=0.4)
    parser.add_argument("--out", type=Path, default=RESULTS / "attention.json")
    arguments = parser.parse_args()
    figures, ratios = {}, {}
    for num_fields in NUM_FIELDS:
        *inputs, grad = torch.randn(4, BATCH_SIZE, num_fields, WIDTH, generator=torch.Generator().manual_seed(0))
        inputs = [x.requires_grad_() for x in inputs]
        torch.testing.assert_close(
            step(attend, inputs, grad, 0.0), step(attend_by_torch, inputs, grad, 0.0), rtol=1e-3, atol=1e-3
        )
        variants = {
            f"{num_fields} fields, {name}": Variant(
                lambda run=run, x=inputs, g=grad: step(run, x, g, arguments.dropout)
            )
            for name, run in (("torch", attend_by_torch), ("kernel", attend))
        }
        warm_up(*variants.values())
        run_in_turns(variants, arguments.rounds)
        figures |= {name: {"milliseconds": variant.median_seconds * 1e3} for name, variant in variants.items()}
        torch_ms, kernel_ms = (variant.median_seconds for variant in variants.values())
        ratios[f"torch_over_kernel_{num_fields}_fields"] = round(torch_ms / kernel_ms, 3)
    print_table(figures)
    settings = {
        "batch_size": BATCH_SIZE, "width": WIDTH, "num_heads": NUM_HEADS, "dropout": arguments.dropout,
        "rounds": arguments.rounds, "threads": torch.get_num_threads(),
    }  # fmt: skip
    write_result("attention", settings, figures, ratios, arguments.out)


if __name__ == "__main__":
    tune_malloc()
    main()
