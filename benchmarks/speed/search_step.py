"""One step of a PEP search at Criteo's table size, against the published step and against unpruned training.

    python benchmarks/speed/search_step.py [--quick] [--threads 2]

Six sides, all the same FM on the same batches, each step forward, backward and optimizer:

- `published`: Eq. 8 on the whole table, gradient clipping and a count at each step, as in the authors' code
- `dense`: PEP done well the dense way: look up, then threshold; fused Adam; a count every 100 steps
- `unpruned_dense`: `nn.Embedding` and fused Adam
- `sparse_adam`: `nn.Embedding(sparse=True)` and torch's SparseAdam
- `unpruned`: our unpruned table with the same row updates as ours
- `ours`: a whole search, warm-up and plan, clock included. A step gets cheaper as rows are pruned; the ratios use its
  mean over the search, `ours_dearest` is the dearest quarter

and ours over unpruned for DeepFM and AutoInt.
"""

import argparse
from collections.abc import Callable
from statistics import fmean

from measuring import Side, keep_pages, report, take_turns

keep_pages()

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.functional import binary_cross_entropy_with_logits  # noqa: E402

from thresher.embeddings.base import FieldEmbedding  # noqa: E402
from thresher.embeddings.pep import PepConfig, PepEmbedding  # noqa: E402
from thresher.embeddings.registry import build_embedding  # noqa: E402
from thresher.embeddings.uniform import UniformConfig, UniformEmbedding  # noqa: E402
from thresher.models.fm import Fm, FmConfig  # noqa: E402
from thresher.models.registry import build_model, model_config  # noqa: E402
from thresher.search.searcher import Searcher  # noqa: E402
from thresher.training.optimizers import OptimizerConfig, build_optimizer  # noqa: E402

NUM_FEATURES, EMBEDDING_DIM, BATCH_SIZE, NUM_FIELDS = 1_086_810, 64, 1024, 39
SMALLEST_BUDGET = 10_000
STEPS_BETWEEN_COUNTS = 100
MAX_GRAD_NORM = 100.0  # the authors' setting


def field_sizes(num_features: int = NUM_FEATURES) -> list[int]:
    each = num_features // NUM_FIELDS
    return [each] * (NUM_FIELDS - 1) + [num_features - each * (NUM_FIELDS - 1)]


class Stream:
    """Batches without end: long-tailed ids, about 26,000 distinct ones a batch, and labels that follow some of them."""

    def __init__(self, num_features: int = NUM_FEATURES, seed: int = 0, num_batches: int = 64) -> None:
        generator = torch.Generator().manual_seed(seed)
        sizes = torch.tensor(field_sizes(num_features))
        offsets = sizes.cumsum(0) - sizes
        uniform = torch.rand(num_batches, BATCH_SIZE, NUM_FIELDS, generator=generator)
        self.ids = ((uniform**6 * sizes).long().clamp_(max=int(sizes.min()) - 1) + offsets).int()
        signal = (self.ids[..., :5] % 7 == 0).float().sum(-1) - 0.7
        self.labels = (torch.rand(num_batches, BATCH_SIZE, generator=generator) < torch.sigmoid(2 * signal)).float()
        self.at = 0

    def next(self) -> tuple[Tensor, Tensor]:
        self.at = (self.at + 1) % len(self.ids)
        return self.ids[self.at].clone(), self.labels[self.at]


def step_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, after: Callable[[], object] | None = None
) -> Callable[[], None]:
    stream = Stream()

    def step() -> None:
        ids, labels = stream.next()
        optimizer.zero_grad(set_to_none=True)
        binary_cross_entropy_with_logits(model(ids), labels).backward()
        if after is not None:
            after()
        else:
            optimizer.step()

    return step


class WholeTable(FieldEmbedding):
    """The published form: Eq. 8 on the whole table at each step."""

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
    """`nn.Embedding(sparse=True)`, as torch has it."""

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.weight, sparse=True)


def published() -> Callable[[], None]:
    config = PepConfig(embedding_dim=EMBEDDING_DIM, pressure="decay", raw_threshold_init=-7.0)
    embedding = WholeTable(PepEmbedding(field_sizes(), config))
    model = Fm(embedding, FmConfig())
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=1e-5, fused=True)

    def rest_of_step() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        assert embedding.pruned is not None
        int(torch.count_nonzero(embedding.pruned.detach()))

    return step_of(model, optimizer, rest_of_step)


def dense() -> tuple[Callable[[], None], Callable[[], int]]:
    embedding = PepEmbedding(field_sizes(), PepConfig(embedding_dim=EMBEDDING_DIM))
    embedding.clock.fill_(-7.0)
    model = Fm(embedding, FmConfig())
    return step_of(model, build_optimizer(model, OptimizerConfig(updates="dense"))), embedding.num_parameters


def unpruned(updates: str, model_name: str = "fm") -> Callable[[], None]:
    model = build_model(
        build_embedding(field_sizes(), UniformConfig(embedding_dim=EMBEDDING_DIM)), model_config(model_name)
    )
    return step_of(model, build_optimizer(model, OptimizerConfig(updates=updates)))  # type: ignore[arg-type]


