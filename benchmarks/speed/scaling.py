"""Time of a search step against the size of the table: N = 10⁵, 10⁶, 10⁷ rows with about 26,000 distinct ids per batch.

    python benchmarks/speed/scaling.py [--quick] [--threads 2]

The step is a search step with its clock, at a clock value that keeps a tenth of the entries. Only cache misses should
grow with `N`. Writes `scaling.json` and `scaling.svg`. 10⁷ rows with D = 64 need 10 GB for table, deviations and
moments (feature-dimension); `--embedding-dim 16` needs 2.6 GB.
"""

import argparse
import os
from pathlib import Path

from measure import Variant, print_table, result_path, run_in_turns, tune_malloc, write_result

if __name__ == "__main__":
    os.environ["OMP_WAIT_POLICY"] = "passive"  # for all variants: threads must not wait busily
    tune_malloc()

import torch
from search_step import BATCH_SIZE, CLOCK_STEPS, NUM_FIELDS, Stream, Training, field_sizes, mean_without_outliers

from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.kernels.score_histogram import clock_from_counts
from thresher.models.fm import Fm, FmConfig
from thresher.training.optimizers import OptimizerConfig, build_optimizer

DISTINCT_PER_BATCH = 26_000
KEPT_SHARE = 0.1


class EqualStream(Stream):
    """A stream with the same number of distinct ids per batch for every table size, by a fitted exponent."""

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features)
        low, high = 1.0, 40.0
        for _ in range(12):
            self.power = (low + high) / 2
            self.draw()
            low, high = (self.power, high) if self.ids.unique().numel() > DISTINCT_PER_BATCH else (low, self.power)

    def draw(self) -> None:
        uniform = torch.rand(BATCH_SIZE, NUM_FIELDS, generator=self.generator)
        self.ids = ((uniform**self.power * self.sizes).long() + self.offsets).int()
        self.labels = (torch.rand(BATCH_SIZE, generator=self.generator) < 0.3).float()


def pruning_search(num_features: int, embedding_dim: int) -> tuple[Variant, int]:
    embedding = PepEmbedding(field_sizes(num_features), PepConfig(embedding_dim=embedding_dim))
    torch.nn.init.normal_(embedding.weight, std=0.05)
    embedding.seen.fill_(True)
    model = Fm(embedding, FmConfig())
    optimizer = build_optimizer(model, OptimizerConfig(updates="rows"))
    num_kept = round(KEPT_SHARE * num_features * embedding_dim)
    steps = 0

    def rest_of_step() -> None:
        nonlocal steps
        optimizer.step()
        steps += 1
        if steps % CLOCK_STEPS == 1:
            embedding.clock.fill_(clock_from_counts(embedding.score_histogram().counts(), num_kept))

    training = Training(model, optimizer, rest_of_step, num_features)
    training.stream = EqualStream(num_features)
    return training.variant(CLOCK_STEPS), training.stream.ids.unique().numel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under two minutes")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--embedding-dim", type=int, default=64)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    out = result_path("scaling", arguments.out, quick=arguments.quick)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    built = {num_features: pruning_search(num_features, arguments.embedding_dim) for num_features in arguments.rows}
    variants = {f"N = {num_features}": variant for num_features, (variant, _) in built.items()}
    run_in_turns(variants, 2 if arguments.quick else 6)

    table = {}
    for num_features, (variant, num_distinct) in built.items():
        mean = mean_without_outliers(variant.seconds)
        table[f"N = {num_features}"] = {
            "milliseconds": 1e3 * variant.median_seconds, "mean_milliseconds": 1e3 * mean, "distinct_ids": num_distinct,
        }  # fmt: skip
    means = [figures["mean_milliseconds"] for figures in table.values()]
    medians = [figures["milliseconds"] for figures in table.values()]
    ratios = {
        "largest_over_smallest_table": means[-1] / means[0],
        "slowest_over_fastest": max(means) / min(means),
        "largest_over_smallest_median": medians[-1] / medians[0],
    }
    settings = {
        "embedding_dim": arguments.embedding_dim, "batch_size": BATCH_SIZE, "num_fields": NUM_FIELDS,
        "kept_share": KEPT_SHARE, "clock_steps": CLOCK_STEPS, "threads": arguments.threads, "quick": arguments.quick,
    }  # fmt: skip
    print_table(table)
    write_result("scaling", settings, table, {name: round(ratio, 3) for name, ratio in ratios.items()}, out)
    draw(arguments.rows, means, out.with_suffix(".svg"))


def draw(rows: list[int], milliseconds: list[float], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 3.2), layout="constrained")
    axes.plot(rows, milliseconds, marker="o")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.5 * max(milliseconds))
    axes.set_xlabel("rows of the table, N")
    axes.set_ylabel("milliseconds per search step")
    axes.set_title("Time of a search step by table size", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


if __name__ == "__main__":
    main()
