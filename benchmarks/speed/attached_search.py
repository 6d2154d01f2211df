"""A search on a large attached table with sparse gradients, against the plain training loop with SparseAdam.

    python benchmarks/speed/attached_search.py [--quick] [--rows 10000000] [--steps 2000] [--threads 2]

Both variants train the same model on the same batches of Zipf-distributed ids (4 of one table per row), each in a
process of its own. The search is the whole of it: the initial state, warm-up, pruning and two tickets.
`search_over_sparse_adam` is the ratio of the times, `…_memory` that of the peak memory, `…_cpu` that of the CPU
times, which other programs on the machine disturb less.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from measure import peak_bytes, print_table, repeat_in_turns, result_path, run_in_subprocess, tune_malloc, write_result

if __name__ == "__main__":
    os.environ["OMP_WAIT_POLICY"] = "passive"  # for all variants: threads must not wait busily
    tune_malloc()

VARIANTS = ("sparse_adam", "search", "search_with_sparse_adam")
WIDTH, BATCH_SIZE, IDS_PER_ROW, BUDGETS = 16, 4096, 4, ("5%", "1%")


def run(variant: str, num_rows: int, num_steps: int, threads: int) -> dict[str, float]:
    """Train or search; return seconds, CPU seconds and peak megabytes."""
    import torch
    from torch import nn
    from torch.nn import functional

    from thresher import RowAdam, Searcher, attach_

    torch.set_num_threads(threads)
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(
                num_rows, WIDTH, sparse=True, _weight=torch.empty(num_rows, WIDTH).normal_(0, 0.05)
            )

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            vectors = self.table(ids)  # [B, 4, D]
            pairs: torch.Tensor = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1)
            return pairs

    draw = torch.Generator().manual_seed(0)

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        ranks = num_rows ** torch.rand(BATCH_SIZE, IDS_PER_ROW, generator=draw, dtype=torch.float64)
        ids = (ranks.long().clamp(max=num_rows) - 1) * 7_368_787 % num_rows  # frequent ids are spread over the table
        return ids, (ids.sum(1) % 3 == 0).float()

    def loop(optimizer: torch.optim.Optimizer, steps: int, searcher: Searcher | None = None) -> None:
        for _ in range(steps):
            ids, labels = batch()
            optimizer.zero_grad()
            functional.binary_cross_entropy_with_logits(model(ids), labels).backward()
            optimizer.step()
            if searcher is not None:
                searcher.step()

    model = Model()
    if variant != "sparse_adam":
        attach_(model)
    kinds = {"search": RowAdam}
    optimizer = kinds.get(variant, torch.optim.SparseAdam)(model.parameters(), lr=1e-3)
    loop(optimizer, 3)  # compiles kernels, allocates the optimizer's state
    started, started_cpu = time.perf_counter(), time.process_time()
    if variant == "sparse_adam":
        loop(optimizer, num_steps)
    else:
        searcher = Searcher(model, BUDGETS, steps=num_steps)
        loop(optimizer, num_steps, searcher)
        sizes = [ticket.num_parameters for ticket in searcher.tickets]
        assert sizes == [num_rows * WIDTH // 20, num_rows * WIDTH // 100], sizes
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - started_cpu,
        "megabytes": peak_bytes() / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a table of a million rows, 400 steps; under two minutes")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)  # in a process of its own
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    num_rows = arguments.rows or (1_000_000 if arguments.quick else 10_000_000)
    num_steps = arguments.steps or (400 if arguments.quick else 2000)
    if arguments.variant:
        print(json.dumps(run(arguments.variant, num_rows, num_steps, arguments.threads)))
        return
    sizes = ("--rows", str(num_rows), "--steps", str(num_steps), "--threads", str(arguments.threads))
    sides = repeat_in_turns(
        {
            name: lambda name=name: run_in_subprocess(sys.argv[0], "--variant", name, *sizes)  # type: ignore[misc]
            for name in VARIANTS
        },
        arguments.repeats or (1 if arguments.quick else 3),
    )
    columns = ("seconds", "cpu_seconds", "megabytes")
    print_table({name: {column: side[column] for column in columns} for name, side in sides.items()})
    plain = sides["sparse_adam"]
    ratios = {
        f"{name}_over_sparse_adam{suffix}": round(sides[name][column] / plain[column], 3)
        for name in VARIANTS[1:]
        for column, suffix in (("seconds", ""), ("cpu_seconds", "_cpu"), ("megabytes", "_memory"))
    }
    settings = {
        "rows": num_rows, "embedding_dim": WIDTH, "batch_size": BATCH_SIZE, "ids_per_row": IDS_PER_ROW,
        "steps": num_steps, "budgets": BUDGETS, "threads": arguments.threads, "quick": arguments.quick,
    }  # fmt: skip
    out = result_path("attached_search", arguments.out, quick=arguments.quick)
    write_result("attached_search", settings, sides, ratios, out)


if __name__ == "__main__":
    main()