def sparse_adam() -> Callable[[], None]:
    model = Fm(SparseTable(field_sizes(), UniformConfig(embedding_dim=EMBEDDING_DIM)), FmConfig())
    model.linear_term.weights.sparse = True
    optimizer = torch.optim.SparseAdam([model.embedding.weight, model.linear_term.weights.weight])  # type: ignore[union-attr, list-item]
    bias = torch.optim.Adam([model.linear_term.bias], fused=True)

    def rest_of_step() -> None:
        optimizer.step()
        bias.step()
        bias.zero_grad()

    return step_of(model, optimizer, rest_of_step)


def ours(num_steps: int, model_name: str = "fm") -> Callable[[], None]:
    """A search of `num_steps` steps, a quarter of them warm-up, to be run step by step."""
    model = build_model(
        build_embedding(field_sizes(), PepConfig(embedding_dim=EMBEDDING_DIM)), model_config(model_name)
    )
    optimizer = build_optimizer(model, OptimizerConfig(updates="rows"))
    # the plan is one step longer, so that no ticket is cut while the clock is running
    searcher = Searcher(model, [SMALLEST_BUDGET], steps=num_steps + 1, warmup_steps=num_steps // 4)

    def rest_of_step() -> None:
        optimizer.step()
        searcher.step()

    return step_of(model, optimizer, rest_of_step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under two minutes")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)

    num_rounds, turn = (6, 40) if arguments.quick else (12, 100)
    num_steps = (num_rounds + 1) * turn
    dense_step, count = dense()
    sides = {
        "published": Side(published(), runs_per_turn=1),
        "dense": Side(dense_step, runs_per_turn=2),
        "unpruned_dense": Side(unpruned("dense"), runs_per_turn=3),
        "sparse_adam": Side(sparse_adam(), runs_per_turn=5),
        "unpruned": Side(unpruned("rows"), runs_per_turn=10),
        "ours": Side(ours(num_steps), runs_per_turn=turn),
    }
    counting = Side(count, runs_per_turn=3)
    counting.take_turn()
    sides["dense"].extra_seconds = counting.median_seconds / STEPS_BETWEEN_COUNTS
    take_turns(sides, num_rounds)
    milliseconds = {name: {"milliseconds": 1e3 * side.median_seconds} for name, side in sides.items()}
    quarters = by_quarter(sides["ours"].seconds)
    mean = fmean(quarters)
    milliseconds["ours"] = {"milliseconds": 1e3 * mean}
    milliseconds |= {f"ours, quarter {at}": {"milliseconds": 1e3 * quarter} for at, quarter in enumerate(quarters, 1)}
    base = {name: side.median_seconds for name, side in sides.items()}
    ratios = {
        "published_over_ours": base["published"] / mean,
        "dense_over_ours": base["dense"] / mean,
        "unpruned_dense_over_ours": base["unpruned_dense"] / mean,
        "sparse_adam_over_ours": base["sparse_adam"] / mean,
        "ours_over_unpruned": mean / base["unpruned"],
        "ours_dearest_over_unpruned": max(quarters) / base["unpruned"],
        "published_over_ours_dearest": base["published"] / max(quarters),
        "sparse_adam_over_ours_dearest": base["sparse_adam"] / max(quarters),
    }
    sides.clear()
    del dense_step, count, counting
    for name in ("deepfm", "autoint"):
        rounds, turn = (3, 20) if arguments.quick else (8, 40)
        pair = {
            "unpruned": Side(unpruned("rows", name), runs_per_turn=5),
            "ours": Side(ours((rounds + 1) * turn, name), runs_per_turn=turn),
        }
        take_turns(pair, rounds)
        mean = fmean(by_quarter(pair["ours"].seconds))
        milliseconds[f"unpruned, {name}"] = {"milliseconds": 1e3 * pair["unpruned"].median_seconds}
        milliseconds[f"ours, {name}"] = {"milliseconds": 1e3 * mean}
        ratios[f"ours_over_unpruned_{name}"] = mean / pair["unpruned"].median_seconds
    settings = {
        "num_features": NUM_FEATURES,
        "embedding_dim": EMBEDDING_DIM,
        "batch_size": BATCH_SIZE,
        "num_fields": NUM_FIELDS,
        "granularity": "feature-dimension",
        "smallest_budget": SMALLEST_BUDGET,
        "search_steps": num_steps,
        "clock_steps": 20,
        "quick": arguments.quick,
    }
    report("search_step", settings, milliseconds, ratios)


def by_quarter(seconds: list[float]) -> list[float]:
    """Mean step of each quarter of a search, single slow steps (another program's) cut at the quarter's 98th per cent.

    Means and not medians, since the steps that set the clock are rare and belong to the cost.
    """
    size = len(seconds) // 4
    quarters = [sorted(seconds[at * size : (at + 1) * size]) for at in range(4)]
    return [fmean(min(second, quarter[int(0.98 * (size - 1))]) for second in quarter) for quarter in quarters]


if __name__ == "__main__":
    main()
